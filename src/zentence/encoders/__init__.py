"""Encoders: source tokens → features [B, H]."""

from torch import nn

from zentence.encoders.bag import BagEncoder
from zentence.encoders.recurrent import RecurrentEncoder
from zentence.encoders.transformer import TransformerEncoder

ENCODERS: dict[str, type[nn.Module]] = {
    "recurrent": RecurrentEncoder,
    "bag": BagEncoder,
    "transformer": TransformerEncoder,
}

"""Decoders: codes → log p(x|z), and words one by one."""

from torch import nn

from zentence.decoders.recurrent import RecurrentDecoder
from zentence.decoders.transformer import TransformerDecoder

DECODERS: dict[str, type[nn.Module]] = {"recurrent": RecurrentDecoder, "transformer": TransformerDecoder}

"""Encoders: source tokens → features [B, H]."""

from torch import nn

from zentence.encoders.recurrent import RecurrentEncoder

ENCODERS: dict[str, type[nn.Module]] = {"recurrent": RecurrentEncoder}

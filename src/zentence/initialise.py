"""Initial values, by kind of parameter."""

import torch
from pydantic import Field
from torch import nn

from zentence.parts import Options


class InitialRanges(Options):
    """Half-widths of the uniform distributions that parameters start from; none: torch's own."""

    recurrent: float | None = Field(None, gt=0.0, description="Weights and biases of recurrent layers.")
    embedding: float | None = Field(0.1, gt=0.0, description="Word embeddings.")
    linear: float | None = Field(None, gt=0.0, description="Weights and biases of linear maps.")
    forget_bias: float | None = Field(
        None, description="Bias of an LSTM's forget gates; with 1 or 2 it remembers a sentence from the start."
    )


def initialise(module: nn.Module, ranges: InitialRanges) -> None:
    """Give every parameter below `module` a new initial value, from torch's random state."""
    for part in module.modules():
        if isinstance(part, (nn.LSTM, nn.GRU)):
            half_width = ranges.recurrent
        elif isinstance(part, nn.Embedding):
            half_width = ranges.embedding
        elif isinstance(part, nn.Linear):
            half_width = ranges.linear
        else:
            continue
        part.reset_parameters()
        if half_width is not None:
            for parameter in part.parameters(recurse=False):
                nn.init.uniform_(parameter, -half_width, half_width)
        if isinstance(part, nn.LSTM) and ranges.forget_bias is not None:
            _remember(part, ranges.forget_bias)


@torch.no_grad()
def _remember(recurrence: nn.LSTM, bias: float) -> None:
    """Give the forget gates a bias; torch adds two, and orders gates as input, forget, cell, output."""
    gates = slice(recurrence.hidden_size, 2 * recurrence.hidden_size)
    for name, parameter in recurrence.named_parameters():
        if name.startswith("bias"):
            parameter[gates] = bias if name.startswith("bias_ih") else 0.0

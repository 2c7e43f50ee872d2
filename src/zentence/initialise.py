"""Initial values, by kind of parameter."""

from pydantic import Field
from torch import nn

from zentence.parts import Options


class InitialRanges(Options):
    """Half-widths of the uniform distributions that parameters start from; none: torch's own."""

    recurrent: float | None = Field(None, gt=0.0, description="Weights and biases of recurrent layers.")
    embedding: float | None = Field(0.1, gt=0.0, description="Word embeddings.")
    linear: float | None = Field(None, gt=0.0, description="Weights and biases of linear maps.")


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

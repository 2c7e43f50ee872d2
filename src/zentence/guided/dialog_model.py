"""A model of responses with a second way into its space: from what was said before."""

import copy
from typing import Any

from torch import nn

from zentence.errors import ZentenceError
from zentence.model import LatentLM
from zentence.types import LatentDistribution, Tokens


class DialogModel(nn.Module):
    """A LatentLM of responses, and an encoder and posterior for contexts that start as copies of its own.

    All encoders and the decoder keep what they share: word embeddings are read by both encoders. With `frozen` (for
    models that are trained already), all layers of a transformer encoder but its last stay as they are, for both ways
    (paper 5, appendix C.2); other encoders have nothing to freeze.
    """

    # Parts are any module that keeps its family's contract, so their types stay open.
    context_encoder: Any
    context_posterior: Any

    def __init__(self, model: LatentLM, *, frozen: bool = False) -> None:
        super().__init__()
        if not model.has_code:
            raise ZentenceError("This model is a language model: dialog needs a code; take a model with an encoder")
        if model.averaged_codes > 1:
            raise ZentenceError("Dialog needs one code a sentence: take a model with averaged_codes = 1")
        self.model = model
        lower = lower_parameters(model.encoder) if frozen else []
        for parameter in lower:
            parameter.requires_grad_(False)
        embedding = getattr(model.encoder, "embedding", None)
        shared = [*model.decoder.parameters(), *lower]
        shared += embedding.parameters() if isinstance(embedding, nn.Module) else []
        known: dict[int, Any] = {id(parameter): parameter for parameter in shared}
        self.context_encoder = copy.deepcopy(model.encoder, known)
        self.context_posterior = copy.deepcopy(model.posterior)

    @property
    def code_size(self) -> int:
        """Dimensions of a code."""
        return self.model.code_size

    def infer_context(self, context: Tokens) -> LatentDistribution:
        """Return the density of codes that a context asks for; its centre is z_S2S."""
        density: LatentDistribution = self.context_posterior(self.context_encoder(context))
        return density


def lower_parameters(encoder: Any) -> list[nn.Parameter]:
    """Return the parameters of a transformer encoder's embeddings and of all its layers but the last; else none."""
    if not hasattr(encoder, "last_layers"):
        return []
    last = {id(parameter) for layer in encoder.last_layers(1) for parameter in layer.parameters()}
    return [parameter for parameter in encoder.network.parameters() if id(parameter) not in last]

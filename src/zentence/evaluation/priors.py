"""A prior swapped in after training: the aggregate posterior of training sentences, or a mixture fitted to their codes.

Both are made of *training* sentences: a prior made of the sentences that it is tested on measures memory.
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from zentence.corpora import TokenStore, stored_batch
from zentence.errors import NotInvertibleError, ZentenceError
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.priors.aggregate import FixedPrior, aggregate_posterior, fit_mixture
from zentence.types import LatentDistribution

PriorKind = Literal["aggregate", "mixture"]
PRIOR_KINDS: tuple[str, ...] = get_args(PriorKind)
SENTENCES, COMPONENTS = 2000, 100
_ROWS = 128
Progress = Callable[[int, int], None]


@torch.no_grad()
def training_features(
    model: LatentLM, training: TokenStore, sentences: int, seed: int, progress: Progress | None = None
) -> Tensor:
    """Return the encoder's features [N, H] of up to `sentences` training sentences, drawn without replacement."""
    count = min(sentences, len(training))
    drawn = np.random.default_rng(derive_key(seed, "training sentences of a prior")).permutation(len(training))[:count]
    drawn = drawn[np.argsort([training.length(int(number)) for number in drawn], kind="stable")]
    device = next(model.parameters()).device
    parts = []
    for first in range(0, count, _ROWS):
        chosen = drawn[first : first + _ROWS]
        batch = stored_batch(training, chosen).to(device)
        parts.append(model.encoder(batch.source))
        if progress is not None:
            progress(min(first + _ROWS, count), count)
    return torch.cat(parts)


@torch.no_grad()
def density_of_codes(
    model: LatentLM, kind: str, features: Tensor, *, components: int = COMPONENTS, seed: int = 0
) -> LatentDistribution:
    """Return the density of codes of sentences with these features [N, H].

    `aggregate` is 1/N Σ_n q(z|x_n), which a planar flow cannot give; `mixture` is fitted to one code of each sentence.
    """
    if kind not in PRIOR_KINDS:
        raise ZentenceError(f"Unknown prior '{kind}': choose one of {', '.join(PRIOR_KINDS)}")
    q = model.posterior(features)
    if kind == "mixture":
        index = torch.arange(len(features), device=features.device)
        codes = q.rsample_and_log_prob(1, Noise(derive_key(seed, "codes of a prior"), index))[0][0]
        return fit_mixture(codes, min(components, len(codes)), seed)
    density = aggregate_posterior(q)
    try:
        density.log_prob(torch.zeros_like(q.center[None, :1]))
    except NotInvertibleError:
        raise NotInvertibleError("An aggregate prior is not available for this posterior: use a mixture") from None
    return density


def swap_prior(
    model: LatentLM,
    kind: str,
    training: TokenStore,
    *,
    sentences: int = SENTENCES,
    components: int = COMPONENTS,
    seed: int = 0,
    progress: Progress | None = None,
) -> None:
    """Put a prior made of training sentences in the place of a model's own, for evaluation or sampling."""
    if not model.has_code:
        raise ZentenceError("This model is a language model: it has no prior to swap")
    features = training_features(model, training, sentences, seed, progress)
    model.prior = FixedPrior(density_of_codes(model, kind, features, components=components, seed=seed))

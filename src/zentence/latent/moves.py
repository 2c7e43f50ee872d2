"""Moves in the space of codes: paths, analogies, attribute directions, and walks along single dimensions.

The algebra works on arrays [..., D] and computes in float64; what reads text takes it in streams.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.corpora.readers import has_labels, is_stream
from zentence.corpora.source import Origin
from zentence.corpora.splitting import Shares
from zentence.distributions import DiagonalGaussian, gaussian_kl, has_closed_form_rate
from zentence.errors import ZentenceError, suggestion
from zentence.settings import CorpusSettings
from zentence.types import LatentDistribution

if TYPE_CHECKING:
    from zentence.latent.space import Codes, LatentSpace, Progress

CHUNK = 1024  # sentences of a stream that are held at once
PARALLEL = 1e-6  # radians below which two directions are one, or opposite


def linear(first: NDArray[Any], last: NDArray[Any], steps: int) -> "Codes":
    """Return (1 − t) first + t last for `steps` values of t from 0 to 1: [steps, ..., D], ends exact."""
    first, last = np.asarray(first, dtype=np.float64), np.asarray(last, dtype=np.float64)
    t = _along(steps, first.ndim)
    points: Codes = ((1.0 - t) * first + t * last).astype(np.float32)
    return points


def spherical(first: NDArray[Any], last: NDArray[Any], steps: int, center: NDArray[Any] | None = None) -> "Codes":
    """Return points on an arc: the direction from `center` turns evenly, its length changes evenly; ends exact.

    With û, v̂ the ends' directions and θ the angle between them, û_t = (sin((1 − t) θ) û + sin(t θ) v̂) / sin θ. Codes
    of equal length keep it: a straight line between two random codes would pass nearer to the centre than random
    codes lie. Opposite directions have no arc of their own and are refused.
    """
    origin = 0.0 if center is None else np.asarray(center, dtype=np.float64)
    a, b = (np.asarray(end, dtype=np.float64) - origin for end in (first, last))
    t = _along(steps, a.ndim)
    lengths = [np.linalg.norm(end, axis=-1, keepdims=True) for end in (a, b)]
    flat = np.minimum(*lengths) == 0.0  # no direction: the arc is the straight line
    u, v = (end / np.where(flat, 1.0, length) for end, length in zip((a, b), lengths, strict=True))
    apart, together = (np.linalg.norm(pair, axis=-1, keepdims=True) for pair in (u - v, u + v))
    angle = 2.0 * np.arctan2(apart, together)
    if bool((~flat & (np.pi - angle < PARALLEL)).any()):
        raise ZentenceError("The two codes lie in opposite directions, between which there is no one arc: go linear")
    flat = flat | (angle < PARALLEL)
    angle = np.where(flat, 1.0, angle)
    direction = (np.sin((1.0 - t) * angle) * u + np.sin(t * angle) * v) / np.sin(angle)
    arc = ((1.0 - t) * lengths[0] + t * lengths[1]) * direction
    points = (origin + np.where(flat, (1.0 - t) * a + t * b, arc)).astype(np.float32)
    points[0], points[-1] = first, last  # not off by a rounding
    return points


def _along(steps: int, dimensions: int) -> NDArray[np.float64]:
    if steps < 2:
        raise ZentenceError("An interpolation has at least 2 steps")
    return np.linspace(0.0, 1.0, steps).reshape(-1, *(1,) * dimensions)


PATHS = ("linear", "spherical")


def path_between(
    first: NDArray[Any], last: NDArray[Any], steps: int, path: str = "linear", center: NDArray[Any] | None = None
) -> "Codes":
    """Return codes [steps, ..., D] along a path of PATHS; `center` is that of the sphere."""
    if path not in PATHS:
        raise ZentenceError(f"Unknown path '{path}'.{suggestion(path, PATHS)}")
    return linear(first, last, steps) if path == "linear" else spherical(first, last, steps, center)


def shifted(codes: NDArray[Any], direction: NDArray[Any], strength: float = 1.0) -> "Codes":
    """Return codes + strength × direction, for codes [..., D] and a direction [D]."""
    codes, direction = np.asarray(codes, dtype=np.float64), np.asarray(direction, dtype=np.float64)
    if codes.shape[-1:] != direction.shape:
        raise ZentenceError(f"A direction must have shape {list(codes.shape[-1:])}, not {list(direction.shape)}")
    if not np.isfinite(direction).all() or not np.isfinite(strength):
        raise ZentenceError("Direction and strength must be finite numbers")
    return (codes + strength * direction).astype(np.float32)


def analogy(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], strength: float = 1.0) -> "Codes":
    """Return c + strength × (b − a): what is to c as b is to a (paper 4: z_D = z_B − z_A + z_C)."""
    return shifted(c, np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64), strength)


class Step(NamedTuple):
    """A sentence on a way; `at` is 0 at its start and 1 at its end."""

    at: float
    sentence: str


def without_repeats(steps: Iterable[Step]) -> list[Step]:
    """Return the steps whose sentence is not that of the step before."""
    kept: list[Step] = []
    for step in steps:
        if not kept or kept[-1].sentence != step.sentence:
            kept.append(step)
    return kept


def ends_between(space: "LatentSpace", start: str, end: str, *, sample: bool = False, seed: int = 0) -> "Codes":
    """Return the codes of two sentences: means [2, D], or with `sample` L posterior samples each [2, L, D]."""
    return space.grouped_codes([start, end], sample=sample, seed=seed) if sample else space.encode([start, end])


def prior_ends(space: "LatentSpace", *, seed: int = 0, scale: float = 1.0) -> "Codes":
    """Return two codes drawn from the prior, or L each: [2, L, D]."""
    L = space.model.averaged_codes
    return space.prior_codes(2 * L, seed=seed, scale=scale).reshape(2, L, space.size)


def walk(
    space: "LatentSpace", ends: NDArray[Any], *, steps: int = 7, path: str = "linear", **options: Any
) -> list[Step]:
    """Return the sentences on a path between two codes [2, D] or [2, L, D]; a sphere has the prior's centre."""
    center = space.prior_moments()[0] if path == "spherical" else None
    codes = path_between(ends[0], ends[1], steps, path, center)
    written = space.decode(codes, **options)
    return [Step(float(t), text) for t, text in zip(np.linspace(0.0, 1.0, steps), written, strict=True)]


def chunks(sentences: Iterable[str], size: int = CHUNK) -> Iterator[list[str]]:
    """Yield a stream in lists of at most `size` sentences."""
    stream = iter(sentences)
    while chunk := list(islice(stream, size)):
        yield chunk


class MeanCode(NamedTuple):
    """The mean of the codes of many sentences, and how many they were."""

    code: "Codes"  # [D]
    sentences: int


def mean_code(space: "LatentSpace", sentences: Iterable[str], progress: "Progress | None" = None) -> MeanCode:
    """Return the mean of the posterior means of a stream of sentences; memory does not grow with the stream."""
    total, count = np.zeros(space.size), 0
    for chunk in chunks(sentences):
        total += space.encode(chunk, first=count).sum(0, dtype=np.float64)
        count += len(chunk)
        if progress is not None:
            progress(count)
    if count == 0:
        raise ZentenceError("There is no sentence to average over")
    return MeanCode((total / count).astype(np.float32), count)


class Rates(NamedTuple):
    """Nats that each dimension of the code costs, averaged over sentences."""

    values: NDArray[np.float64]  # [D]
    sentences: int
    exact: bool  # False: of Gaussians with the moments of posterior and prior, where KL has no sum over dimensions

    def order(self) -> list[int]:
        """Return the dimensions, the most informative first."""
        return [int(d) for d in np.argsort(-self.values, kind="stable")]


@torch.no_grad()
def rates_by_dimension(
    space: "LatentSpace", sentences: Iterable[str], progress: Callable[[int], None] | None = None
) -> Rates:
    """Return KL(q(z_d|x)‖p(z_d)) in nats for each dimension d, averaged over a stream of sentences.

    In closed form for a Gaussian posterior and a Gaussian prior; else that of Gaussians with their means and scales.
    """
    total, count, exact = np.zeros(space.size), 0, True
    prior = space.prior_density()
    for chunk in chunks(sentences):
        for _, q, _ in space.posteriors(chunk, first=count):
            exact = exact and has_closed_form_rate(q, prior)
            total += gaussian_kl(_gaussian(q), _gaussian(prior)).double().sum(0).cpu().numpy()
        count += len(chunk)
        if progress is not None:
            progress(count)
    if count == 0:
        raise ZentenceError("There is no sentence to average over")
    return Rates(total / count, count, exact)


def _gaussian(density: LatentDistribution) -> DiagonalGaussian:
    if isinstance(density, DiagonalGaussian):
        return density
    return DiagonalGaussian(density.center, density.scale.clamp(min=1e-12).log())


def validation_sentences(corpus: CorpusSettings) -> Iterator[str] | None:
    """Return the validation sentences that a model's settings name; none if a file is not at hand."""
    shares = None
    if not corpus.valid:
        shares = Shares(corpus.valid_share, 0.0 if corpus.test else corpus.test_share)
    files = corpus.valid or corpus.train
    if not files or any(is_stream(file) or not Path(file).is_file() for file in files):
        return None
    side = "all" if shares is None else "valid"
    origins = [Origin(Path(file), has_labels(file, corpus.labels), shares, side) for file in files]
    return (text for origin in origins for text in origin.texts())


class Traversal(NamedTuple):
    """Sentences as one dimension of a code takes several values, the others staying as they are."""

    dimension: int
    own: float  # the sentence's value, in standard deviations of the prior from its centre
    steps: list[Step]  # `at` in the same unit


def traverse(
    space: "LatentSpace",
    code: NDArray[Any],
    dimensions: Iterable[int],
    *,
    steps: int = 7,
    span: float = 3.0,
    **options: Any,
) -> list[Traversal]:
    """Return what is written as each dimension of a code [D] goes from −span to span.

    The unit is the prior's standard deviation in that dimension, 0 its centre. All points are decoded in one call.
    """
    if steps < 2:
        raise ZentenceError("A traversal has at least 2 steps")
    chosen = list(dimensions)
    if any(not 0 <= d < space.size for d in chosen):
        raise ZentenceError(f"Dimensions go from 0 to {space.size - 1}")
    code, (center, scale) = np.asarray(code, dtype=np.float64), space.prior_moments()
    places = np.linspace(-span, span, steps)
    codes = np.tile(code, (len(chosen), steps, 1))
    for row, d in enumerate(chosen):
        codes[row, :, d] = center[d] + places * scale[d]
    written = iter(space.decode(codes.reshape(-1, space.size), **options))
    return [
        Traversal(d, float((code[d] - center[d]) / scale[d]), [Step(float(at), next(written)) for at in places])
        for d in chosen
    ]

"""A LatentSpace whose model lives in the worker: the same methods, and the same answers, for many threads at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.latent import LatentSpace
from zentence.latent.space import Codes, Progress
from zentence.web.worker import Worker


class SharedSpace(LatentSpace):
    """Posterior means, and words that are not drawn, are shared calls; whatever is drawn has a call of its own.

    Noise is keyed by a sentence's number in its request, so drawn words must not be numbered through with others'.
    """

    def __init__(self, space: LatentSpace, worker: Worker) -> None:
        super().__init__(space.model, space.vocabulary, space.settings, space.folder)
        self.own, self.worker = space, worker  # the model's thread calls `own`
        space._has_warned = True  # answers carry their own warnings
        self._moments: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        sample: bool = False,
        seed: int = 0,
        batch_size: int = 128,
        first: int = 0,
        show_progress_bar: bool = False,
        progress: Progress | None = None,
    ) -> Codes:
        """Return codes as LatentSpace does."""
        if isinstance(sentences, str):
            code: Codes = self.encode([sentences], sample=sample, seed=seed, first=first)[0]
            return code
        if not sample and sentences:
            return np.stack(self.worker.share("encode", self.own.encode, sentences))
        given: dict[str, Any] = {"sample": sample, "seed": seed, "batch_size": batch_size, "first": first}
        codes: Codes = self.worker.alone(
            lambda: self.own.encode(sentences, show_progress_bar=show_progress_bar, progress=progress, **given)
        )
        return codes

    def grouped_codes(
        self,
        sentences: Sequence[str],
        *,
        sample: bool = False,
        perturb: float | None = None,
        seed: int = 0,
        batch_size: int = 128,
        first: int = 0,
    ) -> Codes:
        """Return the codes that `reconstruct` decodes."""
        if not sample and perturb is None:
            return self.encode(sentences)[:, None]
        given: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "first": first}
        codes: Codes = self.worker.alone(
            lambda: self.own.grouped_codes(sentences, sample=sample, perturb=perturb, **given)
        )
        return codes

    def decode(
        self,
        codes: NDArray[Any],
        *,
        batch_size: int = 256,
        first: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> list[str]:
        """Return a sentence for each code."""
        codes = self._checked(codes)
        if options.get("method", "greedy") == "sample" or len(codes) == 0:
            given: dict[str, Any] = {"batch_size": batch_size, "first": first, "progress": progress}
            written: list[str] = self.worker.alone(lambda: self.own.decode(codes, **given, **options))
            return written
        alike = {name: value for name, value in options.items() if name != "seed"}  # nothing is drawn
        key = ("decode", codes.shape[1:], *sorted(alike.items()))
        return self.worker.share(key, lambda rows: self.own.decode(np.stack(rows), **alike), codes)

    def sample(self, count: int, *, seed: int = 0, scale: float = 1.0, first: int = 0, **options: Any) -> list[str]:
        """Return new sentences."""
        if self.model.has_code:
            return super().sample(count, seed=seed, scale=scale, first=first, **options)
        given: dict[str, Any] = {"seed": seed, "first": first, **options}
        written: list[str] = self.worker.alone(lambda: self.own.sample(count, **given))
        return written

    def prior_codes(self, count: int, *, seed: int = 0, scale: float = 1.0, first: int = 0) -> Codes:
        """Return codes drawn from the prior."""
        codes: Codes = self.worker.alone(lambda: self.own.prior_codes(count, seed=seed, scale=scale, first=first))
        return codes

    def prior_moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the prior's mean and standard deviation in each dimension; asked for once."""
        if self._moments is None:
            self._moments = self.worker.alone(self.own.prior_moments)
        return self._moments

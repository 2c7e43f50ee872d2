"""What is worked out once for a corpus: maps, likelihoods, rates of dimensions; long ones in the background."""

from collections.abc import Callable
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.latent.maps import Points, principal_axes
from zentence.latent.moves import Rates, rates_by_dimension
from zentence.latent.nearest import nearest
from zentence.web.corpus import Corpus
from zentence.web.embed import Embedding
from zentence.web.requests import LikelihoodsAnswer, MapAnswer, MapMethod, Progressing
from zentence.web.space import SharedSpace
from zentence.web.worker import BusyError

RATE_SENTENCES = 2000  # whose rates order the dimensions
SCORED, SAMPLES = 8, 20  # sentences of one call in the background, and importance samples K of each
PLACED = 5  # neighbours that place a code on a t-SNE map

T = TypeVar("T")


class Later(Generic[T]):
    """A value that is worked out in a thread of its own once somebody asks for it."""

    def __init__(self, work: Callable[[Callable[[float], None]], T]) -> None:
        self._work, self._lock = work, Lock()
        self._thread: Thread | None = None
        self._done = 0.0
        self._value: T | None = None
        self._reason: str | None = None

    def ask(self) -> T | None:
        """Return the value if it is there; else see to it that it will be."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="view", daemon=True)
                self._thread.start()
        return self._value

    def state(self) -> Progressing:
        """Tell how far it is."""
        if self._value is not None:
            return Progressing(status="ready", done=1.0)
        if self._reason is not None:
            return Progressing(status="failed", reason=self._reason)
        return Progressing(status="running", done=self._done)

    def wait(self) -> T | None:
        """Return the value when it is there; None if it failed."""
        self.ask()
        if self._thread is not None:
            self._thread.join()
        return self._value

    def _run(self) -> None:
        def told(share: float) -> None:
            self._done = share

        try:
            self._value = self._work(told)
        except (ZentenceError, BusyError) as error:
            self._reason = str(error)
        except Exception as error:
            self._reason = f"it failed: {type(error).__name__}"


class Views:
    """Views of a corpus; the axes of principal components are there at once."""

    def __init__(self, space: SharedSpace, corpus: Corpus) -> None:
        self.space, self.corpus = space, corpus
        self.axes = principal_axes(corpus.codes)
        self._embedding = Embedding()
        self.tsne: Later[Points] = Later(lambda _: self._embedding.place(corpus.codes))
        self.likelihoods: Later[NDArray[np.float64]] = Later(self._score)
        self._rates: Rates | None = None

    def map(self, method: MapMethod) -> MapAnswer:
        """Return a map of the corpus, or how far it is."""
        if method == "pca":
            names = [f"component {i} ({share:.0%} of the variance)" for i, share in enumerate(self.axes.shares, 1)]
            return _map_answer(Progressing(status="ready", done=1.0), self.axes.place(self.corpus.codes), names)
        points = self.tsne.ask()
        return _map_answer(self.tsne.state(), points, ["", ""])

    def place(self, codes: NDArray[Any], method: MapMethod) -> Points:
        """Return the places [N, 2] of codes [N, D] on a map.

        t-SNE is no function of a code: there a code stands among its nearest sentences, each weighing 1 / distance.
        """
        if method == "pca":
            return self.axes.place(codes)
        points = self.tsne.ask()
        if points is None:
            raise ZentenceError("The t-SNE map is not ready")
        k = min(PLACED, len(points))
        ids, distances = nearest(self.corpus.codes, np.asarray(codes, dtype=np.float32), k, "euclidean")
        weights = 1.0 / np.maximum(distances, 1e-9)
        placed: Points = (points[ids] * weights[:, :, None]).sum(1) / weights.sum(1, keepdims=True)
        return placed

    def likelihood_answer(self) -> LikelihoodsAnswer:
        """Return log p(x) of the points, or how far they are."""
        values = self.likelihoods.ask()
        found = None if values is None else [round(float(value), 3) for value in values]
        return LikelihoodsAnswer(**self.likelihoods.state().model_dump(), values=found, samples=SAMPLES)

    def stop(self) -> None:
        """End what goes on in the background."""
        self._embedding.stop()

    def rates(self) -> Rates:
        """Return what each dimension costs on the corpus; worked out once."""
        if self._rates is None:
            texts, own = self.corpus.sentences[:RATE_SENTENCES], self.space.own
            self._rates = self.space.worker.alone(lambda: rates_by_dimension(own, texts))
        return self._rates

    def _score(self, told: Callable[[float], None]) -> NDArray[np.float64]:
        """Return −score of every point, in the background; numbered through, so as in one call."""
        texts, own = self.corpus.sentences, self.space.own
        found = np.empty(len(texts))
        for first in range(0, len(texts), SCORED):
            part = texts[first : first + SCORED]
            found[first : first + len(part)] = self.space.worker.alone(
                lambda part=part, first=first: own.score(part, samples=SAMPLES, first=first),  # type: ignore[misc]
                background=True,
            )
            told((first + len(part)) / len(texts))
        return -found


def _map_answer(state: Progressing, points: Points | None, axes: list[str]) -> MapAnswer:
    if points is None:
        return MapAnswer(**state.model_dump())
    x, y = ([round(float(value), 4) for value in column] for column in points.T)
    return MapAnswer(**state.model_dump(), x=x, y=y, axes=axes)

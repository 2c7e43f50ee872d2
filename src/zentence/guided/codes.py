"""Labelled codes: sentences of a file encoded once, in a stream, to a file of their own; batches with equal labels.

What is held in memory is a label a sentence; codes stand in a temporary file that is mapped into memory.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zentence.corpora.batching import permute
from zentence.corpora.readers import Line, display_name, read_sentences
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.noise import Noise, derive_key

On = Literal["codes", "features"]
Progress = Callable[[int], None]  # sentences done
CHUNK = 2048  # sentences encoded at once
HELD_OUT, MOST_HELD_OUT = 0.1, 2000  # of each label: share, and number, of sentences that only judge the generator


@dataclass(frozen=True)
class LabelledCodes:
    """Vectors [N, S, D] of sentences, S draws each, and the numbers [N] of their labels among `names`."""

    vectors: NDArray[np.float32]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    digest: str  # of labels and sentences

    def rows_of(self, label: int) -> NDArray[np.int64]:
        """Return the places of a label's sentences."""
        return np.flatnonzero(self.labels == label)

    def split(self, seed: int) -> "tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]":
        """Return the places of each label's sentences for training, and of those held out to judge."""
        training, held = [], []
        for label, name in enumerate(self.names):
            rows = np.random.default_rng(derive_key(seed, "held out", label)).permutation(self.rows_of(label))
            count = min(int(HELD_OUT * len(rows)), MOST_HELD_OUT)
            if count < 1:
                raise ZentenceError(f"Label '{name}' has {len(rows)} sentences only: each label needs at least 10")
            held.append(np.sort(rows[:count]))
            training.append(np.sort(rows[count:]))
        return training, held


def draws_codes(space: LatentSpace) -> bool:
    """Tell whether the model's decoder was trained on samples of q(z|x); an auto-encoder may have seen means only."""
    last = space.settings.stages[-1].objective
    return not (last.name == "autoencoder" and last.options.get("code") == "mean")


@contextmanager
def encoded(
    space: LatentSpace, path: Path, *, on: On = "codes", draws: int = 1, seed: int = 0, progress: Progress | None = None
) -> Iterator[LabelledCodes]:
    """Yield the codes of a file of `label<TAB>sentence` lines, for as long as the block lasts.

    Codes are `draws` samples z ~ q(z|x) (paper 5, Eq. 16), or posterior means where the decoder knows means only;
    `on = "features"` gives the encoder's features, one draw.
    """
    drawn = on == "codes" and draws_codes(space)
    samples = draws if drawn else 1
    size = space.size if on == "codes" else int(space.model.encoder.feature_size)
    names: dict[str, int] = {}
    labels: list[NDArray[np.int64]] = []
    digest, done = hashlib.blake2b(digest_size=16), 0
    with TemporaryDirectory(prefix="zentence-") as folder:
        file = Path(folder) / "vectors"
        with file.open("wb") as out:
            lines = read_sentences(path, "yes")
            while chunk := list(islice(lines, CHUNK)):
                labels.append(np.array([names.setdefault(line.label or "", len(names)) for line in chunk]))
                for line in chunk:
                    digest.update(f"{line.label}\t{line.text}\n".encode())
                out.write(_vectors(space, chunk, on, samples, drawn, seed, done).tobytes())
                done += len(chunk)
                if progress is not None:
                    progress(done)
        if len(names) < 2:
            raise ZentenceError(
                f"{display_name(path)} has one class only ('{next(iter(names))}'): label control needs two labels"
            )
        order = sorted(names)
        rank = np.argsort(np.argsort([*names]))  # places of first appearance → places in the alphabet
        vectors = np.memmap(file, dtype=np.float32, mode="r", shape=(done, samples, size))
        yield LabelledCodes(vectors, rank[np.concatenate(labels)], tuple(order), digest.hexdigest())
        del vectors


@torch.no_grad()
def _vectors(
    space: LatentSpace, chunk: list[Line], on: On, samples: int, drawn: bool, seed: int, first: int
) -> NDArray[np.float32]:
    """Return codes or features [N, S, D] of sentences, the first of which is number `first` of its file."""
    texts = [line.text for line in chunk]
    if on == "features":
        return space.features(texts)[:, None]
    if not drawn:
        return space.encode(texts, first=first)[:, None]
    found = np.empty((len(texts), samples, space.size), dtype=np.float32)
    for places, q, numbers in space.posteriors(texts, first=first):
        z, _ = q.rsample_and_log_prob(samples, Noise(derive_key(seed, "label control, codes"), numbers))
        found[places] = z.transpose(0, 1).float().cpu().numpy()
    return found


class CodeBatch(NamedTuple):
    """Vectors [B, D] and the numbers [B] of their labels; `index` numbers the rows of the batch."""

    vectors: Tensor
    labels: Tensor
    index: Tensor  # type: ignore[assignment]
    weight: float = 1.0

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.vectors)

    def to(self, device: torch.device) -> "CodeBatch":
        """Return the same batch on a device."""
        vectors, labels, index = (tensor.to(device) for tensor in self[:3])
        return CodeBatch(vectors, labels, index, self.weight)


class BalancedBatches:
    """Batches with as many rows of each label, whatever their shares of the text: rare labels come round more often.

    A label's sentences are walked through pass after pass, each in an order of its own, and each pass takes the next
    of the S draws. A pass of the loop has as many batches as go into the sentences.
    """

    def __init__(self, codes: LabelledCodes, rows: list[NDArray[np.int64]], size: int, seed: int) -> None:
        self.codes, self.rows, self.seed = codes, rows, seed
        self.each = max(1, size // len(rows))  # rows of a label in a batch
        self.length = max(1, sum(len(found) for found in rows) // (self.each * len(rows)))

    def __len__(self) -> int:
        return self.length

    def batch(self, epoch: int, position: int) -> CodeBatch:
        """Return the batch at a position of a pass."""
        first = (epoch * self.length + position) * self.each
        vectors = [self._of_label(label, first) for label in range(len(self.rows))]
        labels = torch.arange(len(self.rows)).repeat_interleave(self.each)
        return CodeBatch(torch.from_numpy(np.concatenate(vectors)), labels, torch.arange(len(labels)))

    def _of_label(self, label: int, first: int) -> NDArray[np.float32]:
        rows = self.rows[label]
        passes, places = np.divmod(np.arange(first, first + self.each), len(rows))
        keys = np.array([derive_key(self.seed, "codes", label, int(number)) for number in passes], dtype=np.uint64)
        chosen = rows[permute(places, np.full(self.each, len(rows)), keys)]
        found: NDArray[np.float32] = self.codes.vectors[chosen, passes % self.codes.vectors.shape[1]]
        return found

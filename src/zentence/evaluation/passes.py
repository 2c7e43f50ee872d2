"""What groups that write or compare sentences share: a split in batches, as text, and the codes of its sentences.

Everything here runs whole on the process that calls it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zentence.corpora import TokenStore, stored_batch
from zentence.decoders.generation import Generation, generate
from zentence.evaluation.subject import Subject
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.types import Batch, LatentDistribution

SENTENCES = (
    10_000  # of a split, from its beginning: what is written or compared sentence by sentence has enough of them
)
ROWS = 128  # sentences computed at once
EXTRA_WORDS = 20  # that a written sentence may have beyond the longest of the split


def considered(subject: Subject) -> int:
    """Return how many sentences of the split, from its beginning, are written or compared."""
    return min(subject.count, SENTENCES)


def batches(subject: Subject, what: str) -> Iterator[Batch]:
    """Yield the considered sentences in batches of similar length, on the model's device; `what` names the progress."""
    order, done = np.asarray(subject.store.order), 0
    order = order[order < considered(subject)]
    for first in range(0, len(order), ROWS):
        chosen = order[first : first + ROWS]
        yield stored_batch(subject.store, chosen).to(subject.device)
        done += len(chosen)
        subject.progress(what, done, len(order))


def texts(subject: Subject, store: TokenStore, count: int | None = None) -> Iterator[str]:
    """Yield sentences of a store of the subject's vocabulary as text, where unknown words are the word `<unk>`."""
    for number in range(len(store) if count is None else count):
        yield subject.vocabulary.decode(store.sentence(number))


def most_words(subject: Subject) -> int:
    """Return the length at which a written sentence is cut: some words beyond the longest of the whole split."""
    return min(max(len(subject.store.length_counts) - 1, 0) + EXTRA_WORDS, 10_000)


def draw(q: LatentDistribution, model: LatentLM, index: Tensor, seed: int, what: str) -> Tensor:
    """Return the code, or the L codes whose states are averaged, of each sentence [L, B, D], keyed by its number."""
    return q.rsample_and_log_prob(model.averaged_codes, Noise(derive_key(seed, what), index))[0]


def write(subject: Subject, z: Tensor | None, index: Tensor, method: str) -> list[str]:
    """Return a sentence for each of the codes [S, B, D], whose states are averaged, or without a code."""
    options = Generation(
        method="greedy" if method == "greedy" else "sample",
        max_words=most_words(subject),
        seed=derive_key(subject.seed, "words"),
    )
    return [subject.vocabulary.decode(row) for row in generate(subject.model.decoder, z, len(index), options, index)]


class Encoded(NamedTuple):
    """Codes of the considered sentences in the split's order, on the CPU."""

    features: Tensor  # [N, H], from which the posterior is made again
    centers: Tensor  # [N, D]
    codes: Tensor  # [N, L, D] samples


@torch.no_grad()
def encode_split(subject: Subject, what: str) -> Encoded:
    """Encode the considered sentences; `what` names the progress and keys the samples."""
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for batch in batches(subject, what):
        features = subject.model.encoder(batch.source)
        q = subject.model.posterior(features)
        codes = draw(q, subject.model, batch.index, subject.seed, what).transpose(0, 1)
        parts.append((batch.index.cpu(), features.cpu(), q.center.cpu(), codes.cpu()))
    back = torch.argsort(torch.cat([part[0] for part in parts]))
    return Encoded(*(torch.cat([part[k] for part in parts])[back] for k in (1, 2, 3)))

"""Two judges of style, trained on text that no generator has seen: one reads sentences, the other counts n-grams."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zentence.corpora.store import TokenStore
from zentence.noise import Noise, derive_key, scramble

BUCKETS = 1 << 16  # n-grams share weights by a hash
ORDERS = 3
MOST_WORDS = 60  # of a sentence that are read
FEWEST, MOST = 40, 20_000  # sentences of each kind that classifiers are trained and tested on
TEST_SHARE = 0.2
EPOCHS, FEWEST_UPDATES = 6, 120  # passes over the training sentences; more, where so many give fewer updates
_BATCH = 64
Ids = NDArray[np.int64]


class SequenceClassifier(nn.Module):
    """Word embeddings and a bidirectional GRU, its states pooled by their maximum: log-odds of the style."""

    def __init__(self, vocabulary_size: int, embedding_size: int = 48, hidden_size: int = 48) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, embedding_size)
        self.recurrence = nn.GRU(embedding_size, hidden_size, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * hidden_size, 1)

    def forward(self, sentences: Sequence[Ids]) -> Tensor:
        """Return log-odds [B]."""
        width = max(1, *(min(len(ids), MOST_WORDS) for ids in sentences))
        padded = np.zeros((len(sentences), width), dtype=np.int64)
        for row, ids in zip(padded, sentences, strict=True):
            row[: len(ids)] = ids[:width]
        read = torch.from_numpy(padded).to(self.output.weight.device)
        states, _ = self.recurrence(nn.functional.dropout(self.embedding(read), 0.2, self.training))
        pooled = states.masked_fill((read == 0)[:, :, None], -1.0).amax(1)  # -1 is below every state
        odds: Tensor = self.output(pooled).squeeze(1)
        return odds


class NgramClassifier(nn.Module):
    """Logistic regression on which 1- to 3-grams a sentence has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.EmbeddingBag(BUCKETS, 1, mode="sum")
        self.bias = nn.Parameter(torch.zeros(1))
        nn.init.zeros_(self.weight.weight)

    def forward(self, sentences: Sequence[Ids]) -> Tensor:
        """Return log-odds [B]: the mean weight of a sentence's n-grams, times the root of their number, and a bias."""
        grams = [_ngrams(ids[:MOST_WORDS]) for ids in sentences]
        sizes = torch.tensor([len(row) for row in grams])
        starts = torch.cumsum(sizes, 0) - sizes
        device = self.bias.device
        sums = self.weight(torch.cat(grams).to(device), starts.to(device)).squeeze(1)
        odds: Tensor = sums / sizes.clamp(min=1).to(device).sqrt() + self.bias
        return odds


def _ngrams(ids: Ids) -> Tensor:
    """Return the buckets of the distinct n-grams of a sentence."""
    words, found = torch.from_numpy(ids), []
    for order in range(1, ORDERS + 1):
        if len(ids) >= order:
            value = torch.full((len(ids) - order + 1,), order, dtype=torch.int64)
            for place in range(order):
                value = scramble(value * 31 + words[place : len(ids) - order + 1 + place])
            found.append(value % BUCKETS)
    return torch.unique(torch.cat(found)) if found else torch.zeros(0, dtype=torch.int64)


class Judges(nn.Module):
    """Both classifiers; a score is the probability that a sentence is of the style."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.neural, self.ngram = SequenceClassifier(vocabulary_size), NgramClassifier()

    @torch.no_grad()
    def scores(self, sentences: Sequence[Ids]) -> dict[str, NDArray[np.float64]]:
        """Return each judge's probabilities [N] that sentences (ids) are of the style; an empty one has 0."""
        result = {name: np.zeros(len(sentences)) for name in ("neural", "ngram")}
        places = sorted((n for n in range(len(sentences)) if len(sentences[n])), key=lambda n: len(sentences[n]))
        for first in range(0, len(places), 256):
            chosen = places[first : first + 256]
            for name, values in result.items():
                odds = getattr(self, name)([sentences[n] for n in chosen])
                values[chosen] = torch.sigmoid(odds.double()).cpu().numpy()
        return result


class Judged(NamedTuple):
    """Judges, and what is known of them: sentences of each kind they saw, accuracy on sentences they did not see."""

    judges: Judges
    record: dict[str, Any]


def train_judges(
    style: TokenStore,
    plain: TokenStore,
    vocabulary_size: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Judged | None:
    """Train both on equally many sentences of the style and of plain text; none where either has too few."""
    count = min(len(style), len(plain), MOST)
    if count < FEWEST:
        return None
    sentences = _draw(style, count, seed, "style") + _draw(plain, count, seed, "plain")
    truth = torch.cat((torch.ones(count), torch.zeros(count)))
    order = Noise(derive_key(seed, "test"), torch.arange(2 * count)).uniform(1)[:, 0].argsort().tolist()
    test, train = order[: int(2 * count * TEST_SHARE)], order[int(2 * count * TEST_SHARE) :]
    torch.manual_seed(derive_key(seed, "judges"))
    judges = Judges(vocabulary_size)
    epochs = max(EPOCHS, -(-FEWEST_UPDATES * _BATCH // len(train)))
    optimizer = torch.optim.AdamW(
        [
            {"params": judges.neural.parameters(), "lr": 2e-3, "weight_decay": 1e-2},
            {"params": judges.ngram.parameters(), "lr": 2e-2, "weight_decay": 1e-2},
        ]
    )
    for epoch in range(epochs):
        shuffled = Noise(derive_key(seed, "epoch", epoch), torch.tensor(train)).uniform(1)[:, 0].argsort()
        rows = [train[n] for n in shuffled.tolist()]
        for first in range(0, len(rows), _BATCH):
            chosen = rows[first : first + _BATCH]
            given = [sentences[n] for n in chosen]
            target = truth[chosen]
            odds = (judges.neural(given), judges.ngram(given))
            loss = torch.stack([nn.functional.binary_cross_entropy_with_logits(o, target) for o in odds]).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if progress is not None:
                progress(epoch * len(rows) + first + len(chosen), epochs * len(rows))
    judges.eval()
    found = judges.scores([sentences[n] for n in test])
    right = {name: float(((s > 0.5) == truth[test].numpy().astype(bool)).mean()) for name, s in found.items()}
    return Judged(judges, {"sentences": len(train), "test_sentences": len(test), "accuracy": right, "seed": seed})


def _draw(store: TokenStore, count: int, seed: int, name: str) -> list[Ids]:
    """Return some sentences of a store, evenly spread and in an order of their own."""
    places = np.linspace(0, len(store) - 1, count).astype(np.int64)
    order = Noise(derive_key(seed, "draw", name), torch.from_numpy(places)).uniform(1)[:, 0].argsort()
    return [store.sentence(int(places[n])) for n in order.tolist()]

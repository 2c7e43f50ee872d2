"""Fine-tuning for understanding (paper 5, §5.3 and §6.3): encoder and linear head trained together on labels."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from zentence.corpora import collate
from zentence.corpora.store import Limit
from zentence.errors import ZentenceError
from zentence.files import write_atomically
from zentence.noise import Noise, derive_key
from zentence.parts import Options, Part
from zentence.tasks.scores import Values
from zentence.tasks.subjects import Subject
from zentence.training.fit import WEIGHTS, FitSettings, fit
from zentence.types import Batch, Terms, Tokens

WINDOW = 50  # batches whose examples are sorted by length together
VALIDATIONS = 10  # in a run
Progress = Callable[[str, int, int], None]  # what, done, total


class TuneSettings(Options):
    """How long and how fast encoder and head are trained."""

    learning_rate: float = Field(3e-5, gt=0.0, description="Highest learning rate; rises for a tenth, falls to 0.")
    epochs: float = Field(100.0, gt=0.0, description="Passes over the labelled examples.")
    max_steps: int | None = Field(None, ge=1, description="Updates at most, whatever the passes; none: no limit.")
    batch: int = Field(32, ge=1, description="Examples in an update.")


@dataclass(frozen=True)
class TokenExamples:
    """Examples as token ids, the second sentences of pairs, and targets [N]: numbers of classes, or values."""

    first: list[NDArray[np.int64]]
    second: list[NDArray[np.int64]] | None
    targets: Values

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """Return examples as a batch: pairs have their second sentences in `context`, targets are `labels`."""
        first = collate([self.first[i] for i in rows], rows, total=len(rows))
        context = None if self.second is None else collate([self.second[i] for i in rows], rows).source
        return first._replace(labels=torch.from_numpy(self.targets[rows]), context=context)

    def take(self, rows: NDArray[np.int64]) -> "TokenExamples":
        """Return some of the examples."""
        second = None if self.second is None else [self.second[i] for i in rows]
        return TokenExamples([self.first[i] for i in rows], second, self.targets[rows])


def tokens_of(subject: Subject, texts: list[str]) -> list[NDArray[np.int64]]:
    """Return the token ids of texts as a subject's encoder reads them: normalised, and cut to its limit."""
    limit = subject.space.max_words
    written = [subject.normalise(text) for text in texts]
    if limit is not None:
        written = [Limit(limit, drop=False).cut(text) or text for text in written]
    vocabulary = subject.space.vocabulary
    return (vocabulary.encoder or vocabulary).encode_batch(written)


class ExampleBatches:
    """Batches of examples of similar length, shuffled anew in each pass; any can be made directly."""

    def __init__(self, examples: TokenExamples, size: int, seed: int) -> None:
        self.examples, self.size, self.seed = examples, size, seed
        self.lengths = np.array([len(row) for row in examples.first])
        self._pass: tuple[int, list[NDArray[np.int64]]] | None = None

    def __len__(self) -> int:
        return -(-len(self.examples) // self.size)

    def batch(self, epoch: int, position: int) -> Batch:
        """Return the batch at a position of a pass."""
        if self._pass is None or self._pass[0] != epoch:
            self._pass = epoch, list(self._order(epoch))
        rows = self._pass[1][position]
        weight = len(rows) * len(self) / len(self.examples)
        return self.examples.batch(rows)._replace(weight=weight)

    def _order(self, epoch: int) -> Iterator[NDArray[np.int64]]:
        random = np.random.default_rng(derive_key(self.seed, "examples", epoch))
        order = random.permutation(len(self.examples))
        batches = []
        for start in range(0, len(order), WINDOW * self.size):
            window = order[start : start + WINDOW * self.size]
            window = window[np.argsort(self.lengths[window], kind="stable")]
            batches += [window[at : at + self.size] for at in range(0, len(window), self.size)]
        for place in random.permutation(len(batches)):
            yield batches[place]


class TunedReader(nn.Module):
    """A copy of a model's encoder (and of what makes codes of its features) with a linear head; the decoder stays out.

    Pairs are read as [u, v, |u − v|, u∘v]. With `classes` = 0 the head gives one number, in standard deviations of
    the training targets from their mean.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, subject: Subject, classes: int, targets: Values, is_pair: bool, seed: int) -> None:
        super().__init__()
        model = subject.space.model
        self.encoder = copy.deepcopy(model.encoder)
        self.posterior = copy.deepcopy(model.posterior) if subject.kind == "code" else None
        self.head = nn.Linear(subject.size * (4 if is_pair else 1), classes or 1)
        self.classes = classes
        generator = torch.Generator().manual_seed(derive_key(seed, "head") % 2**63)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(self.head.weight.shape, generator=generator) * 0.02)
            self.head.bias.zero_()
        known = (0.0, 1.0) if classes else (float(np.mean(targets)), float(np.std(targets)) or 1.0)
        self.register_buffer("mean", torch.tensor(known[0]))
        self.register_buffer("spread", torch.tensor(known[1]))
        for parameter in self.parameters():
            parameter.requires_grad_(True)
        self.to(subject.space.device)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits [B, classes], or standardised values [B, 1]."""
        u = self._read(batch.source)
        if batch.context is None:
            return self._head(u)
        v = self._read(batch.context)
        return self._head(torch.cat((u, v, (u - v).abs(), u * v), 1))

    def _head(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(x)
        return found

    def _read(self, source: Tokens) -> Tensor:
        features: Tensor = self.encoder(source)
        if self.posterior is None:
            return features
        center: Tensor = self.posterior(features).center
        return center

    def losses(self, batch: Batch) -> Tensor:
        """Return −log p(class), or half the squared error of the standardised value, [B]."""
        assert batch.labels is not None
        found = self(batch)
        if self.classes:
            return nn.functional.cross_entropy(found, batch.labels, reduction="none")
        wanted: Tensor = (batch.labels.to(found.dtype) - self.mean) / self.spread
        return 0.5 * nn.functional.mse_loss(found[:, 0], wanted, reduction="none")

    @torch.no_grad()
    def predict(self, examples: TokenExamples, size: int = 128) -> Values:
        """Return classes or values [N]."""
        self.eval()
        parts = np.empty(len(examples), dtype=np.int64 if self.classes else np.float64)
        for rows in _by_length(examples, size):
            found = self(examples.batch(rows).to(self.mean.device))
            value = found.argmax(1) if self.classes else found[:, 0].double() * self.spread + self.mean
            parts[rows] = value.cpu().numpy()
        return parts

    @torch.no_grad()
    def mean_loss(self, examples: TokenExamples, size: int = 128) -> float:
        """Return the mean loss, in evaluation mode."""
        batches = (examples.batch(rows).to(self.mean.device) for rows in _by_length(examples, size))
        return float(sum(float(self.losses(batch).sum()) for batch in batches)) / len(examples)


def _by_length(examples: TokenExamples, size: int) -> Iterator[NDArray[np.int64]]:
    order = np.argsort([len(row) for row in examples.first], kind="stable")
    for start in range(0, len(order), size):
        yield order[start : start + size]


class TuneTrainable(nn.Module):
    """A reader as the loop trains it; the loss on held-out examples selects its weights."""

    selection = "loss"

    def __init__(self, model: TunedReader) -> None:
        super().__init__()
        self.model = model

    def module(self) -> nn.Module:
        """Return the module that holds all state."""
        return self

    def forward(self, batch: Batch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return the mean loss of a batch."""
        losses = self.model.losses(batch)
        return Terms(losses.mean(), {"nll": losses.detach()})

    def after_update(self, terms: Terms) -> None:
        """Nothing moves but what the optimiser moves."""


def tune(
    subject: Subject,
    train: TokenExamples,
    held: TokenExamples | None,
    *,
    classes: int,
    settings: TuneSettings,
    folder: Path,
    fingerprint: dict[str, Any],
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    told: Callable[[int, int], None] | None = None,
) -> TunedReader:
    """Return encoder and head, trained on `train`; the best of ten validations on `held`, or on `train` without it."""
    reader = TunedReader(subject, classes, train.targets, train.second is not None, seed)
    batches = ExampleBatches(train, settings.batch, seed)
    passes = max(1, round(settings.epochs * len(batches)))
    steps = passes if settings.max_steps is None else min(passes, settings.max_steps)
    judged = held if held is not None else train
    fit(
        "finetune",
        TuneTrainable(reader),
        batches,
        settings=FitSettings(
            steps=steps,
            learning_rate=settings.learning_rate,
            schedule=Part.model_validate({"name": "warmup", "warmup_share": 0.1}),
            weight_decay=0.01,
            clip=1.0,
            seed=seed,
            validate_every=-(-steps // VALIDATIONS),
        ),
        folder=folder,
        fingerprint=fingerprint,
        validate=lambda: {"loss": reader.mean_loss(judged)},
        resume=resume,
        overwrite=overwrite,
        callbacks=[lambda event: told(event["update"], event["steps"]) if told and event["event"] == "step" else None],
    )
    reader.eval()
    return reader


def once(
    folder: Path, fingerprint: dict[str, Any], resume: bool, overwrite: bool, work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return the result of some work in a folder: that of an earlier run, if it is resumed, or of `work` now.

    A finished run keeps its result and its log; its weights go, because there are many of them.
    """
    path = folder / "result.json"
    if overwrite:
        path.unlink(missing_ok=True)
    if resume and path.is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            before, result = content["fingerprint"], content["result"]
        except (OSError, ValueError, KeyError, TypeError):
            raise ZentenceError(f"{path} is damaged: start anew with --overwrite") from None
        if before != json.loads(json.dumps(fingerprint)):
            raise ZentenceError(
                f"{path} is the result of another run: start anew with --overwrite, or in another --out"
            )
        known: dict[str, Any] = result
        return known
    result = work()
    write_atomically(path, json.dumps({"fingerprint": fingerprint, "result": result}, indent=1) + "\n")
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    (folder / WEIGHTS).unlink(missing_ok=True)
    return result


def hold_out(y: Values, share: float, most: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to train on and those held out: a share of each class, at most `most` in all.

    If a class is too small to hold out one and keep four, nothing is held out. Values are all of one class.
    """
    classes = y if y.dtype.kind == "i" else np.zeros(len(y), dtype=np.int64)
    random = np.random.default_rng(derive_key(seed, "hold out"))
    share = min(share, most / len(y))
    held: list[NDArray[np.int64]] = []
    for label in np.unique(classes):
        rows = random.permutation(np.flatnonzero(classes == label))
        if len(rows) < 5:
            return np.arange(len(y)), np.zeros(0, dtype=np.int64)
        held.append(rows[: max(1, round(share * len(rows)))])
    chosen = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(y)), chosen), chosen

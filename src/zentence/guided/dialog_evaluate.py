"""A dialog model measured on dialogues it has not seen: BLEU precision, recall and F1, and how much style there is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zentence.corpora.dialogues import DialogueStats, read_dialogues
from zentence.errors import ZentenceError
from zentence.guided.dialog_metrics import ResponseScores, score_responses
from zentence.guided.dialog_space import WORDS, DialogSpace

_CHUNK = 32  # contexts answered together


class Exchange(NamedTuple):
    """A context, its turns in order, and what was said then."""

    context: tuple[str, ...]
    response: str


@dataclass
class Answered:
    """What a model answered: its scores, and each judge's mean style score of its responses."""

    model: str
    objective: str
    radius: float
    method: str
    strength: float
    scores: ResponseScores
    style: dict[str, float] | None
    examples: list[list[str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return {
            "model": self.model,
            "objective": self.objective,
            "radius": self.radius,
            "method": self.method,
            "strength": self.strength,
            **self.scores.to_dict(),
            "style": self.style,
        }


@dataclass
class Evaluation:
    """One row for each model and strength, on the same contexts."""

    rows: list[Answered]
    exchanges: list[Exchange]  # those that examples are shown of
    real_style: dict[str, float] | None  # each judge's mean score of the real responses
    seed: int

    def differences(self) -> list[dict[str, Any]]:
        """Return F1 of each row beyond the first minus that of the first, with the paired standard error."""
        first = self.rows[0]
        found = []
        for row in self.rows[1:]:
            influence = row.scores.f1_influence() - first.scores.f1_influence()
            error = float(influence.std(ddof=1) / len(influence) ** 0.5) if len(influence) > 1 else None
            found.append({"f1": row.scores.f1 - first.scores.f1, "error": error})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        examples = [
            {
                "context": list(exchange.context),
                "said": exchange.response,
                "responses": [r.examples[n] for r in self.rows],
            }
            for n, exchange in enumerate(self.exchanges)
        ]
        return {
            "task": "dialog",
            "metric": "sentence BLEU, n ≤ 3, smoothing 7",
            "seed": self.seed,
            "rows": [row.to_dict() for row in self.rows],
            "against_first": self.differences(),
            "real_style": self.real_style,
            "examples": examples,
        }


def count_responses(path: Path) -> int:
    """Return the number of responses in a file of dialogues."""
    stats = DialogueStats()
    for _ in read_dialogues(path, stats=stats):
        pass
    return stats.responses


def read_exchanges(path: Path, turns: int, limit: int | None = None) -> Iterator[Exchange]:
    """Yield the responses of a file with at most `turns` turns before each; with a limit, evenly spread over it."""
    total = count_responses(path)
    wanted = None if limit is None or limit >= total else set(np.linspace(0, total - 1, limit).astype(int).tolist())
    number = 0
    for dialogue in read_dialogues(path):
        for place in range(dialogue.first_response, len(dialogue.turns)):
            if wanted is None or number in wanted:
                yield Exchange(dialogue.turns[max(0, place - turns) : place], dialogue.turns[place])
            number += 1


def evaluate_dialog(
    models: Sequence[tuple[str, DialogSpace]],
    path: Path,
    *,
    responses: int = 10,
    limit: int | None = None,
    radius: float | None = None,
    around: str = "scatter",
    strengths: Sequence[float] = (0.0,),
    towards: str = "mean",
    examples: int = 3,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **words: Any,
) -> Evaluation:
    """Let models answer each context of a file, at each strength of the style if they have one, and score them.

    `radius` and `words` hold for all models; where they are not given, each has its own defaults.
    """
    turns = max(model.options.turns for _, model in models)
    plans = [
        (name, model, strength)
        for name, model in models
        for strength in (strengths if model.style is not None else (0.0,))
    ]
    if len(plans) == len(models) and any(strengths):
        raise ZentenceError("This model has learnt no style: train it with --style, or leave --strength at 0")
    tallies = [_Tally(model, examples) for _, model, _ in plans]
    kept: list[Exchange] = []
    real: dict[str, list[float]] = {}
    stream, done = read_exchanges(path, turns, limit), 0
    while chunk := list(islice(stream, _CHUNK)):
        kept += chunk[: max(0, examples - len(kept))]
        for (_, model, strength), tally in zip(plans, tallies, strict=True):
            contexts = [exchange.context for exchange in chunk]
            moves: dict[str, Any] = {"radius": radius, "around": around, "strength": strength, "towards": towards}
            tally.add(chunk, model.respond(contexts, responses, seed=seed, first=done, **moves, **words))
        if (judge := next((m for _, m in models if m.judges is not None), None)) is not None:
            for name, values in judge.style_scores([exchange.response for exchange in chunk]).items():
                real.setdefault(name, []).extend(values.tolist())
        done += len(chunk)
        if progress is not None:
            progress(done)
    rows = [
        tally.answered(name, strength, radius, words.get("method"))
        for (name, _, strength), tally in zip(plans, tallies, strict=True)
    ]
    means = {name: float(np.mean(values)) for name, values in real.items()}
    return Evaluation(rows, kept, means or None, seed)


class _Tally:
    """The scores of one model at one strength, chunk by chunk."""

    def __init__(self, model: DialogSpace, examples: int) -> None:
        self.model, self.wanted = model, examples
        self.scores: list[ResponseScores] = []
        self.style: dict[str, list[float]] = {}
        self.examples: list[list[str]] = []

    def add(self, chunk: Sequence[Exchange], written: list[list[str]]) -> None:
        """Score the responses to some contexts."""
        self.scores.append(score_responses([self.model.text(exchange.response) for exchange in chunk], written))
        self.examples += written[: max(0, self.wanted - len(self.examples))]
        if self.model.judges is not None:
            everything = [text for row in written for text in row]
            for name, values in self.model.style_scores(everything).items():
                self.style.setdefault(name, []).append(float(values.sum()))

    def answered(self, name: str, strength: float, radius: float | None, method: str | None) -> Answered:
        """Return the whole."""
        scores = ResponseScores(
            np.concatenate([part.bleu for part in self.scores]), np.concatenate([part.distinct for part in self.scores])
        )
        style = {judge: sum(values) / scores.bleu.size for judge, values in self.style.items()}
        return Answered(
            name,
            self.model.options.objective,
            self.model.radius if radius is None else radius,
            method or WORDS["method"],
            strength,
            scores,
            style or None,
            self.examples,
        )

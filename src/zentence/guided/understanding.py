"""Few labels, and GLUE, with fine-tuned encoders: every run resumes, and none looks at what it is tested on."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from zentence.guided.finetune import Progress, TokenExamples, TuneSettings, hold_out, once, tokens_of, tune
from zentence.latent.streams import model_identity
from zentence.noise import derive_key
from zentence.parts import plain
from zentence.tasks.classify import Accuracy, Study, Trial, numbers_of
from zentence.tasks.glue import Examples
from zentence.tasks.glue_scores import GlueData, GlueScore, scored
from zentence.tasks.scores import SCORES
from zentence.tasks.subjects import TUNED, Subject
from zentence.tasks.understand import Curve

HELD_FEW = 0.2  # of the labels, where each class has five
HELD_GLUE, MOST_HELD = 0.1, 2000  # of a task's training examples
TRANSFORMER_RATES = (2e-5, 3e-5, 4e-5, 5e-5)  # paper 5, §6.3
OTHER_RATES = (5e-4, 1e-3, 2e-3)  # networks from scratch with far fewer weights
GLUE_EPOCHS = 3.0


def learning_rates(subject: Subject) -> tuple[float, ...]:
    """Return the learning rates to choose from: the paper's for a transformer."""
    return TRANSFORMER_RATES if subject.space.settings.encoder.name == "transformer" else OTHER_RATES


def tuned_curve(
    study: Study,
    subject: Subject,
    settings: TuneSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Curve:
    """Return a subject's curve: encoder and head trained on each trial's sentences, tested on all test sentences.

    A fifth of a trial's labels selects among its weights where each class has five or more; otherwise its training
    loss does.
    """
    return _Tuned(study, subject, settings, folder, resume, overwrite, progress).curve()


class _Tuned:
    """The runs of one subject."""

    def __init__(
        self,
        study: Study,
        subject: Subject,
        settings: TuneSettings,
        folder: Path,
        resume: bool,
        overwrite: bool,
        progress: Progress | None,
    ) -> None:
        self.study, self.subject, self.settings, self.folder = study, subject, settings, folder / _slug(subject.title)
        self.resume, self.overwrite, self.progress = resume, overwrite, progress
        self.y = numbers_of(study.train, study.classes)
        self.place = {int(row): place for place, row in enumerate(study.used)}
        self.tokens = tokens_of(subject, [study.train.texts[i] for i in study.used])
        test_y = numbers_of(study.test, study.classes)
        self.test = TokenExamples(tokens_of(subject, study.test.texts), None, test_y)
        self.common = {
            "model": model_identity(subject.space),
            "kind": subject.kind,
            "classes": list(study.classes),
            "test": _digest(study.test.texts, study.test.labels),
            "tuning": plain(settings),
        }

    def curve(self) -> Curve:
        """Return the accuracies by number of labels."""
        values: dict[int, list[float]] = {}
        for trial in self.study.trials:
            runs = values.setdefault(trial.labels, [])
            runs.append(self._accuracy(trial, len(runs)))
        found = {labels: Accuracy(tuple(runs)) for labels, runs in values.items()}
        return Curve(self.subject.title, TUNED, self.subject.size, found)

    def _accuracy(self, trial: Trial, run: int) -> float:
        folder = self.folder / f"{trial.labels}-labels-run-{run}"
        texts = [self.study.train.texts[i] for i in trial.rows]
        fingerprint = {**self.common, "train": _digest(texts, self.y[trial.rows].tolist()), "seed": trial.seed}

        def work() -> dict[str, Any]:
            examples = TokenExamples([self.tokens[self.place[int(i)]] for i in trial.rows], None, self.y[trial.rows])
            kept, held = hold_out(examples.targets, HELD_FEW, len(examples), trial.seed)
            what = f"{self.subject.title}, {trial.labels:,} labels a class, run {run + 1}"
            reader = tune(
                self.subject,
                examples.take(kept),
                examples.take(held) if len(held) else None,
                classes=len(self.study.classes),
                settings=self.settings,
                folder=folder,
                fingerprint=fingerprint,
                seed=trial.seed % 2**31,
                resume=self.resume,
                overwrite=self.overwrite,
                told=_told(self.progress, what),
            )
            return {"accuracy": float((reader.predict(self.test) == self.test.targets).mean())}

        return float(once(folder, fingerprint, self.resume, self.overwrite, work)["accuracy"])


def score_tuned(
    data: GlueData,
    subject: Subject,
    settings: TuneSettings,
    rates: Sequence[float],
    folder: Path,
    *,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[GlueScore]:
    """Return a task's scores with a fine-tuned encoder: a run for each learning rate, of which the one that is best on
    a held-out tenth of the training examples counts. (The paper takes the best on dev.)
    """
    began, task = monotonic(), data.task
    examples = _tokens(subject, data.train)
    kept, held = hold_out(examples.targets, HELD_GLUE, MOST_HELD, derive_key(seed, task.name))
    judged = examples.take(held if len(held) else kept)
    common = {
        "model": model_identity(subject.space),
        "kind": subject.kind,
        "task": task.name,
        "train": _digest(data.train.first, data.train.second or [], data.train.targets.tolist()),
        "seed": seed,
    }
    found: dict[float, dict[str, Any]] = {}
    for rate in rates:
        chosen = settings.model_copy(update={"learning_rate": rate})
        place = folder / task.name / _slug(subject.title) / f"rate-{rate:g}"
        fingerprint = {**common, "tuning": plain(chosen)}

        def work(
            rate: float = rate, chosen: TuneSettings = chosen, place: Path = place, said: dict[str, Any] = fingerprint
        ) -> dict[str, Any]:
            reader = tune(
                subject,
                examples.take(kept),
                judged if len(held) else None,
                classes=len(task.classes),
                settings=chosen,
                folder=place,
                fingerprint=said,
                seed=derive_key(seed, "glue", task.name) % 2**31,
                resume=resume,
                overwrite=overwrite,
                told=_told(progress, f"{task.name}, {subject.title}, learning rate {rate:g}"),
            )
            score = SCORES[task.scores[0]](reader.predict(judged), judged.targets)
            dev = {split: reader.predict(_tokens(subject, part)).tolist() for split, part in data.dev.items()}
            return {"held_out": score, "predictions": dev}

        found[rate] = once(place, fingerprint, resume, overwrite, work)
    best = max(found, key=lambda rate: found[rate]["held_out"])
    predictions = {split: np.array(values) for split, values in found[best]["predictions"].items()}
    said = {"learning_rate": best, "held_out": {f"{rate:g}": one["held_out"] for rate, one in found.items()}}
    seconds = monotonic() - began
    return scored(data, subject, TUNED, predictions, seed=seed, seconds=seconds, chosen=said)


def _tokens(subject: Subject, examples: Examples) -> TokenExamples:
    second = None if examples.second is None else tokens_of(subject, examples.second)
    return TokenExamples(tokens_of(subject, examples.first), second, examples.targets)


def _told(progress: Progress | None, what: str) -> Any:
    return None if progress is None else lambda done, total: progress(what, done, total)


def _slug(title: str) -> str:
    """Return a title as a folder's name."""
    return re.sub(r"[^\w.-]+", "-", title).strip("-.") or "model"


def _digest(*lists: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for values in lists:
        for value in values:
            digest.update(f"{value}\n".encode())
        digest.update(b"\0")
    return digest.hexdigest()

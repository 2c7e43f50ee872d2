"""Do the recorded figures of a run hold? They are computed again and compared, one by one.

A figure is computed again from the run's own weights on the same text with the same seed and samples, and must then
agree to a relative 1e-4: noise is keyed by seed and sentence, so nothing else is random. With another seed, a figure
other than an exact one must agree within 4 standard errors; on the first sentences only (`limit`), with the recorded
per-sentence figures of those sentences where there are any, else within 4 standard errors as well.
A figure that cannot be checked (its text is not at hand or has changed, its metric is defined otherwise now) is said
to be unchecked, never to hold.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from zentence.corpora import TokenStore, Vocabulary
from zentence.corpora.prepare import Corpus, open_split, prepare
from zentence.corpora.readers import is_stream, open_file
from zentence.corpora.source import Origin, source_nll
from zentence.errors import ZentenceError, suggestion
from zentence.evaluation.columns import METHOD
from zentence.evaluation.measurement import Measurement
from zentence.evaluation.metrics import METRICS
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.runs import Run
from zentence.evaluation.subject import Progress, Subject
from zentence.evaluation.suite import evaluate_subject
from zentence.model import LatentLM
from zentence.settings import CorpusSettings, Settings

RELATIVE = 1e-4
ABSOLUTE = 1e-6  # for figures around nought
STANDARD_ERRORS = 4.0
LIKELIHOODS = ("nll", "iw_nll", "elbo_nll", "distortion", "rate")  # of every sentence of an evaluation
Status = Literal["holds", "differs", "unchecked"]


@dataclass(frozen=True)
class Check:
    """What became of one recorded figure; `allowed` is the largest difference at which it holds."""

    metric: str
    split: str
    status: Status
    recorded: float
    recomputed: float | None = None
    allowed: float | None = None
    reason: str = ""


class Options(NamedTuple):
    """How an evaluation was made."""

    policy: SamplePolicy
    limit: int | None  # only the first N sentences


@dataclass(frozen=True)
class Task:
    """Figures that one evaluation gives again: the same split, seed and options."""

    split: str
    seed: int
    options: Options
    figures: tuple[Measurement, ...]


@dataclass(frozen=True)
class Recomputed:
    """An evaluation's figures by name, and why others are not available."""

    figures: dict[str, Measurement]
    unavailable: dict[str, str]


@dataclass(frozen=True)
class Text:
    """A split at hand, with what belongs to it."""

    store: TokenStore
    source_nll: Iterator[float] | None = None
    training: TokenStore | None = None


Recompute = Callable[[Task, Text], Recomputed]


def plan(run: Run, metrics: Sequence[str] | None = None) -> list[Task]:
    """Sort a run's recorded figures into the evaluations that they come from."""
    for name in metrics or ():
        if not any(m.name == name for m in run.measurements):
            raise ZentenceError(f"{run.folder} has no {name}.{suggestion(name, {m.name for m in run.measurements})}")
    tasks: dict[tuple[str, int, Options], list[Measurement]] = {}
    for m in run.measurements:
        if metrics is None or m.name in metrics:
            tasks.setdefault((m.split, m.seed, _options(run, m)), []).append(m)
    return [Task(*key, tuple(figures)) for key, figures in tasks.items()]


def _options(run: Run, m: Measurement) -> Options:
    """Return the recorded options of an evaluation; of older results, what their likelihoods tell."""
    recorded = m.provenance.get("evaluation")
    if isinstance(recorded, dict):
        usual = SamplePolicy()
        policy = SamplePolicy(recorded.get("samples"), recorded.get("tolerance") or usual.tolerance)
        return Options(policy, recorded.get("limit"))
    bounds = [other for other in run.of_split(m.split) if other.seed == m.seed and other.name in LIKELIHOODS]
    samples = next((other.samples for other in bounds if other.samples is not None), None)
    return Options(SamplePolicy(samples), next((other.count for other in bounds), None))


class Texts:
    """Finds the texts of recorded splits: those of the training settings, or the one file that was given."""

    def __init__(self, settings: CorpusSettings, vocabulary: Vocabulary, given: Path | None = None) -> None:
        self._settings, self._vocabulary, self._given = settings, vocabulary, given
        if given is not None:
            open_file(given).close()  # a mistake is told before anything is computed
        self._corpus: Corpus | None = None
        self._why_not = ""
        self._prepared = False

    def find(self, split: str, content: str | None) -> Text | str:
        """Return the text of a split, or why there is none; what is recorded of its content must agree."""
        candidates = []
        if self._given is not None and (content is not None or self._given.name == split):
            candidates.append(self._open(self._given))
        corpus = self._training_corpus()
        if corpus is not None and split in corpus.splits:
            candidates.append(Text(corpus.splits[split], corpus.source_nll(split), corpus.splits.get("train")))
        elif (file := self._file_called(split)) is not None:
            candidates.append(self._open(file))
        if self._given is not None and not candidates:
            candidates.append(self._open(self._given))
        for text in candidates:
            if content is None or text.store.folder.name == content:
                return text
        if candidates:
            return "its text has changed" if self._given is None else f"{self._given.name} is another text"
        return self._why_not or f"'{split}' is not among the files of its training: give the text with --split"

    def _open(self, path: Path) -> Text:
        store = open_split(path, self._vocabulary, self._settings)
        corpus = self._training_corpus()
        training = None if corpus is None else corpus.splits.get("train")
        return Text(store, source_nll([Origin(path, store.labels is not None)]), training)

    def _training_corpus(self) -> Corpus | None:
        if not self._prepared:
            self._prepared = True
            files = self._settings
            every = (*files.train, *files.valid, *files.test)
            if not files.train or any(is_stream(file) for file in every):
                self._why_not = "the training text is not in a file: give the split with --split"
                return None
            missing = [file for file in every if not Path(file).is_file()]
            if missing:
                self._why_not = f"{missing[0]} is not there: give the split with --split"
                return None
            self._corpus = prepare(files, files.train, files.valid, files.test, vocabulary=self._vocabulary)
        return self._corpus

    def _file_called(self, name: str) -> Path | None:
        """Return the training, validation or test file of a name: evaluated files are recorded by theirs."""
        files = (*self._settings.valid, *self._settings.test, *self._settings.train)
        return next((Path(file) for file in files if Path(file).name == name and Path(file).is_file()), None)


def verify(
    run: Run,
    texts: Texts,
    recompute: Recompute,
    *,
    metrics: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int | None = None,
) -> list[Check]:
    """Compute a run's recorded figures again, evaluation by evaluation, and judge each.

    `limit` takes the first sentences only; `seed` another seed than the recorded ones.
    """
    checks: list[Check] = []
    for task in plan(run, metrics):
        outdated = {m.name: why for m in task.figures if (why := _outdated(m)) is not None}
        checks += [unchecked(m, outdated[m.name]) for m in task.figures if m.name in outdated]
        current = tuple(m for m in task.figures if m.name not in outdated)
        text = texts.find(task.split, run.content(task.split)) if current else ""
        if isinstance(text, str):
            checks += [unchecked(m, text) for m in current]
            continue
        count = min(task.options.limit or len(text.store), len(text.store))
        first = count if limit is None else min(limit, count)
        options = task.options._replace(limit=None if first == len(text.store) else first)
        chosen = task.seed if seed is None else seed
        found = recompute(Task(task.split, chosen, options, current), text)
        expected = _recorded_means(run, task.split, first) if first < count else {}
        for m in current:
            if m.name in found.figures:
                checks.append(judge(m, found.figures[m.name], expected.get(m.name), partial=first < count))
            else:
                checks.append(unchecked(m, found.unavailable.get(m.name, "this evaluation does not give it")))
    return checks


def _outdated(m: Measurement) -> str | None:
    """Return why a figure cannot be computed again by this version of zentence."""
    if m.name not in METRICS:
        return "this version of zentence has no such metric"
    if m.version != METRICS[m.name].version:
        return f"it is of version {m.version} of its metric, which now is at {METRICS[m.name].version}"
    options = m.provenance.get("evaluation")
    if isinstance(options, dict) and options.get("prior"):
        return f"it was measured under another prior: {options['prior']}"
    return None


def unchecked(m: Measurement, reason: str) -> Check:
    """Say that a figure was not checked."""
    return Check(m.name, m.split, "unchecked", m.value, reason=reason)


def _recorded_means(run: Run, split: str, first: int) -> dict[str, float]:
    """Return the means over the first sentences of those per-sentence figures that the results are made of."""
    figures = run.sentence_figures(split)
    if figures is None:
        return {}
    means = {}
    for m in run.of_split(split):
        values = figures.values.get(m.name)
        if values is not None and len(values) == m.count and math.isclose(values.mean(), m.value, rel_tol=1e-9):
            means[m.name] = float(np.mean(values[:first]))
    return means


def judge(recorded: Measurement, fresh: Measurement, expected: float | None = None, *, partial: bool = False) -> Check:
    """Compare a recorded figure with the same computed again.

    `partial`: only on the first sentences, of which the recorded per-sentence figures have the mean `expected`.
    """
    value, allowed, reason = recorded.value, _rounding(recorded.value), ""
    exactly = abs(fresh.value - value) <= allowed
    if partial and expected is not None:
        value, allowed, reason = expected, _rounding(expected), f"the first {fresh.count:,} sentences"
    elif not exactly and (partial or (fresh.seed != recorded.seed and recorded.kind != "exact")):
        how = f"the first {fresh.count:,} sentences" if partial else f"with seed {fresh.seed}"
        error = max(recorded.standard_error or 0.0, fresh.standard_error or 0.0)
        if error == 0.0:
            return unchecked(recorded, f"{how} it may differ, and it has no standard error")
        reason, allowed = f"{how}, {STANDARD_ERRORS:.0f} standard errors allowed", STANDARD_ERRORS * error
    made = next((key for key in METHOD if recorded.details.get(key) != fresh.details.get(key)), None)
    if made is not None:
        was, now = recorded.details.get(made), fresh.details.get(made)
        return unchecked(recorded, f"it was made with {made} {was}, which now is {now}")
    status: Status = "holds" if abs(fresh.value - value) <= allowed else "differs"
    if fresh.kind != recorded.kind:
        status, reason = "differs", f"it is {fresh.kind}, not {recorded.kind}"
    elif not partial and fresh.count != recorded.count:
        status, reason = "differs", f"it is of {fresh.count:,} sentences or items, not {recorded.count:,}"
    elif status == "differs" and not reason:
        reason = _other_software(recorded, fresh)
    return Check(recorded.name, recorded.split, status, value, fresh.value, allowed, reason)


def _rounding(value: float) -> float:
    return max(ABSOLUTE, RELATIVE * abs(value))


def _other_software(recorded: Measurement, fresh: Measurement) -> str:
    """Name what else differs, as greedily written words may change with the last digits of a probability."""
    names = ("zentence", "torch", "machine", "settings")
    pairs = [(name, recorded.provenance.get(name), fresh.provenance.get(name)) for name in names]
    return ", ".join(f"recorded with {name} {old}, now {new}" for name, old, new in pairs if old and old != new)


def by_suite(
    model: LatentLM,
    vocabulary: Vocabulary,
    settings: Settings,
    progress: Progress | None = None,
) -> Recompute:
    """Return the function that computes figures of a model again as `zentence evaluate` does."""

    def recompute(task: Task, text: Text) -> Recomputed:
        policy, limit = task.options
        subject = Subject(
            model,
            text.store,
            vocabulary,
            settings,
            task.split,
            task.seed,
            limit,
            policy,
            training=text.training,
            source_nll=None if text.source_nll is None else islice(text.source_nll, limit),
        )
        if progress is not None:
            subject.progress = progress
        found = evaluate_subject(subject, [m.name for m in task.figures])
        return Recomputed({m.name: m for m in found.measurements}, found.unavailable)

    return recompute

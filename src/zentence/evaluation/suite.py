"""All measurements of a model on a split."""

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from zentence.corpora import TokenStore, Vocabulary
from zentence.errors import ZentenceError, suggestion
from zentence.evaluation import groups
from zentence.evaluation.figures import Progress
from zentence.evaluation.geometry import geometry
from zentence.evaluation.measurement import Measurement, describe_machine
from zentence.evaluation.melbo import melbo
from zentence.evaluation.metrics import METRICS
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.reconstruction import reconstruction
from zentence.evaluation.recorder import Recorder
from zentence.evaluation.sampling import sampling
from zentence.evaluation.sentences import write_sentences
from zentence.evaluation.subject import Subject
from zentence.model import LatentLM
from zentence.settings import Settings

GROUPS: dict[str, Callable[[Subject, Recorder], None]] = {
    "source": groups.source,
    "likelihood": groups.likelihood,
    "information": groups.information,
    "melbo": melbo,
    "prior": groups.swapped_priors,
    "reconstruction": reconstruction,
    "geometry": geometry,
    "samples": sampling,
}
"""What computes the metrics of a group, in the order in which groups are computed."""

AFTER_TRAINING = tuple(
    name
    for name, metric in METRICS.items()
    if metric.group in ("source", "likelihood", "information") and name != "code_entropy"
)
"""Metrics at the end of training: quick ones."""


@cache
def source_commit() -> str | None:
    """Return the commit of the zentence sources in use, if they are a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "log", "-1", "--format=%H", "--", str(here.parent)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def provenance_of(subject: Subject) -> dict[str, Any]:
    """Return what figures depend on: version, commit, settings, machine, the split's content name, and options."""
    settings, policy = subject.settings, subject.policy
    content = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
    options = {
        "samples": policy.samples,
        "tolerance": policy.tolerance if policy.samples is None else None,
        "limit": subject.limit,
        **({} if subject.prior is None else {"prior": subject.prior}),
    }
    return {
        **describe_machine(),
        "commit": source_commit(),
        "settings": hashlib.sha256(content.encode()).hexdigest()[:16],
        "trained_seed": settings.training.seed,
        "store": subject.store.folder.name,
        "evaluation": options,
    }


def check_metrics(names: Iterable[str]) -> list[str]:
    """Return names of metrics as they are, each once; an unknown one is refused."""
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in METRICS:
            raise ZentenceError(f"Unknown metric '{name}'.{suggestion(name, METRICS)}")
    return chosen


def evaluate_subject(subject: Subject, metrics: Sequence[str] | None = None) -> Recorder:
    """Compute metrics (all by default), group after group; a finished group is kept in the subject's journal."""
    subject.wanted = None if metrics is None else frozenset(check_metrics(metrics))
    if subject.count == 0:
        raise ZentenceError("There is no sentence to evaluate on")
    recorder = Recorder(subject.split, subject.seed, provenance_of(subject))
    for group, compute in GROUPS.items():
        names = [name for name, metric in METRICS.items() if metric.group == group and subject.wants(name)]
        if not names:
            continue
        part = Recorder(recorder.split, recorder.seed, recorder.provenance)
        stored = subject.journal.get_json(f"group-{group}")
        if stored is None:
            compute(subject, part)
            rows = [asdict(m) for m in part.measurements]
            subject.journal.put_json(f"group-{group}", {"measurements": rows, "unavailable": part.unavailable})
        else:
            part.measurements = [Measurement(**row) for row in stored["measurements"]]
            part.unavailable = stored["unavailable"]
        recorder.measurements += [m for m in part.measurements if m.name in names]
        recorder.unavailable |= {name: why for name, why in part.unavailable.items() if name in names}
    return recorder


def evaluate_split(
    model: LatentLM,
    store: TokenStore,
    vocabulary: Vocabulary,
    settings: Settings,
    *,
    split: str,
    samples: int,
    seed: int = 0,
    limit: int | None = None,
    source_nll: Iterable[float] | None = None,
    progress: Progress | None = None,
    metrics: Sequence[str] = AFTER_TRAINING,
    folder: Path | None = None,
) -> list[Measurement]:
    """Measure a model on a split with K codes a sentence, as at the end of training.

    The figures of each sentence are written to `folder`, where one is given.
    """
    subject = Subject(
        model,
        store,
        vocabulary,
        settings,
        split,
        seed,
        limit,
        policy=SamplePolicy(samples),
        source_nll=source_nll,
    )
    if progress is not None:
        subject.progress = lambda _what, done, total: progress(done, total)
    found = evaluate_subject(subject, metrics).measurements
    if folder is not None:
        write_sentences(folder, split, subject.figures(), store.folder.name, seed)
    return found

"""Training and measuring a paper's rows, one after the other; what is done is not done again."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zentence.corpora.prepare import prepare
from zentence.errors import ZentenceError
from zentence.evaluation.journal import Journal, journal_key
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.subject import Subject
from zentence.evaluation.suite import evaluate_subject
from zentence.files import checksum
from zentence.latent.space import LatentSpace
from zentence.parts import plain
from zentence.reproduce.common_stages import copy_stage, first_stage
from zentence.reproduce.data import RowFiles, Split, row_files, split_names, text_name
from zentence.reproduce.results import (
    Results,
    add_result,
    figure_of,
    read_stored,
    result_path,
    write_json,
    write_stored,
)
from zentence.reproduce.rows import Row
from zentence.settings import Settings
from zentence.training.events import Event
from zentence.training.run import train

LABELS = (0, 100, 500, 1000, 2000, 10_000)  # paper 4, Table 8
LABEL_DRAWS = 5  # times that so many labelled sentences are drawn
Progress = Callable[[str, int, int], None]


def _silent(what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How rows are reproduced."""

    variant: str
    data: Path
    out: Path  # model directories: out/<paper>/<variant>/<row>/seed-<k>
    results: Path
    seeds: int = 1
    split: Split = "valid"
    resume: bool = False
    changes: tuple[str, ...] = ()  # `a.b=c`, laid over every row
    samples: int | None = None  # importance samples a sentence; None: as many as it needs
    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True)
class Job:
    """A row with a seed."""

    row: Row
    seed: int
    settings: Settings
    folder: Path
    files: RowFiles
    fingerprint: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.row.name}, seed {self.seed}"


@dataclass
class Outcome:
    """What is known after a call: all stored results, which runs were made or skipped, and what failed."""

    results: Results
    path: Path  # where they are stored
    trained: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def plan_jobs(rows: Sequence[Row], plan: Plan) -> list[Job]:
    """Check settings, data and folders of all runs before the first begins."""
    jobs = []
    for seed in range(plan.seeds):
        for row in rows:
            changes = [*plan.changes, f"training.seed={seed}", "evaluation.samples=1"]  # measured apart, below
            settings = row.settings(plan.variant, changes)
            files = row_files(plan.data, row.corpora, plan.split)
            folder = plan.out / row.paper / plan.variant / row.name / f"seed-{seed}"
            job = Job(row, seed, settings, folder, files, fingerprint(settings))
            if not _trained(job) and not plan.resume and folder.is_dir() and any(folder.iterdir()):
                raise ZentenceError(f"{folder} holds an unfinished run: go on with --resume, or choose another --out")
            jobs.append(job)
    return jobs


def fingerprint(settings: Settings) -> str:
    """Return a hash of all settings but the seed, the files and the machine."""
    content = plain(settings)
    for name in ("out", "corpus.train", "corpus.valid", "corpus.test", "training.seed", "training.threads"):
        table, _, key = name.rpartition(".")
        (content[table] if table else content).pop(key, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def reproduce(
    rows: Sequence[Row],
    plan: Plan,
    *,
    callbacks: Sequence[Callable[[Event], None]] = (),
    begin: Callable[[str, str], None] = lambda _state, _name: None,
    progress: Progress = _silent,
) -> Outcome:
    """Train and measure rows of one paper; results are stored after each run, and all that are stored are returned.

    `begin` is told (state, run) with state `trains`, `measures`, `skipped` or `failed`. A run that fails with a
    `ZentenceError` does not keep the others from being made.
    """
    if not rows:
        raise ZentenceError("There is no row to reproduce")
    paper = rows[0].paper
    path = result_path(plan.results, paper, plan.variant, plan.split, changed=bool(plan.changes))
    outcome = Outcome(read_stored(path, paper, plan.variant, plan.split), path)
    for job in plan_jobs(rows, plan):
        found = _finished(job, plan.split)
        if found is None:
            try:
                found = _make(job, plan, callbacks, begin, progress)
            except ZentenceError as error:
                outcome.failed[job.name] = str(error)
                begin("failed", f"{job.name}: {error}")
                continue
            outcome.trained.append(job.name)
        else:
            outcome.skipped.append(job.name)
            begin("skipped", job.name)
        stored = read_stored(path, paper, plan.variant, plan.split)  # another process may have added rows meanwhile
        outcome.results = add_result(stored, job.row.name, job.seed, job.fingerprint, found)
        write_stored(path, outcome.results)
    return outcome


def _marker(job: Job, split: Split) -> Path:
    return job.folder / f"reproduction-{split}.json"


def _trained(job: Job) -> bool:
    """Say whether a run was trained to its end and measured on some split."""
    splits: tuple[Split, ...] = ("valid", "test")
    return any(_finished(job, split) is not None for split in splits)


def _finished(job: Job, split: Split) -> dict[str, Any] | None:
    """Return the result of a run that was made before; one of other settings is refused."""
    path = _marker(job, split)
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        before, result = content["fingerprint"], content["result"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ZentenceError(f"{path} is not the result of a run: {error}") from error
    if before != job.fingerprint:
        raise ZentenceError(f"{job.folder} holds a run with other settings: choose another --out")
    found: dict[str, Any] = result
    return found


def _first_stage(job: Job, plan: Plan) -> Path | None:
    """Return where the first stage of a run is kept for other rows, if it has one in common with any."""
    first = first_stage(job.settings)
    if first is None:
        return None
    return plan.out / job.row.paper / plan.variant / "first-stages" / f"{fingerprint(first)}-seed-{job.seed}"


def _make(
    job: Job,
    plan: Plan,
    callbacks: Sequence[Callable[[Event], None]],
    begin: Callable[[str, str], None],
    progress: Progress,
) -> dict[str, Any]:
    if not _trained(job):
        begin("trains", job.name)
        stage = _first_stage(job, plan)
        taken = stage is not None and copy_stage(stage, job.folder)

        def keep(event: Event) -> None:
            if stage is not None and event["event"] == "stage" and event["number"] == 2:
                copy_stage(job.folder, stage)

        machine = job.settings.training.model_copy(update={"device": plan.device, "threads": plan.threads})
        little = job.settings.evaluation.model_copy(update={"samples": 1})  # `measure` does it well
        train(
            job.settings.model_copy(update={"training": machine, "evaluation": little}),
            job.files.train,
            valid=job.files.valid,
            out=job.folder,
            resume=plan.resume or taken,
            callbacks=[*callbacks, keep],
        )
    begin("measures", job.name)
    result = measure(job, plan, progress)
    write_json(_marker(job, plan.split), {"fingerprint": job.fingerprint, "result": result})
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)  # a paper's rows would fill a disk
    return result


def measure(job: Job, plan: Plan, progress: Progress) -> dict[str, Any]:
    """Measure a trained model on each of its corpora; an interrupted measurement goes on where it stopped."""
    space = LatentSpace.load(job.folder, plan.device, plan.threads)
    files = job.files
    corpus = prepare(space.settings.corpus, files.train, files.valid, files.test, vocabulary=space.vocabulary)
    weights = checksum(job.folder / "model.safetensors")
    metrics = job.row.metrics()
    figures: list[dict[str, Any]] = []
    provenance: dict[str, Any] = {}
    for key, name in split_names(job.row.corpora, plan.split).items():
        subject = Subject(
            space.model,
            corpus.splits[name],
            space.vocabulary,
            space.settings,
            name,
            job.seed,
            policy=SamplePolicy(plan.samples),
            training=corpus.splits["train"],
            progress=progress,
        )
        entry = journal_key(weights=weights, store=subject.store.folder.name, metrics=metrics, samples=plan.samples)
        subject.journal = Journal(job.folder, entry)
        found = evaluate_subject(subject, metrics).measurements
        figures += [figure_of(m, key, text_name(key, plan.split)) for m in found]
        provenance[key] = found[0].provenance if found else {}
        subject.journal.remove()
    if "classify" in job.row.tasks:
        figures += _classify(space, job, plan, progress)
    log = _log(job.folder / "log.jsonl")
    return {
        "figures": figures,
        "provenance": provenance,
        "changes": list(plan.changes),
        "parameters": sum(p.numel() for p in space.model.parameters()),
        "seconds": max((event["seconds"] for event in log if "seconds" in event), default=None),
        "curve": _curve(log),
    }


def _classify(space: LatentSpace, job: Job, plan: Plan, progress: Progress) -> list[dict[str, Any]]:
    """Return the accuracy, in per cent, of classifiers on codes against the number of labels (paper 4, Table 8)."""
    from zentence.tasks.classify import classify, encode_study, plan_study, read_labelled

    texts = read_labelled(job.files.train[0])
    tests = read_labelled((job.files.valid if plan.split == "valid" else job.files.test)[0])
    counts = [count for count in LABELS if count <= len(texts.texts)]
    study = plan_study(texts, tests, labels=counts, repeats=LABEL_DRAWS, seed=job.seed)
    codes = encode_study(space, study, lambda done: progress("codes to classify", done, study.sentences))
    found = classify(study, codes, lambda done: progress("classifiers", done, len(study.trials)))
    key = job.row.corpora[0]
    return [
        {
            "name": f"accuracy_{labels}",
            "corpus": key,
            "text": text_name(key, plan.split),
            "value": 100.0 * accuracy.to_dict()["mean"],
            "kind": "estimate",
            "unit": "per cent",
            "standard_error": None,
            "count": len(tests.texts),
            "samples": None,
            "version": 1,
            "details": {"draws": len(accuracy.runs)},
        }
        for (labels, classifier), accuracy in found.results.items()
        if classifier == ("gmm" if labels == 0 else "linear")
    ]


def _log(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.strip()]


def _curve(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each validation said of the figure that the model is selected by."""
    return [
        {
            "seconds": event["seconds"],
            "stage": event["stage"],
            "figure": event["selection"],
            "value": event[event["selection"]],
        }
        for event in log
        if event["event"] == "validation"
    ]

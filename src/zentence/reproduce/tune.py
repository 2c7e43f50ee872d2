"""A search for better settings (in place of paper 2's Bayesian optimisation): trials of a recipe on a corpus.

Every trial is a run in a folder of its own. Trials that do worse than others at the same validation are ended early.
The study lives in a file: a search that was interrupted goes on there, and takes up the trial that it was in.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zentence.errors import ZentenceError
from zentence.evaluation.metrics import METRICS
from zentence.reproduce.space import Choices, Dimension, parse_space, written
from zentence.settings import Settings, override, read_recipe, settings_from
from zentence.training.events import Event
from zentence.training.run import train

MOST_FAILURES = 10  # trials with settings that cannot be trained, before the search gives up
STARTUP = 3  # trials that are never ended early, and drawn at random
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """A finished trial."""

    number: int
    state: str  # complete or pruned
    value: float | None
    settings: dict[str, Any]
    folder: str  # below --out


@dataclass(frozen=True)
class Search:
    """What a search found."""

    objective: str
    trials: tuple[Trial, ...]
    best: Trial | None
    importance: dict[str, float]  # of each setting for the objective; empty with too few trials
    plot: Path | None


@dataclass(frozen=True)
class Task:
    """What is searched for."""

    recipe: str
    corpus: tuple[str, ...]
    valid: tuple[str, ...]
    out: Path
    objective: str = "iw_nll"
    changes: tuple[str, ...] = ()
    seed: int = 0

    def settings(self, parameters: dict[str, Any]) -> Settings:
        """Return the settings of a trial."""
        chosen = [f"{key}={written(value)}" for key, value in parameters.items()]
        return settings_from(override(read_recipe(self.recipe), [*self.changes, *chosen]))


def tune(
    task: Task,
    trials: int,
    space: Sequence[str] = (),
    storage: Path | None = None,
    tell: Tell = lambda _line: None,
    callbacks: Sequence[Callable[[Event], None]] = (),
) -> Search:
    """Search until `trials` trials are finished in the study, those of earlier calls counted."""
    optuna = _optuna()
    if task.objective not in METRICS or METRICS[task.objective].direction == "none":
        better = [name for name, metric in METRICS.items() if metric.direction != "none"]
        raise ZentenceError(f"--objective {task.objective}: give a metric with a direction, for example {better[0]}")
    dimensions = parse_space(space, task.settings({}))
    _check_keys(task, dimensions)
    task.out.mkdir(parents=True, exist_ok=True)
    path = storage or task.out / "study.journal"
    study = _open(optuna, task, path, dimensions)
    _take_up(optuna, study, tell)
    finished = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    while len(study.get_trials(deepcopy=False, states=finished)) < trials:
        trial = study.ask()
        _run_trial(optuna, study, trial, task, dimensions, tell, callbacks)
    return _found(optuna, study, task, dimensions)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ZentenceError("A search needs Optuna: pip install 'zentence[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _check_keys(task: Task, dimensions: Sequence[Dimension]) -> None:
    """Refuse a setting that the recipe does not know, before the first trial."""
    from zentence.build import complete

    for dimension in dimensions:
        value = dimension.values[0] if isinstance(dimension, Choices) else dimension.low
        complete(task.settings({dimension.key: value}))


def _open(optuna: Any, task: Task, path: Path, dimensions: Sequence[Dimension]) -> Any:
    """Open the study in a file (.db, .sqlite: a database; else a journal), or begin it; it must be the same search."""
    about = {"recipe": task.recipe, "objective": task.objective, "changes": list(task.changes), "seed": task.seed}
    about["space"] = [repr(dimension) for dimension in dimensions]
    lower = METRICS[task.objective].direction == "lower"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".db", ".sqlite"):
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        else:
            storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
        study = optuna.create_study(
            storage=storage,
            study_name="zentence",
            direction="minimize" if lower else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
            load_if_exists=True,
        )
    except Exception as error:  # a file of another kind: each storage has errors of its own
        raise ZentenceError(f"Cannot open the study in {path}: {' '.join(str(error).split())}") from error
    before = study.user_attrs.get("about")
    if before is not None and before != about:
        changed = ", ".join(name for name in about if about[name] != before.get(name))
        raise ZentenceError(f"{path} holds a search with another {changed}: choose another --storage or --out")
    study.set_user_attr("about", about)
    study.sampler = optuna.samplers.TPESampler(seed=task.seed + len(study.trials), n_startup_trials=STARTUP)
    return study


def _take_up(optuna: Any, study: Any, tell: Tell) -> None:
    """Ask again for the trials that were interrupted, in the folders where they stand."""
    states = optuna.trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        study.tell(trial.number, state=states.FAIL)
        if "folder" in trial.user_attrs:
            study.enqueue_trial(dict(trial.params), user_attrs={"folder": trial.user_attrs["folder"]})
            tell(f"trial {trial.number} was interrupted: it goes on")


def _run_trial(
    optuna: Any,
    study: Any,
    trial: Any,
    task: Task,
    dimensions: Sequence[Dimension],
    tell: Tell,
    callbacks: Sequence[Callable[[Event], None]],
) -> None:
    """Train with suggested settings; the study is told the objective, or that the trial was ended early or failed."""
    parameters = {dimension.key: _suggest(trial, dimension) for dimension in dimensions}
    name = trial.user_attrs.get("folder", f"trial-{trial.number:03d}")
    trial.set_user_attr("folder", name)
    folder = task.out / name
    watch = _Watch(optuna, trial, task)
    told = ", ".join(f"{key} {written(value)}" for key, value in parameters.items())
    try:
        settings = task.settings(parameters)
        watch.stage = settings.stages[-1].name
        result = train(
            settings, task.corpus, valid=task.valid, out=folder, resume=folder.is_dir(), callbacks=[*callbacks, watch]
        )
    except optuna.TrialPruned:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        tell(f"trial {trial.number} ended early at {watch.last:.3f}: {told}")
    except ZentenceError as error:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        failures = len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.FAIL,)))
        if failures > MOST_FAILURES:
            raise
        tell(f"trial {trial.number} failed: {error}")
    else:
        found = [m.value for m in result.measurements if m.name == task.objective and m.split == "valid"]
        if not found:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            known = ", ".join(sorted({m.name for m in result.measurements}))
            raise ZentenceError(f"--objective {task.objective}: training measures only {known}")
        study.tell(trial, found[0])
        tell(f"trial {trial.number}: {task.objective} {found[0]:.3f}: {told}")
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # the trial is over: nothing goes on from here


def _suggest(trial: Any, dimension: Dimension) -> Any:
    if isinstance(dimension, Choices):
        return trial.suggest_categorical(dimension.key, list(dimension.values))
    if dimension.whole:
        return trial.suggest_int(dimension.key, int(dimension.low), int(dimension.high), log=dimension.log)
    return trial.suggest_float(dimension.key, dimension.low, dimension.high, log=dimension.log)


class _Watch:
    """Reports the validations of the last stage to the study, and ends a trial that does worse than others."""

    def __init__(self, optuna: Any, trial: Any, task: Task) -> None:
        self.optuna, self.trial, self.objective = optuna, trial, task.objective
        self.stage, self.last = "", float("nan")

    def __call__(self, event: Event) -> None:
        """Look at one event; the update it is of tells trials' validations apart, also after a restart."""
        if event["event"] != "validation" or event["stage"] != self.stage:
            return
        self.last = float(event[self.objective if self.objective in event else event["selection"]])
        self.trial.report(self.last, event["update"])
        if self.trial.should_prune():
            raise self.optuna.TrialPruned


def _found(optuna: Any, study: Any, task: Task, dimensions: Sequence[Dimension]) -> Search:
    states = optuna.trial.TrialState
    trials = tuple(
        Trial(
            t.number,
            t.state.name.lower(),
            t.value if t.state == states.COMPLETE else None,
            dict(t.params),
            t.user_attrs.get("folder", ""),
        )
        for t in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))
    )
    complete = [trial for trial in trials if trial.value is not None]
    sign = 1.0 if METRICS[task.objective].direction == "lower" else -1.0
    best = min(complete, key=lambda trial: sign * (trial.value or 0.0)) if complete else None
    importance: dict[str, float] = {}
    if len(complete) >= 2 and len({trial.value for trial in complete}) > 1:
        found = optuna.importance.get_param_importances(study)
        importance = {dimension.key: float(found.get(dimension.key, 0.0)) for dimension in dimensions}
    plot = draw_importance(importance, task, len(complete)) if importance else None
    return Search(task.objective, trials, best, importance, plot)


def draw_importance(importance: dict[str, float], task: Task, trials: int) -> Path | None:
    """Draw how much each setting matters; without matplotlib there is no picture."""
    import io

    from zentence.files import write_atomically

    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    ordered = sorted(importance.items(), key=lambda item: item[1])
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(ordered)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([key for key, _ in ordered], [value for _, value in ordered], color="#4477aa")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xlim(0.0, 1.1 * max(max(importance.values()), 0.1))
    axes.set_xlabel(f"importance for {task.objective}, from {trials} complete trials")
    axes.set_title(f"What matters in {task.recipe}", loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=120, format="png")
    path = task.out / "importance.png"
    write_atomically(path, buffer.getvalue())
    return path

"""`zentence understand` and `zentence glue`: what codes and encoder features know, with few labels and on GLUE."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.output import (
    Beside,
    Device,
    FeaturesOption,
    Json,
    Model,
    Seed,
    Threads,
    load_space,
    print_json,
    print_lines,
    warn,
)
from zentence.cli.tasks import check_picture, read_counts, share
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.guided.finetune import TuneSettings
    from zentence.tasks.glue_scores import GlueReport
    from zentence.tasks.subjects import Subject
    from zentence.tasks.understand import Understanding

Finetune = Annotated[
    bool, typer.Option("--finetune", help="Also train encoder and head together, in --out; default: frozen only.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the fine-tuned runs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the fine-tuned runs in --out.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")]


def understand(
    model: Model,
    train: Annotated[Path, typer.Option("--train", help="Labelled sentences to learn from: label<TAB>sentence.")],
    test: Annotated[Path, typer.Option("--test", help="Labelled sentences to be tested on.")],
    per_class: Annotated[
        str | None,
        typer.Option(
            "--per-class",
            help="How many labels a class, as in 1,10,1k; default: 1, 10, 100, 1k and 10k, as far as the classes go.",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Runs, each with labels of its own; at most 3 beyond 1,000 labels.")
    ] = 10,
    features: FeaturesOption = "both",
    beside: Beside = [],  # noqa: B006
    finetune: Finetune = False,
    out: Out = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", help="Of --finetune; default: 3e-5 for transformers, 1e-3 for others."),
    ] = None,
    epochs: Annotated[float, typer.Option("--epochs", min=0.01, help="Of --finetune: passes over the labels.")] = 100.0,
    max_steps: Annotated[int, typer.Option("--max-steps", min=1, help="Of --finetune: updates at most.")] = 2000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Of --finetune: sentences in an update.")] = 32,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the curves: a .png, .svg or .pdf file.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Tell classes apart with few labels: a linear head on codes or encoder features, frozen or fine-tuned."""
    from zentence.guided.understanding import tuned_curve
    from zentence.tasks.classify import read_labelled
    from zentence.tasks.understand import plan_low_resource
    from zentence.tasks.understand import understand as run
    from zentence.training.progress import phase_bar

    counts = read_counts(per_class, "--per-class") if per_class is not None else None
    if plot is not None:
        check_picture(plot, overwrite)
    _check_runs(finetune, out, resume, overwrite)
    study = plan_low_resource(read_labelled(train), read_labelled(test), per_class=counts, repeats=repeats, seed=seed)
    subjects = _subjects(model, features, beside, seed, device, threads)
    given = {"epochs": epochs, "max_steps": max_steps, "batch": batch}
    tuned = [(subject, _settings(subject, learning_rate, **given)) for subject in subjects] if finetune else []
    again = {"resume": resume, "overwrite": overwrite}
    with phase_bar() as progress, _going_on(out):
        found = run(study, subjects, progress)
        for subject, settings in tuned:
            found.curves.append(tuned_curve(study, subject, settings, out or Path(), **again, progress=progress))
    if plot is not None:
        found.draw(plot)
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_understanding_lines(found))


def glue(
    model: Model,
    tasks: Annotated[
        str | None, typer.Option("--tasks", help="As in SST-2,RTE; default: all whose folders are in --data.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with a folder a task; default: $ZENTENCE_DATA/glue.")
    ] = None,
    features: FeaturesOption = "both",
    beside: Beside = [],  # noqa: B006
    most: Annotated[
        int, typer.Option("--most", min=10, help="Training examples of a task at most; more are drawn from.")
    ] = 100_000,
    finetune: Finetune = False,
    out: Out = None,
    learning_rates: Annotated[
        str | None,
        typer.Option(
            "--learning-rates",
            help="Of --finetune: chosen from on a held-out tenth; default: 2e-5,3e-5,4e-5,5e-5 for transformers, "
            "5e-4,1e-3,2e-3 for others.",
        ),
    ] = None,
    epochs: Annotated[float, typer.Option("--epochs", min=0.01, help="Of --finetune: passes over the examples.")] = 3.0,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Of --finetune: examples in an update.")] = 32,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Score a model on GLUE's dev files: a linear head on codes or encoder features, frozen or fine-tuned."""
    from zentence.guided.understanding import learning_rates as usual_rates
    from zentence.guided.understanding import score_tuned
    from zentence.reproduce.data import data_folder
    from zentence.tasks.glue import find_tasks
    from zentence.tasks.glue_scores import read_task, report, score_frozen
    from zentence.training.progress import phase_bar

    folder = data if data is not None else data_folder(None) / "glue"
    chosen = find_tasks(tasks, folder)
    rates = _rates(learning_rates)
    _check_runs(finetune, out, resume, overwrite)
    subjects = _subjects(model, features, beside, seed, device, threads)
    read, rows = [read_task(task, folder, most, seed) for task in chosen], []
    for examples in (part for data_ in read for part in (data_.train, *data_.dev.values())):
        if examples.damaged:
            warn(f"{examples.name}: {examples.damaged:,} rows with too few columns were passed over")
    with phase_bar() as progress, _going_on(out):
        for task in read:
            for subject in subjects:
                rows += score_frozen(task, subject, seed, progress)
                if finetune:
                    settings = _settings(subject, None, epochs=epochs, max_steps=None, batch=batch)
                    again: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "seed": seed}
                    grid = rates or usual_rates(subject)
                    rows += score_tuned(task, subject, settings, grid, out or Path(), **again, progress=progress)
    found = report(read, rows, seed)
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_glue_lines(found))


def _subjects(
    model: Path, features: str, beside: list[str], seed: int, device: str, threads: int | None
) -> "list[Subject]":
    from zentence.tasks.classifiers import need_sklearn
    from zentence.tasks.subjects import choose_kinds, gather_subjects

    kinds = choose_kinds(features)
    need_sklearn()
    space = load_space(model, device, threads)
    return gather_subjects(space, kinds, beside, lambda folder: load_space(folder, device, threads), seed)


def _check_runs(finetune: bool, out: Path | None, resume: bool, overwrite: bool) -> None:
    """Refuse a folder of fine-tuned runs that is missing, of no use, or taken."""
    from zentence.training.directory import check_directory

    if not finetune:
        if out is not None or resume:
            raise ZentenceError(f"{'--resume' if out is None else '--out'} is of use with --finetune only")
        return
    if out is None:
        raise ZentenceError("--finetune needs --out DIR, a folder for its runs")
    check_directory(out, resume=resume, overwrite=overwrite)


def _settings(subject: "Subject", rate: float | None, **given: Any) -> "TuneSettings":
    """Return how a subject is fine-tuned; a mistake becomes one line."""
    from zentence.guided.finetune import TuneSettings
    from zentence.guided.understanding import learning_rates
    from zentence.parts import parse_options

    usual = learning_rates(subject)[1]
    settings: TuneSettings = parse_options("", TuneSettings, {**given, "learning_rate": rate or usual})
    return settings


def _rates(text: str | None) -> tuple[float, ...]:
    """Read `2e-5,3e-5`."""
    try:
        rates = tuple(float(word) for word in text.split(",")) if text is not None else ()
    except ValueError:
        rates = (0.0,)
    if any(not 0.0 < rate < 1.0 for rate in rates):
        raise ZentenceError(f"--learning-rates {text}: write numbers above 0 with commas between them, as in 2e-5,3e-5")
    return rates


@contextmanager
def _going_on(out: Path | None) -> Iterator[None]:
    """Say, when interrupted, how to go on with fine-tuned runs."""
    from zentence.training.loop import InterruptedTraining

    try:
        yield
    except InterruptedTraining:
        typer.echo(f"Saved. Go on with the same command and --resume (runs: {out}).", err=True)
        raise typer.Exit(130) from None


def _understanding_lines(found: "Understanding") -> list[str]:
    majority, part = found.majority
    counts = list(found.words)
    width = max(24, *(len(curve.subject) + 2 for curve in found.curves))
    lines = [
        f"{len(found.classes)} classes, {found.sentences[0]:,} training and {found.sentences[1]:,} test sentences; "
        f"always '{majority}': {part:.1%}",
        f"{'labels a class':<{width}}{'':15}" + "".join(f"{count:>16,}" for count in counts),
    ]
    for curve in found.curves:
        shown = "".join(f"{share(curve.values[count]):>16}" for count in counts)
        lines.append(f"{curve.subject:<{width}}{curve.scheme:<15}{shown}")
    lines.append(
        f"{'TF-IDF of words':<{width}}{'':15}" + "".join(f"{share(found.words[count]):>16}" for count in counts)
    )
    unknown = ", ".join(f"{name} {part:.1%}" for name, part in found.unknown_words.items())
    return [*lines, f"± is the standard deviation over runs; unknown words: {unknown}"]


def _glue_lines(found: "GlueReport") -> list[str]:
    width = max(12, *(len(row.subject) + 2 for row in found.rows))
    lines = []
    for (task, split), always in found.baselines.items():
        rows = [row for row in found.rows if (row.task.name, row.split) == (task, split)]
        names = list(always)
        of = f" of {rows[0].available:,}" if rows[0].available > rows[0].trained else ""
        lines.append(
            f"{task} {split}: {rows[0].trained:,}{of} training and {rows[0].tested:,} dev examples, "
            f"{rows[0].unknown_words:.1%} unknown words"
        )
        lines.append(f"  {'':<{width}}{'':15}" + "".join(f"{name:>18}" for name in names))
        for row in rows:
            figures = (f"{row.scores[name].value:.3f} ± {row.scores[name].standard_error:.3f}" for name in names)
            lines.append(f"  {row.subject:<{width}}{row.scheme:<15}" + "".join(f"{figure:>18}" for figure in figures))
        lines.append(
            f"  {'always the same':<{width + 15}}" + "".join(f"{f'{v:.3f}        ':>18}" for v in always.values())
        )
    if len({row.task.name for row in found.rows}) > 1:
        lines.append("mean of each task's first score")
        lines += [
            f"  {subject:<{width}}{scheme:<15}{mean:>10.3f}" for (subject, scheme), mean in found.averages().items()
        ]
    return lines

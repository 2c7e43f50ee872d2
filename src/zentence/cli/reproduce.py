"""`zentence reproduce` and `zentence tune`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.output import Device, Json, Threads, print_json, print_lines
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.reproduce.runner import Outcome


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="A paper's name, or paper/row with --show; see --list.", show_default=False)
    ] = None,
    rows: Annotated[str | None, typer.Option("--rows", metavar="A,B", help="Only these rows; default: all.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of corpora (ptb/ptb.train.txt …); default: $ZENTENCE_DATA.")
    ] = None,
    variant: Annotated[
        str, typer.Option("--variant", help="faithful (the paper's optimiser and schedule) or quick (ours).")
    ] = "quick",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs a row, with seeds 0, 1, …")] = 1,
    split: Annotated[
        str, typer.Option("--split", help="valid, or test where the data folder has it (ptb/ptb.test.txt …).")
    ] = "valid",
    out: Annotated[Path, typer.Option("--out", help="Folder of the model directories.")] = Path("runs/reproduce"),
    results: Annotated[
        Path, typer.Option("--results", help="Folder of the results: <paper>/<variant>.json and .md.")
    ] = Path("results"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with runs that were interrupted.")] = False,
    set_: Annotated[
        list[str], typer.Option("--set", metavar="A.B=C", help="Change a setting of every row; results are kept apart.")
    ] = [],  # noqa: B006
    list_: Annotated[bool, typer.Option("--list", help="List papers, rows, variants and minutes, and leave.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the complete settings of paper/row, and leave.")] = False,
    write_docs: Annotated[
        Path | None, typer.Option("--write-docs", help="Write a page on all stored results to this file, and leave.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Draw a paper's stored results into this folder, and leave.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    json: Json = False,
) -> None:
    """Train and measure the rows of a paper's tables, and print ours beside the paper's.

    What is done is skipped. Results hold figures only, no text. Figures on another text than the paper's, or of another
    kind, are compared by direction only.
    """
    if split not in ("valid", "test"):
        raise ZentenceError(f"--split {split}: choose valid or test")
    if list_:
        _list(paper, json)
    elif show:
        _show(paper, variant, set_, json)
    elif write_docs is not None:
        _write_docs(results, write_docs, json)
    elif paper is None:
        raise ZentenceError("Give a paper, or --list")
    elif plots is not None:
        _plot(paper, split, results, plots, json)
    else:
        from zentence.reproduce.data import data_folder
        from zentence.reproduce.rows import rows_of
        from zentence.reproduce.runner import Plan

        wanted = None if rows is None else [name for name in rows.replace(" ", "").split(",") if name]
        chosen = rows_of(paper, wanted)
        plan = Plan(
            variant,
            data_folder(data),
            out,
            results,
            seeds=seeds,
            split=split,  # type: ignore[arg-type]
            resume=resume,
            changes=tuple(set_),
            device=device,
            threads=threads,
        )
        outcome = _run(chosen, plan, quiet)
        _tell(outcome, json)


def _run(rows: Sequence[Any], plan: Any, quiet: bool) -> "Outcome":
    from zentence.reproduce.runner import reproduce as run
    from zentence.training.loop import InterruptedTraining

    def begin(state: str, name: str) -> None:
        if not quiet or state == "failed":
            typer.echo(f"{state}: {name}", err=True)

    try:
        with _displays(quiet) as show, _bars(quiet) as progress:
            return run(rows, plan, callbacks=[show], begin=begin, progress=progress)
    except (InterruptedTraining, KeyboardInterrupt):
        typer.echo("Saved. Go on with the same command and --resume.", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _displays(quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a callback of training: a new display for each run."""
    from zentence.training.progress import Display

    with ExitStack() as stack:
        current: list[Display] = []

        def show(event: dict[str, Any]) -> None:
            if event["event"] in ("reading", "start") and not current:
                current.append(stack.enter_context(Display(quiet=quiet)))
            if current:
                current[0](event)
            if event["event"] == "end":
                stack.close()
                current.clear()

        yield show


@contextmanager
def _bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield progress(what, done, total): a bar for each thing that is measured, one after the other."""
    from zentence.training.progress import progress_bar

    with ExitStack() as stack:
        shown: list[tuple[str, Callable[[int], None]]] = []

        def progress(what: str, done: int, total: int) -> None:
            if quiet:
                return
            if not shown or shown[-1][0] != what:
                stack.close()
                shown.append((what, stack.enter_context(progress_bar(what, total, unit=""))))
            shown[-1][1](done)
            if done >= total:
                stack.close()
                shown.clear()

        yield progress


def _tell(outcome: "Outcome", json: bool) -> None:
    """Write the Markdown beside the JSON, and print."""
    from zentence.files import write_atomically
    from zentence.reproduce.tables import make_report, to_json, to_markdown, to_text

    stored = outcome.results
    if stored.rows:
        report = make_report(stored)
        path = outcome.path
        write_atomically(path.with_suffix(".md"), to_markdown(report))
        if json:
            content = to_json(report)
            content |= {"trained": outcome.trained, "skipped": outcome.skipped, "failed": outcome.failed}
            print_json(content)
        else:
            print(to_text(report))
            print(f"Results are in {path} and {path.with_suffix('.md')}.")
    if outcome.failed:
        told = "; ".join(f"{name}: {why}" for name, why in outcome.failed.items())
        raise ZentenceError(f"{len(outcome.failed)} of the runs failed: {told}")


def _list(paper: str | None, json: bool) -> None:
    from zentence.reproduce.rows import check_paper, papers, rows_of, table_of

    chosen = papers() if paper is None else [check_paper(paper)]
    if json:
        print_json(
            [
                {
                    "paper": name,
                    "title": table_of(name).title,
                    "rows": [
                        {
                            "row": row.name,
                            "title": row.title,
                            "corpora": row.corpora,
                            "minutes": {variant: round(row.minutes(variant), 1) for variant in row.variants},
                        }
                        for row in rows_of(name)
                    ],
                }
                for name in chosen
            ]
        )
        return
    from zentence.reproduce.tables import aligned

    for name in chosen:
        print(f"{name}: {table_of(name).title}")
        table = [["  row", "the paper calls it", "corpora", "minutes"]]
        for row in rows_of(name):
            minutes = ", ".join(f"{variant} {row.minutes(variant):,.0f}" for variant in row.variants)
            table.append([f"  {row.name}", row.title, "+".join(row.corpora), minutes])
        print_lines([*aligned(table), ""])
    print("Minutes are estimates of training on 2 cores (at most, where training stops when nothing improves):")
    print(
        "tokens over 3,500 a second (quick, bfloat16: 7,000), as measured for PTB's shapes; wider models take longer. "
        "Evaluation comes on top."
    )


def _show(name: str | None, variant: str, changes: Sequence[str], json: bool) -> None:
    import tomli_w

    from zentence.parts import plain
    from zentence.reproduce.rows import rows_of

    paper, _, row = (name or "").partition("/")
    if not row:
        raise ZentenceError("--show needs paper/row, for example surprisingly-effective-fix/fix-4; see --list")
    settings = plain(rows_of(paper, [row])[0].settings(variant, changes))
    if json:
        print_json(settings)
    else:
        print(tomli_w.dumps(settings), end="")


def _write_docs(results: Path, path: Path, json: bool) -> None:
    from zentence.files import write_atomically
    from zentence.reproduce.documents import TITLE, write_page

    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(TITLE):
        raise ZentenceError(f"{path} exists and was not written by --write-docs: choose another file")
    page, count = write_page(results)
    write_atomically(path, page)
    if json:
        print_json({"page": str(path), "results": count})
    else:
        print(f"The page is in {path}, from {count} files of results.")


def _plot(paper: str, split: Any, results: Path, folder: Path, json: bool) -> None:
    from zentence.reproduce.plots import draw_all
    from zentence.reproduce.results import read_stored, result_path
    from zentence.reproduce.rows import check_paper

    check_paper(paper)
    stored = {
        f"{name}, ended early" if changed else name: read_stored(
            result_path(results, paper, name, split, changed=changed), paper, name, split
        )
        for name in ("faithful", "quick")
        for changed in (False, True)
    }
    drawn = draw_all(paper, stored, folder)
    if json:
        print_json([str(path) for path in drawn])
    else:
        print_lines([str(path) for path in drawn])


def tune(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (paper/row@quick too) or a TOML file.")],
    corpus: Annotated[list[str], typer.Argument(help="Training text, one sentence a line.")],
    valid: Annotated[list[str], typer.Option("--valid", help="Validation file; default: a share of the corpus.")] = [],  # noqa: B006
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials in all, those of earlier calls counted.")] = 20,
    objective: Annotated[str, typer.Option("--objective", help="The validation metric to improve.")] = "iw_nll",
    space: Annotated[
        list[str],
        typer.Option(
            "--space",
            metavar="KEY=LOW:HIGH[:log]|A,B,C",
            help="A setting to search over; default: learning rate, dropout, and the rate's target.",
        ),
    ] = [],  # noqa: B006
    set_: Annotated[list[str], typer.Option("--set", metavar="A.B=C", help="Change a setting of every trial.")] = [],  # noqa: B006
    out: Annotated[Path, typer.Option("--out", help="Folder of the trials.")] = Path("runs/tune"),
    storage: Annotated[
        Path | None,
        typer.Option("--storage", help="File of the study (.db: SQLite); default: <out>/study.journal."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the search.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    json: Json = False,
) -> None:
    """Search for better settings of a recipe on a text; the same command goes on with an interrupted search.

    Trials that do worse than others at the same validation are ended early. A picture shows which settings matter.
    """
    from zentence.reproduce.space import written
    from zentence.reproduce.tune import Task
    from zentence.reproduce.tune import tune as run
    from zentence.training.loop import InterruptedTraining

    task = Task(recipe, tuple(corpus), tuple(valid), out, objective, tuple(set_), seed)
    try:
        with _displays(quiet) as show:
            found = run(task, trials, space, storage, lambda line: typer.echo(line, err=True), [show])
    except (InterruptedTraining, KeyboardInterrupt):
        typer.echo("Saved. Go on with the same command.", err=True)
        raise typer.Exit(130) from None
    if json:
        from dataclasses import asdict

        print_json({**asdict(found), "plot": None if found.plot is None else str(found.plot)})
        return
    ended = sum(trial.state == "pruned" for trial in found.trials)
    print(f"{len(found.trials)} trials, {ended} of them ended early")
    if found.best is not None:
        print(f"best {found.objective}: {found.best.value:.3f}, trial {found.best.number}")
        print_lines([f"  --set {key}={written(value)}" for key, value in found.best.settings.items()])
    for key, value in sorted(found.importance.items(), key=lambda item: -item[1]):
        print(f"importance {value:.2f}  {key}")
    if found.plot is not None:
        print(f"The picture is in {found.plot}.")

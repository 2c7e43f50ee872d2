"""`zentence report`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.output import Device, Json, Seed, Threads, print_json
from zentence.errors import ZentenceError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Model directories with results.json.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", help="The HTML file; pictures go to a folder beside it, <name>-images.")
    ] = Path("report.html"),
    text: Annotated[
        Path | None,
        typer.Option("--text", help="Text for examples and code maps; default: the validation text of each training."),
    ] = None,
    labels: Annotated[
        str, typer.Option("--labels", help="auto, yes or no: lines of --text are label<TAB>sentence.")
    ] = "auto",
    examples: Annotated[
        bool, typer.Option("--examples/--no-examples", help="Let the models write; without, no text is shown.")
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing report.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write a page on runs: a verdict in words, figures, curves, code maps and examples, in one HTML file."""
    from zentence.report import write_report

    if labels not in ("auto", "yes", "no"):
        raise ZentenceError(f"--labels {labels}: choose one of auto, yes, no")
    with _bars() as progress:
        written = write_report(
            runs,
            out,
            overwrite=overwrite,
            text=text,
            labels=labels,  # type: ignore[arg-type]
            examples=examples,
            seed=seed,
            device=device,
            threads=threads,
            progress=progress,
        )
    if json:
        print_json(
            {"report": str(written.path), "images": [str(path) for path in written.images], "verdict": written.verdicts}
        )
        return
    for name, verdict in written.verdicts.items():
        print(f"{name}: {verdict}")
    pictures = f"; its {len(written.images)} pictures also in {written.images[0].parent}" if written.images else ""
    print(f"The report is in {written.path}{pictures}.")


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield progress(what, done, total): a bar for each piece of work, one after the other."""
    from zentence.training.progress import progress_bar

    with ExitStack() as stack:
        current: list[tuple[str, Callable[[int], None]]] = []

        def progress(what: str, done: int, total: int) -> None:
            if not current or current[-1][0] != what:
                stack.close()
                current.append((what, stack.enter_context(progress_bar(what, total, unit="parts"))))
            current[-1][1](done)

        yield progress

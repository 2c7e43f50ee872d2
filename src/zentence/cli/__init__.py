"""The command line. Nothing heavy is imported before a command needs it."""

import os
import re
import sys
from difflib import get_close_matches
from time import sleep
from typing import Any

import typer

from zentence.cli import (
    codes,
    compare,
    corpus,
    demo,
    dialog,
    evaluate,
    hub,
    label_control,
    model,
    moves,
    parts,
    report,
    reproduce,
    serve,
    tasks,
    train,
    understand,
    weights,
)
from zentence.errors import ZentenceError

app = typer.Typer(
    name="zentence",
    help="Latent-variable language models: train them on any text, know honestly what they learnt, use their space.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # click's, or that of typer's own copy of click, by version
ALONE_SECONDS = 10.0
app.command()(demo.demo)
app.command()(train.train)
app.add_typer(corpus.app, name="corpus")
app.command()(evaluate.evaluate)
app.command()(report.report)
app.command()(compare.compare)
app.command()(compare.convert)
app.command()(compare.verify)
app.command()(reproduce.reproduce)
app.command()(reproduce.tune)
app.command()(model.sample)
app.command()(moves.reconstruct)
app.command()(moves.interpolate)
app.command()(moves.analogy)
app.command()(moves.edit)
app.command()(moves.traverse)
app.command()(codes.encode)
app.command()(codes.decode)
app.command()(codes.index)
app.command()(codes.neighbours)
app.command("map")(codes.map_)
app.command()(model.score)
app.command()(serve.explore)
app.command()(serve.serve)
app.command()(tasks.classify)
app.command()(understand.understand)
app.command()(understand.glue)
app.command()(tasks.rank)
app.command()(tasks.answer)
app.add_typer(label_control.app, name="label-control")
app.add_typer(dialog.app, name="dialog")
app.command()(hub.export)
app.command()(hub.publish)
app.command()(weights.weights)
app.command()(parts.parts)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Show the version and leave.")
) -> None:
    if version:
        from zentence import __version__

        print(f"zentence {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run a command; a user's mistake is one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: nothing to say
        code = 141
    except ZentenceError as error:
        code = _complain(str(error))
    except USAGE_ERROR as error:
        code = _complain(_usage(error))
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Any) -> str:
    near = get_close_matches(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or [], n=1)
    if near:
        return f"No such option: {error.option_name}. Did you mean '{near[0]}'?"
    return re.sub(r"(Did you mean '[^']+'), .*", r"\1?", str(error.format_message()))  # one suggestion, the nearest


def _complain(message: str) -> int:
    if int(os.environ.get("LOCAL_RANK", "0")) > 0:
        sleep(ALONE_SECONDS)  # the first process has the same to say, and torchrun then ends this one
    print(f"zentence: {' '.join(message.split())}", file=sys.stderr)
    return 2

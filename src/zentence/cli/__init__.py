"""The command line. Nothing heavy is imported before a command needs it."""

import os
import sys

import click
import typer

from zentence.cli import corpus, demo, evaluate, model, parts, train
from zentence.errors import ZentenceError

app = typer.Typer(
    name="zentence",
    help="Latent-variable language models: train them on any text, know honestly what they learnt, use their space.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(train.train)
app.add_typer(corpus.app, name="corpus")
app.command()(evaluate.evaluate)
app.command()(model.sample)
app.command()(model.reconstruct)
app.command()(model.interpolate)
app.command()(model.encode)
app.command()(model.score)
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
    except click.ClickException as error:
        code = _complain(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        print("zentence: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> int:
    print(f"zentence: {' '.join(message.split())}", file=sys.stderr)
    return 2

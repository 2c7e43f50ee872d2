"""`zentence train`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.output import Json, measurement_lines, print_json, print_lines


def train(
    corpus: Annotated[
        list[str],
        typer.Argument(help="Text files, one sentence a line (also .gz, label<TAB>sentence); - is standard input."),
    ],
    valid: Annotated[list[str], typer.Option("--valid", help="Validation file; default: a share of the corpus.")] = [],  # noqa: B006
    test: Annotated[list[str], typer.Option("--test", help="Test file; default: a share of the corpus.")] = [],  # noqa: B006
    recipe: Annotated[str | None, typer.Option("--recipe", help="A recipe's name or a TOML file.")] = None,
    set_: Annotated[
        list[str], typer.Option("--set", metavar="A.B=C", help="Change a setting, for example stages.0.epochs=3.")
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option("--out", help="Model directory; default: runs/<corpus name>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the model directory.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the model directory holds.")] = False,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", help="Start from the weights of this model directory.")
    ] = None,
    reset: Annotated[
        list[str], typer.Option("--reset", help="With --init-from: a part that starts anew, for example decoder.")
    ] = [],  # noqa: B006
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="Updates in all.")] = None,
    max_minutes: Annotated[
        float | None, typer.Option("--max-minutes", help="End after so much training, wherever it stands.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Everything random follows from it.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="float32, bfloat16 where the machine can do it, or auto.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads; default: all cores.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    json: Json = False,
) -> None:
    """Train a model on text, and measure it on the validation split."""
    from zentence import distributed
    from zentence.build import complete
    from zentence.checkpoint import inherit, load_settings_of
    from zentence.evaluation.measurement import read_results
    from zentence.parts import plain
    from zentence.settings import override, read_recipe, settings_from
    from zentence.training.directory import default_directory
    from zentence.training.loop import InterruptedTraining
    from zentence.training.progress import Display
    from zentence.training.run import train as run

    changes = list(set_)
    flags: dict[str, object] = {"max_steps": max_steps, "max_minutes": max_minutes, "seed": seed}
    flags |= {"device": device, "precision": precision, "threads": threads}
    changes += [f"training.{name}={value}" for name, value in flags.items() if value is not None]
    if init_from is not None:
        changes.append(f"init_from={init_from}")
    if reset:
        changes.append(f"stages.0.reset={list(reset)}")
    folder = out or Path(default_directory(corpus))
    if resume and recipe is None and (folder / "settings.toml").is_file():
        content = plain(load_settings_of(folder))
    else:
        content = read_recipe(recipe or "default")
    settings = complete(inherit(settings_from(override(content, changes))))
    try:
        with Display(quiet=quiet) as display:
            result = run(
                settings,
                corpus,
                valid=valid,
                test=test,
                out=folder,
                resume=resume,
                overwrite=overwrite,
                callbacks=[display],
            )
        speaks = distributed.is_main()
    except InterruptedTraining:
        if distributed.is_main():
            typer.echo(f"Saved. Go on with the same command and --resume (model directory: {folder}).", err=True)
        raise typer.Exit(130) from None
    finally:
        distributed.end_processes()
    if not speaks:
        return
    if result.already_finished:
        limited = settings.training.max_steps is not None
        more = "--max-steps N" if limited else f"--set stages.{len(settings.stages) - 1}.epochs=N"
        print(f"This run is finished. For more: --resume {more}", file=sys.stderr if json else sys.stdout)
    measurements = read_results(folder / "results.json")
    if json:
        print_json([m.__dict__ for m in measurements])
        return
    print_lines(measurement_lines(measurements))
    print(f"The model is in {folder}. Next: zentence sample {folder} -n 5")

"""`zentence label-control train|sample|evaluate`: sentences of a wanted label from a frozen model."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.generation import CHUNK, print_json_rows
from zentence.cli.output import Device, Json, Model, Seed, Threads, load_space, print_json, print_lines
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.guided.label_control import LabelControl
    from zentence.guided.oracle import Evaluation

app = typer.Typer(help="Write sentences of a wanted label: a conditional GAN on the codes of a frozen model.")
Folder = Annotated[
    Path, typer.Argument(help="Directory of the label control, or the model directory.", show_default=False)
]
Where = Annotated[Path | None, typer.Option("--model", help="Where the model is, if it has moved since training.")]
Method = Annotated[str, typer.Option("--method", help="How words are chosen: greedy, sample or beam.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.01, help="Of sampled words.")]
ON, METHODS = ("codes", "features"), ("greedy", "sample", "beam")


@app.command()
def train(
    model: Model,
    file: Annotated[Path, typer.Option("--file", help="Labelled sentences to learn from: label<TAB>sentence.")],
    out: Annotated[Path | None, typer.Option("--out", help="Directory; default: MODEL/label-control.")] = None,
    on: Annotated[
        str, typer.Option("--on", help="What the GAN makes: codes, or features (the encoder's, before the posterior).")
    ] = "codes",
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Updates of the generator.")] = None,
    set_: Annotated[
        list[str], typer.Option("--set", metavar="A.B=C", help="Change a setting, for example gan.loss=hinge.")
    ] = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the directory.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the directory holds.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    json: Json = False,
) -> None:
    """Train a GAN on the codes of labelled sentences; the model stays as it is."""
    from contextlib import nullcontext

    from zentence.guided.label_control import default_folder, read_settings, train_label_control
    from zentence.training.loop import InterruptedTraining
    from zentence.training.progress import Display, progress_bar

    if on not in ON:
        raise ZentenceError(f"--on {on}: choose one of {', '.join(ON)}")
    given = [f"fit.seed={seed}", *([f"fit.steps={steps}"] if steps is not None else []), *set_]
    settings = read_settings(given)
    folder = out or default_folder(model, on)  # type: ignore[arg-type]
    space = load_space(model, device, threads)
    try:
        bar = nullcontext(None) if quiet else progress_bar("encoding", None, unit="sentences")
        with bar as update, Display(quiet=quiet) as display:
            result = train_label_control(
                space,
                file,
                folder,
                on=on,  # type: ignore[arg-type]
                options=settings.gan,
                settings=settings.fit,
                resume=resume,
                overwrite=overwrite,
                callbacks=[display],
                progress=update,
            )
    except InterruptedTraining:
        typer.echo(f"Saved. Go on with the same command and --resume (directory: {folder}).", err=True)
        raise typer.Exit(130) from None
    if json:
        print_json(
            {
                "folder": str(folder),
                "steps": result.state.update,
                "criterion": result.state.best_value,
                "seconds": round(result.state.seconds, 1),
                "already_finished": result.already_finished,
            }
        )
        return
    if result.already_finished:
        print("This run is finished. For more: --resume --steps N")
    print(f"criterion (distance to codes of held-out sentences, and labels obeyed): {result.state.best_value:.4f}")
    print(f"Next: zentence label-control sample {folder} --label LABEL -n 5")


@app.command()
def sample(
    folder: Folder,
    label: Annotated[list[str], typer.Option("--label", help="A label of the training file; or several.")],
    n: Annotated[int, typer.Option("-n", min=1, help="How many sentences of each label.")] = 10,
    gaussian: Annotated[bool, typer.Option("--gaussian", help="Codes from the label's Gaussian, not the GAN.")] = False,
    method: Method = "sample",
    temperature: Temperature = 0.9,
    model: Where = None,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write sentences of a label."""
    from zentence.training.progress import progress_bar

    words = _words(method, temperature)
    control = _load(folder, model, device, threads)
    for name in label:
        control.number_of(name)  # complains before anything is written

    def written() -> Iterator[tuple[str, str]]:
        for number, name in enumerate(label):
            for first in range(0, n, CHUNK):
                count = min(CHUNK, n - first)
                texts = control.write(name, count, seed=seed, first=first, gaussian=gaussian, **words)
                update(number * n + first + count)
                yield from ((name, text) for text in texts)

    with progress_bar("sampling", n * len(label), unit="sentences") as update:
        if json:
            rows = ({"label": name, "text": text} for name, text in written())
            print_json_rows(rows, "sentences", seed=seed, source="gaussian" if gaussian else "gan", **words)
        else:
            for name, text in written():
                print(f"{name}\t{text}" if len(label) > 1 else text)


@app.command()
def evaluate(
    folder: Folder,
    file: Annotated[Path, typer.Option("--file", help="The evaluation set: label<TAB>sentence.")],
    train: Annotated[
        Path | None, typer.Option("--train", help="Real text for the oracle; default: the file of training.")
    ] = None,
    n: Annotated[int, typer.Option("-n", min=2, help="Sentences of each label in each row.")] = 1000,
    beside: Annotated[
        list[Path],
        typer.Option("--beside", help="A label control of another model (such as an auto-encoder) in further rows."),
    ] = [],  # noqa: B006
    method: Method = "sample",
    temperature: Temperature = 0.9,
    model: Where = None,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure label control: an oracle's accuracy, BLEU against the evaluation set, G-score, self-BLEU."""
    from zentence.guided.oracle import evaluate_label_control
    from zentence.training.progress import phase_bar

    words = _words(method, temperature)
    control = _load(folder, model, device, threads)
    others = [_load(other, None, device, threads) for other in beside]
    with phase_bar() as progress:
        found = evaluate_label_control(
            control, file, train=train, each=n, beside=others, seed=seed, words=words, progress=progress
        )
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_lines(found))


def _words(method: str, temperature: float) -> dict[str, Any]:
    if method not in METHODS:
        raise ZentenceError(f"--method {method}: choose one of {', '.join(METHODS)}")
    return {"method": method, "temperature": temperature}


def _load(folder: Path, model: Path | None, device: str, threads: int | None) -> "LabelControl":
    from zentence.guided.label_control import LabelControl

    return LabelControl.load(folder, lambda where: load_space(where, device, threads), model)


def _lines(found: "Evaluation") -> list[str]:
    width = max(map(len, found.rows))
    lines = [
        f"oracle: {found.oracle_accuracy:.1%} of {found.references:,} evaluation sentences right, learnt from "
        f"{found.oracle_sentences:,} real ones",
        f"{found.each:,} sentences of each label ({', '.join(found.labels)}) in each row",
        f"{'':<{width}}  {'accuracy':>13}  {'BLEU':>13}  {'G-score':>7}  {'self-BLEU':>9}  {'distinct':>8}",
    ]
    for name, row in found.rows.items():
        accuracy, bleu = f"{row.accuracy:.3f} ± {row.accuracy_error:.3f}", f"{row.bleu:.3f} ± {row.bleu_error:.3f}"
        figures = f"{accuracy:>13}  {bleu:>13}  {row.g_score:>7.3f}  {row.self_bleu:>9.3f}  {row.distinct:>8.1%}"
        lines.append(f"{name:<{width}}  {figures}")
    return lines

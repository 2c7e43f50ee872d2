"""`zentence dialog train|respond|chat|evaluate`: responses to what was said, perhaps in a style."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.generation import Words, writes_sentences
from zentence.cli.output import Device, Json, Seed, Threads, print_json, print_lines
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.guided.dialog_evaluate import Answered, Evaluation
    from zentence.guided.dialog_space import DialogSpace

app = typer.Typer(help="Train a model to respond (SpaceFusion; with a style, StyleFusion), talk to it, measure it.")

DialogFolder = Annotated[Path, typer.Argument(help="Directory of a dialog model.", show_default=False)]
Radius = Annotated[
    float | None,
    typer.Option(
        "--radius",
        min=0.0,
        help="How far from the context's code responses are written: 1 is as far as real ones are. "
        "Default: 0.5; sequence to sequence: 0.",
    ),
]
Around = Annotated[
    str,
    typer.Option(
        "--around",
        help="scatter: in directions in which real responses lie; sphere: in all directions, the radius being the root "
        "mean square over dimensions.",
    ),
]
Strength = Annotated[
    float, typer.Option("--strength", min=0.0, max=1.0, help="How far codes move to the style's: 0 not, 1 all the way.")
]
Towards = Annotated[str, typer.Option("--towards", help="Which code of the style: their mean, or the nearest.")]
SEPARATED = "Turns, each ended or separated by __eou__, the latest last."


@app.command()
def train(
    model: Annotated[
        Path | None,
        typer.Argument(help="Trained model directory to start from; none: a new model.", show_default=False),
    ] = None,
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            help="Dialogues: one a line, turns ended by __eou__; or context<TAB>response.",
            show_default=False,
        ),
    ] = ...,  # type: ignore[assignment]
    valid: Annotated[Path | None, typer.Option("--valid", help="Validation file; default: a share of --file.")] = None,
    style: Annotated[
        Path | None, typer.Option("--style", help="Sentences in a style, one a line: learnt beside the dialogues.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Directory to write.")] = Path("runs/dialog"),
    objective: Annotated[
        str, typer.Option("--objective", help="fusion; or s2s, sequence to sequence alone: the baseline.")
    ] = "fusion",
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Recipe of a new model: a name or a TOML file; default: default.")
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="A.B=C",
            help="Change a setting: dialog.… (fusion_weight, push_cap, noise, turns, …), fit.… (learning_rate, …), "
            "or one of a new model's recipe.",
        ),
    ] = [],  # noqa: B006
    epochs: Annotated[float, typer.Option("--epochs", min=0.0, help="Passes over the pairs.")] = 5.0,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Updates; instead of --epochs.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the directory.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the directory holds.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    json: Json = False,
) -> None:
    """Train a dialog model: contexts and responses in one space, and what lies between them decodes, too."""
    from zentence.guided.dialog_loss import DialogOptions
    from zentence.guided.dialog_train import DialogRun, train_dialog
    from zentence.parts import parse_options
    from zentence.settings import override, read_recipe, settings_from
    from zentence.training.fit import FitSettings
    from zentence.training.loop import InterruptedTraining
    from zentence.training.progress import Display

    groups = _groups(set_)
    if model is not None and (recipe is not None or groups["recipe"]):
        raise ZentenceError("--recipe and settings of a recipe are for new models: leave them out, or leave MODEL out")
    options = parse_options("dialog", DialogOptions, {"objective": objective, **groups["dialog"]})
    given = {"seed": seed, **({} if steps is None else {"steps": steps}), **groups["fit"]}
    parse_options("fit", FitSettings, given)  # complains before any text is read
    settings = settings_from(override(read_recipe(recipe or "default"), groups["recipe"]))
    run = DialogRun(file, valid, style, model, options, epochs, device, threads)
    try:
        with Display(quiet=quiet) as display:
            result = train_dialog(
                run, settings, out, fit_options=given, resume=resume, overwrite=overwrite, callbacks=[display]
            )
    except InterruptedTraining:
        typer.echo(f"Saved. Go on with the same command and --resume (directory: {out}).", err=True)
        raise typer.Exit(130) from None
    if result.already_finished:
        print("This run is finished. For more: --resume --steps N", file=sys.stderr)
    if json:
        print_json({"task": "dialog", "folder": str(out), "objective": options.objective, **result.record})
        return
    print_lines(_training_lines(result.record))
    print(f'The dialog model is in {out}. Next: zentence dialog respond {out} "how are you ?"')


def _groups(changes: list[str]) -> dict[str, Any]:
    """Sort `--set` by what they are about; those of dialog and fit are read."""
    from zentence.settings import override

    apart = {name: [text for text in changes if text.strip().startswith(f"{name}.")] for name in ("dialog", "fit")}
    rest = [text for text in changes if text not in [*apart["dialog"], *apart["fit"]]]
    return {"recipe": rest, **{name: override({}, texts).get(name, {}) for name, texts in apart.items()}}


def _training_lines(record: dict[str, Any]) -> list[str]:
    names = {
        "distortion": "response from its context, nats",
        "autoencoding": "response from itself, nats",
        "between": "response from between the two, nats",
        "pull": "distance of context and response",
        "within_context": "distance of nearest contexts",
        "within_response": "distance of nearest responses",
    }
    figures = record["figures"]
    lines = [f"{names[name]:<36}{figures[name]:>8.3f}" for name in names if name in figures]
    if record["judges"] is not None:
        found = record["judges"]["accuracy"]
        lines.append(f"classifiers of the style: neural {found['neural']:.1%}, n-gram {found['ngram']:.1%} right")
    return lines


@app.command()
@writes_sentences
def respond(
    model: DialogFolder,
    context: Annotated[str, typer.Argument(help=SEPARATED, show_default=False)],
    n: Annotated[int, typer.Option("-n", min=1, help="How many responses.")] = 10,
    radius: Radius = None,
    around: Around = "scatter",
    strength: Strength = 0.0,
    towards: Towards = "mean",
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write responses to a context."""
    from zentence.corpora.dialogues import split_turns

    turns = split_turns(context)
    if not turns:
        raise ZentenceError("The context is empty: give at least one turn")
    words.options(seed)  # complains before the model is read
    dialog = _load(model, device, threads)
    used = dialog.radius if radius is None else radius
    choice = _choice(words, seed)
    (found,) = dialog.respond([turns], n, radius=used, around=around, strength=strength, towards=towards, **choice)
    scores = dialog.style_scores(found) if dialog.judges is not None else None
    if json:
        document = {"task": "dialog", "context": list(turns), "radius": used, "strength": strength, "seed": seed}
        style = None if scores is None else {name: values.tolist() for name, values in scores.items()}
        print_json({**document, "method": choice["method"], "responses": found, "style": style})
        return
    print_lines(found)


@app.command()
def chat(
    model: DialogFolder,
    radius: Annotated[
        float, typer.Option("--radius", min=0.0, help="How far from the context's code; 1: as far as real responses.")
    ] = 0.0,
    strength: Strength = 0.0,
    towards: Towards = "mean",
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Talk with a model, line by line; Ctrl-D (end of input) or Ctrl-C ends it. With --json, all is printed at the end.

    The model remembers as many turns as it was trained with, its own included.
    """
    dialog = _load(model, device, threads)
    turns: list[str] = []
    shows = sys.stdin.isatty() and not json
    if shows:
        print("Say something; Ctrl-D ends the talk.", file=sys.stderr)
    try:
        while True:
            if shows:
                print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                break
            said = " ".join(line.split())
            if not said:
                continue
            turns.append(said)
            moves: dict[str, Any] = {"radius": radius, "strength": strength, "towards": towards}
            # `first` gives every turn noise of its own
            (found,) = dialog.respond([turns], 1, seed=seed, first=len(turns), method="greedy", **moves)
            turns.append(found[0] or "…")
            if not json:
                print(turns[-1], flush=True)
    except KeyboardInterrupt:
        if shows:
            print(file=sys.stderr)
    if json:
        print_json({"task": "dialog", "radius": radius, "strength": strength, "seed": seed, "turns": turns})


@app.command()
@writes_sentences
def evaluate(
    model: DialogFolder,
    file: Annotated[Path, typer.Option("--file", help="Dialogues to be measured on.", show_default=False)],
    beside: Annotated[
        list[Path], typer.Option("--beside", help="A further dialog model to measure on the same, as a baseline.")
    ] = [],  # noqa: B006
    n: Annotated[int, typer.Option("-n", min=1, help="Responses to each context.")] = 10,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Contexts, evenly spread over the file; default: all.")
    ] = None,
    radius: Radius = None,
    around: Around = "scatter",
    strength: Annotated[
        str, typer.Option("--strength", help="Strengths of the style, 0 to 1, as in 0,0.25,0.5,1.")
    ] = "0",
    towards: Towards = "mean",
    examples: Annotated[int, typer.Option("--examples", min=0, help="Contexts shown with their responses.")] = 3,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure responses against what was said: BLEU recall (the best of n), precision (their mean), F1; and style."""
    from zentence.guided.dialog_evaluate import count_responses, evaluate_dialog
    from zentence.training.progress import progress_bar

    strengths = _strengths(strength)
    words.options(seed)  # complains before anything is read
    total = count_responses(file)
    models = [(str(folder), _load(folder, device, threads)) for folder in (model, *beside)]
    with progress_bar("responding", min(limit or total, total), unit="contexts") as update:
        found = evaluate_dialog(
            models,
            file,
            responses=n,
            limit=limit,
            radius=radius,
            around=around,
            strengths=strengths,
            towards=towards,
            examples=examples,
            progress=update,
            **_choice(words, seed),
        )
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_evaluation_lines(found))


def _load(folder: Path, device: str, threads: int | None) -> "DialogSpace":
    from zentence.guided.dialog_space import DialogSpace

    return DialogSpace.load(folder, device, threads)


def _choice(words: Words, seed: int) -> dict[str, Any]:
    """Return how words are chosen: as the options say; where they say nothing, as is usual for responses."""
    from zentence.guided.dialog_space import WORDS

    choice = words.options(seed, WORDS["method"])
    if words.max_words == Words.max_words:
        choice["max_words"] = WORDS["max_words"]
    return {**choice, "forbid_unknown": True}


def _strengths(text: str) -> list[float]:
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = [-1.0]
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ZentenceError(f"--strength {text}: write numbers from 0 to 1 with commas between them, as in 0,0.5,1")
    return values


def _evaluation_lines(found: "Evaluation") -> list[str]:
    scores = found.rows[0].scores
    contexts, responses = scores.bleu.shape
    lines = [
        f"{contexts:,} contexts, {responses} responses each; sentence BLEU, n ≤ 3, smoothing 7; seed {found.seed}",
        f"{'model':<28}{'objective':<11}{'radius':>7}  {'words':<7}"
        f"{'recall':>17}{'precision':>17}{'F1':>17}{'distinct':>10}",
    ]
    lines += [_row_line(row) for row in found.rows]
    for row, difference in zip(found.rows[1:], found.differences(), strict=True):
        error = "" if difference["error"] is None else f" ± {difference['error']:.4f}"
        lines.append(f"F1 of {_row_name(row)} − F1 of {_row_name(found.rows[0])}: {difference['f1']:+.4f}{error}")
    if found.real_style is not None:
        lines.append(f"{'style, mean probability':<28}{'neural':>8}{'n-gram':>8}")
        for row in found.rows:
            if row.style is not None:
                lines.append(f"{_row_name(row):<28}{row.style['neural']:>8.3f}{row.style['ngram']:>8.3f}")
        lines.append(f"{'what was really said':<28}{found.real_style['neural']:>8.3f}{found.real_style['ngram']:>8.3f}")
    for number, exchange in enumerate(found.exchanges):
        lines += ["", *(f"  {turn}" for turn in exchange.context), f"  said: {exchange.response}"]
        for row in found.rows:
            lines += [f"    {_row_name(row)}: {text}" for text in row.examples[number][:3]]
    return lines


def _row_name(row: "Answered") -> str:
    return Path(row.model).name + (f" at {row.strength:g}" if row.style is not None else "")


def _row_line(row: "Answered") -> str:
    found = row.scores.to_dict()
    cells = []
    for name in ("recall", "precision", "f1"):
        error = found[name]["error"]
        cells.append(f"{found[name]['value']:.4f}" + ("" if error is None else f" ± {error:.4f}"))
    start = f"{_row_name(row):<28}{row.objective:<11}{row.radius:>7g}  {row.method:<7}"
    return start + "".join(f"{cell:>17}" for cell in cells) + f"{found['distinct']['value']:>10.2f}"

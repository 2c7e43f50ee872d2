"""Commands that move in a model's space: reconstruct, interpolate, analogy, edit, traverse."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.generation import (
    TextFile,
    Texts,
    Words,
    checked_chunks,
    given_sentences,
    print_json_rows,
    stream_texts,
    writes_sentences,
)
from zentence.cli.output import (
    Device,
    Json,
    Model,
    Seed,
    Threads,
    check_words,
    load_space,
    print_json,
    print_lines,
    warn,
)
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.latent.moves import MeanCode, Rates
    from zentence.latent.space import LatentSpace

RATE_SENTENCES = 2000  # whose rates order the dimensions of a traversal

Strength = Annotated[float, typer.Option("--strength", help="Factor of the difference; 0 changes nothing.")]


@writes_sentences
def reconstruct(
    model: Model,
    sentences: Texts = None,
    file: TextFile = None,
    from_sample: Annotated[bool, typer.Option("--sample", help="From a posterior sample, not the mean.")] = False,
    perturb: Annotated[
        float | None,
        typer.Option("--perturb", min=0.0, help="From the mean + this many posterior standard deviations × noise."),
    ] = None,
    side_by_side: Annotated[
        bool, typer.Option("--side-by-side", help="From mean, sample and perturbed mean (--perturb, else 10).")
    ] = False,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Encode sentences and decode their codes: what is kept of each."""
    from zentence.training.progress import progress_bar

    texts, options = given_sentences(sentences, file), words.options(seed)
    if from_sample and (perturb is not None or side_by_side):
        raise ZentenceError("--sample, --perturb and --side-by-side: give one way to reconstruct (or the last two)")
    space = load_space(model, device, threads)
    chosen: dict[str, dict[str, Any]] = {"mean": {}, "sample": {"sample": True}, "perturbed": {"perturb": perturb}}
    if side_by_side:
        chosen["perturbed"] = {"perturb": 10.0 if perturb is None else perturb}
    else:
        name = "sample" if from_sample else "mean" if perturb is None else "perturbed"
        chosen = {name: chosen[name]}

    def rows() -> Iterator[dict[str, str]]:
        for first, chunk in checked_chunks(space, texts):
            written = {name: space.reconstruct(chunk, first=first, **ways, **options) for name, ways in chosen.items()}
            for place, text in enumerate(chunk):
                found = {name: lines[place] for name, lines in written.items()}
                yield {"sentence": text, "reconstruction": next(iter(found.values())), **found}
            update(first + len(chunk))

    with progress_bar("reconstructing", None, unit="sentences") as update:
        if json:
            print_json_rows(rows())
        else:
            labels = {"perturbed": f"perturbed × {chosen['perturbed']['perturb']:g}"} if side_by_side else {}
            for row in rows():
                print_lines(_shown(row, file is not None, labels, side_by_side))


def _shown(row: dict[str, str], from_file: bool, labels: dict[str, str], side_by_side: bool) -> list[str]:
    if side_by_side:
        names = ("mean", "sample", "perturbed")
        return [row["sentence"], *(f"  {labels.get(name, name):<14} -> {row[name]}" for name in names)]
    return [row["reconstruction"]] if from_file else [row["sentence"], f"  -> {row['reconstruction']}"]


@writes_sentences
def interpolate(
    model: Model,
    a: Annotated[str | None, typer.Argument(help="First sentence.", show_default=False)] = None,
    b: Annotated[str | None, typer.Argument(help="Last sentence.", show_default=False)] = None,
    steps: Annotated[int, typer.Option("--steps", min=2, max=1000, help="Points on the way, ends included.")] = 7,
    path: Annotated[
        str, typer.Option("--path", help="linear, or spherical: an arc about the prior's centre.")
    ] = "linear",
    from_sample: Annotated[bool, typer.Option("--sample", help="Between posterior samples, not means.")] = False,
    prior: Annotated[bool, typer.Option("--prior", help="Between two codes drawn from the prior.")] = False,
    scale: Annotated[float, typer.Option("--scale", min=0.0, help="--prior: spread of the codes.")] = 1.0,
    drop_repeats: Annotated[
        bool, typer.Option("--drop-repeats", help="Leave out sentences equal to the last.")
    ] = False,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Walk from one sentence to another through the space of codes; first and last are the ends' reconstructions."""
    if prior and (a is not None or from_sample):
        raise ZentenceError("--prior draws both ends: give no sentences, and no --sample")
    if not prior and (a is None or b is None):
        raise ZentenceError("Give two sentences, or --prior")
    options = words.options(seed)
    space = load_space(model, device, threads)
    from zentence.latent import moves

    if prior:
        ends = moves.prior_ends(space, seed=seed, scale=scale)
    else:
        check_words(space, [str(a), str(b)])
        ends = moves.ends_between(space, str(a), str(b), sample=from_sample, seed=seed)
    way = moves.walk(space, ends, steps=steps, path=path, **options)
    kept = moves.without_repeats(way) if drop_repeats else way
    if json:
        said = {"between": "prior" if prior else "samples" if from_sample else "means", "path": path}
        drawn = {"scale": scale} if prior else {}
        found = {"reconstructions": [way[0].sentence, way[-1].sentence], "sentences": [s.sentence for s in kept]}
        rest = {"at": [s.at for s in kept], "seed": seed, "method": options["method"]}
        print_json({"a": a, "b": b, **said, **drawn, **found, **rest})
    else:
        print_lines([step.sentence for step in kept])


@writes_sentences
def analogy(
    model: Model,
    a: Annotated[str, typer.Argument(help="A sentence A.", show_default=False)],
    b: Annotated[str, typer.Argument(help="What became of it, B.", show_default=False)],
    c: Annotated[str, typer.Argument(help="A sentence C, to change likewise.", show_default=False)],
    strength: Strength = 1.0,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write what is to C as B is to A: the sentence at z_C + strength × (z_B − z_A)."""
    options = words.options(seed)
    space = load_space(model, device, threads)
    check_words(space, [a, b, c])
    written = space.analogy(a, b, c, strength=strength, **options)
    if json:
        ends = space.reconstruct([a, b, c], **options)
        said = {"a": a, "b": b, "c": c, "strength": strength, "sentence": written, "reconstructions": ends}
        print_json({**said, "seed": seed, "method": options["method"]})
    else:
        print_lines([written])


@writes_sentences
def edit(
    model: Model,
    sentences: Texts = None,
    *,
    add: Annotated[Path, typer.Option("--add", help="Sentences that have the attribute.", show_default=False)],
    subtract: Annotated[Path, typer.Option("--subtract", help="Sentences without it.", show_default=False)],
    strength: Strength = 1.0,
    file: TextFile = None,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Add an attribute to sentences: strength × (mean code of one file − mean code of another)."""
    import numpy as np

    from zentence.latent.moves import shifted
    from zentence.training.progress import progress_bar

    texts, options = given_sentences(sentences, file), words.options(seed)
    space = load_space(model, device, threads)
    plus, minus = _mean(space, add), _mean(space, subtract)
    direction = plus.code - minus.code
    shifted(direction, direction, strength)  # complains of a strength that is no number before text is read

    def rows() -> Iterator[dict[str, str]]:
        for first, chunk in checked_chunks(space, texts):
            edited = space.edit(chunk, direction, strength=strength, first=first, **options)
            plain = space.reconstruct(chunk, first=first, **options) if json else chunk
            for text, before, after in zip(chunk, plain, edited, strict=True):
                yield {"sentence": text, "reconstruction": before, "edited": after}
            update(first + len(chunk))

    with progress_bar("editing", None, unit="sentences") as update:
        if json:
            norm = round(float(np.linalg.norm(direction)), 6)
            used = {"norm": norm, "add": plus.sentences, "subtract": minus.sentences}
            said = {"strength": strength, "direction": used, "seed": seed, "method": options["method"]}
            print_json_rows(rows(), "edits", **said)
        else:
            for row in rows():
                print_lines([row["edited"]] if file is not None else [row["sentence"], f"  -> {row['edited']}"])


def _mean(space: "LatentSpace", file: Path) -> "MeanCode":
    from zentence.latent.moves import mean_code
    from zentence.training.progress import progress_bar

    with progress_bar(f"averaging {file.name}", None, unit="sentences") as update:
        return mean_code(space, stream_texts(file), update)


@writes_sentences
def traverse(
    model: Model,
    sentence: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    dimensions: Annotated[int, typer.Option("--dimensions", min=1, help="How many, the most informative first.")] = 5,
    steps: Annotated[int, typer.Option("--steps", min=2, max=1000, help="Values that each takes.")] = 7,
    span: Annotated[
        float, typer.Option("--span", min=0.01, help="From minus to plus this many standard deviations of the prior.")
    ] = 3.0,
    rates: Annotated[
        Path | None,
        typer.Option("--rates", help="Text whose rates order the dimensions; default: the model's validation text."),
    ] = None,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Change a sentence's code in one dimension at a time, the most informative dimensions first."""
    from zentence.latent import moves

    options = words.options(seed)
    space = load_space(model, device, threads)
    check_words(space, [sentence])
    code = space.encode(sentence)
    found, source = _rates(space, rates, sentence)
    walks = moves.traverse(space, code, found.order()[:dimensions], steps=steps, span=span, **options)
    kind = "exact" if found.exact else "estimate"
    if json:
        rows = [
            {
                "dimension": walk.dimension,
                "rate": round(float(found.values[walk.dimension]), 6),
                "own": round(walk.own, 6),
                "at": [step.at for step in walk.steps],
                "sentences": [step.sentence for step in walk.steps],
            }
            for walk in walks
        ]
        said = {"sentence": sentence, "reconstruction": space.reconstruct([sentence], **options)[0]}
        ordered = {"rates_of": source, "rates_sentences": found.sentences, "rates_kind": kind, "unit": "nats"}
        print_json({**said, **ordered, "dimensions": rows, "seed": seed, "method": options["method"]})
        return
    note = "" if found.exact else ", of Gaussians with the same moments"
    count = f"{found.sentences:,} sentence{'s' if found.sentences > 1 else ''}"
    print_lines([f"Dimensions by their rate on {source} ({count}{note})"])
    for walk in walks:
        rate = found.values[walk.dimension]
        print_lines([f"dimension {walk.dimension}: {rate:.3f} nats; the sentence is at {walk.own:+.2f}"])
        print_lines([f"  {step.at:+.2f}  {step.sentence}" for step in walk.steps])


def _rates(space: "LatentSpace", file: Path | None, sentence: str) -> "tuple[Rates, str]":
    """Return the rates that order the dimensions, and the name of the text they come from."""
    from zentence.latent.moves import rates_by_dimension, validation_sentences
    from zentence.training.progress import progress_bar

    texts = stream_texts(file) if file is not None else validation_sentences(space.settings.corpus)
    source = str(file) if file is not None else "the validation text"
    if texts is None:
        warn("this model's validation text is not here: the dimensions are ordered by the sentence's own rates")
        texts, source = iter([sentence]), "the given sentence"
    with progress_bar("rates", RATE_SENTENCES, unit="sentences") as update:
        return rates_by_dimension(space, islice(texts, RATE_SENTENCES), update), source

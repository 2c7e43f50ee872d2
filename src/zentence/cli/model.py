"""Commands that use a trained model: sample, reconstruct, interpolate, encode, score."""

from pathlib import Path
from typing import Annotated, Any

import typer

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
    read_texts,
)
from zentence.errors import ZentenceError

Method = Annotated[str, typer.Option("--method", help="How words are chosen: greedy, sample or beam.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.01, help="Of sampling.")]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Sampling: only the k best words.")]
TopP = Annotated[float | None, typer.Option("--top-p", min=0.0, max=1.0, help="Sampling: nucleus.")]
Beam = Annotated[int, typer.Option("--beam", min=1, max=100, help="Beam search: sentences kept.")]
MaxWords = Annotated[int, typer.Option("--max-words", min=1, max=10_000, help="Longest sentence.")]


def _generation(
    method: str, temperature: float, top_k: int | None, top_p: float | None, beam: int, max_words: int, seed: int
) -> dict[str, Any]:
    known = ("greedy", "sample", "beam")
    if method not in known:
        raise ZentenceError(f"--method {method}: choose one of {', '.join(known)}")
    return {
        "method": method,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "beam": beam,
        "max_words": max_words,
        "seed": seed,
    }


def sample(
    model: Model,
    n: Annotated[int, typer.Option("-n", min=1, help="How many sentences.")] = 10,
    scale: Annotated[float, typer.Option("--scale", min=0.0, help="Spread of the prior's codes; 1: the prior.")] = 1.0,
    method: Annotated[
        str | None, typer.Option("--method", help="greedy, sample or beam; default: greedy from a code.")
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = 5,
    max_words: MaxWords = 100,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write new sentences, from codes drawn from the prior."""
    space = load_space(model, device, threads)
    chosen = method or ("greedy" if space.model.has_code else "sample")
    options = _generation(chosen, temperature, top_k, top_p, beam, max_words, seed)
    sentences = space.sample(n, scale=scale, **options)
    if json:
        print_json({"sentences": sentences, "scale": scale, "seed": seed, "method": chosen})
    else:
        print_lines(sentences)


def reconstruct(
    model: Model,
    sentences: Annotated[list[str] | None, typer.Argument(help="Sentences.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file of sentences; - is standard input.")] = None,
    from_sample: Annotated[bool, typer.Option("--sample", help="From a posterior sample, not the mean.")] = False,
    method: Method = "greedy",
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = 5,
    max_words: MaxWords = 100,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Encode sentences and decode their codes: what is kept of each."""
    if (file is None) == (not sentences):
        raise ZentenceError("Give sentences or --file, one of the two")
    options = _generation(method, temperature, top_k, top_p, beam, max_words, seed)
    space = load_space(model, device, threads)
    given = read_texts(file) if file is not None else list(sentences or [])
    check_words(space, given)
    written = space.reconstruct(given, sample=from_sample, **options)
    if json:
        print_json([{"sentence": a, "reconstruction": b} for a, b in zip(given, written, strict=True)])
    elif file is not None:
        print_lines(written)
    else:
        print_lines([line for a, b in zip(given, written, strict=True) for line in (a, f"  -> {b}")])


def interpolate(
    model: Model,
    a: Annotated[str, typer.Argument(help="First sentence.", show_default=False)],
    b: Annotated[str, typer.Argument(help="Last sentence.", show_default=False)],
    steps: Annotated[int, typer.Option("--steps", min=2, max=1000, help="Points on the way, ends included.")] = 7,
    method: Method = "greedy",
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = 5,
    max_words: MaxWords = 100,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Walk from one sentence to another through the space of codes."""
    options = _generation(method, temperature, top_k, top_p, beam, max_words, seed)
    space = load_space(model, device, threads)
    check_words(space, [a, b])
    sentences = space.interpolate(a, b, steps=steps, **options)
    if json:
        print_json({"a": a, "b": b, "sentences": sentences})
    else:
        print_lines(sentences)


def encode(
    model: Model,
    file: Annotated[Path, typer.Option("--file", help="A file of sentences; - is standard input.")],
    out: Annotated[Path, typer.Option("--out", help="Where the codes go: a NumPy file [N, D] of float32.")],
    from_sample: Annotated[bool, typer.Option("--sample", help="Posterior samples, not means.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write the codes of a file's sentences."""
    import io

    import numpy as np

    from zentence.files import write_atomically
    from zentence.training.progress import progress_bar

    if out.exists() and not overwrite:
        raise ZentenceError(f"{out} exists: choose another --out, or pass --overwrite")
    space = load_space(model, device, threads)
    sentences = read_texts(file)
    check_words(space, sentences)
    with progress_bar("encoding", len(sentences), unit="sentences") as update:
        codes = space.encode(sentences, sample=from_sample, seed=seed, progress=update)
    buffer = io.BytesIO()
    np.save(buffer, codes)
    write_atomically(out, buffer.getvalue())
    if json:
        print_json({"sentences": len(codes), "size": space.size, "out": str(out)})
    else:
        print(f"{len(codes):,} codes of {space.size} dimensions are in {out}")


def score(
    model: Model,
    file: Annotated[Path, typer.Option("--file", help="A file of sentences; - is standard input.")],
    samples: Annotated[int, typer.Option("--samples", min=1, help="Importance samples K (models with a code).")] = 100,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Print −log p of each sentence in nats: exact for a language model, else an upper bound."""
    from zentence.training.progress import progress_bar

    space = load_space(model, device, threads)
    sentences = read_texts(file)
    check_words(space, sentences)
    with progress_bar("scoring", len(sentences), unit="sentences") as update:
        values = space.score(sentences, samples=samples, seed=seed, progress=update)
    kind = "upper_bound" if space.model.has_code else "exact"
    if json:
        used = samples if space.model.has_code else None
        print_json({"unit": "nats", "kind": kind, "samples": used, "nll": [round(float(v), 6) for v in values]})
    else:
        print_lines([f"{value:.4f}\t{text}" for value, text in zip(values, sentences, strict=True)])

"""Commands that use a trained model: sample, score."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.generation import CHUNK, Words, checked_chunks, print_json_rows, stream_texts, writes_sentences
from zentence.cli.output import Device, Json, Model, Seed, Threads, load_space
from zentence.cli.priors import Components, Prior, PriorSentences, check_prior, swap, training_corpus


@writes_sentences
def sample(
    model: Model,
    n: Annotated[int, typer.Option("-n", min=1, help="How many sentences.")] = 10,
    scale: Annotated[float, typer.Option("--scale", min=0.0, help="Spread of the prior's codes; 1: the prior.")] = 1.0,
    prior: Prior = None,
    prior_sentences: PriorSentences = 2000,
    components: Components = 100,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write new sentences, from codes drawn from the prior, or from a prior made of training sentences."""
    from zentence.training.progress import progress_bar

    words.options(seed)  # complains before the model is read
    check_prior(prior)
    space = load_space(model, device, threads)
    if prior is not None:
        training = training_corpus(space, "leave --prior out").splits["train"]
        swap(space, prior, training, sentences=prior_sentences, components=components, seed=seed)
    options = words.options(seed, "greedy" if space.model.has_code else "sample")

    def written() -> Iterator[str]:
        for first in range(0, n, CHUNK):
            yield from space.sample(min(CHUNK, n - first), scale=scale, first=first, **options)
            update(min(n, first + CHUNK))

    with progress_bar("sampling", n, unit="sentences") as update:
        if json:
            print_json_rows(
                written(), "sentences", scale=scale, prior=prior or "model", seed=seed, method=options["method"]
            )
        else:
            for text in written():
                print(text)


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

    def scored() -> Iterator[tuple[float, str]]:
        for first, chunk in checked_chunks(space, stream_texts(file)):
            values = space.score(chunk, samples=samples, seed=seed, first=first)
            update(first + len(chunk))
            yield from zip(values.tolist(), chunk, strict=True)

    with progress_bar("scoring", None, unit="sentences") as update:
        if json:
            kind = "upper_bound" if space.model.has_code else "exact"
            used = samples if space.model.has_code else None
            rows = (round(value, 6) for value, _ in scored())
            print_json_rows(rows, "nll", unit="nats", kind=kind, samples=used)
        else:
            for value, text in scored():
                print(f"{value:.4f}\t{text}")

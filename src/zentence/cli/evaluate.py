"""`zentence evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.output import Device, Json, Model, Seed, Threads, measurement_lines, print_json, print_lines
from zentence.errors import ZentenceError


def evaluate(
    model: Model,
    split: Annotated[
        Path | None,
        typer.Option("--split", help="A text file; default: the validation text of its training."),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Importance samples K.")] = 500,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N sentences.")] = None,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure a model on any text; figures are added to its results.json."""
    from zentence.cli.output import load_space
    from zentence.corpora.prepare import open_split, prepare
    from zentence.corpora.readers import is_stream
    from zentence.corpora.source import Origin, source_nll
    from zentence.evaluation.measurement import read_results, write_results
    from zentence.evaluation.suite import evaluate_split
    from zentence.training.progress import progress_bar

    space = load_space(model, device, threads)
    if (model / "results.json").exists():
        read_results(model / "results.json")  # better now than when all is computed
    files = space.settings.corpus
    if split is None:
        if not files.train or any(is_stream(file) for file in (*files.train, *files.valid, *files.test)):
            raise ZentenceError("This model's training text is not in a file: give a file with --split")
        corpus = prepare(files, files.train, files.valid, files.test, vocabulary=space.vocabulary)
        store, name, source = corpus.splits["valid"], "valid", corpus.source_nll("valid", limit)
    else:
        store = open_split(split, space.vocabulary, files)
        name, source = split.name, source_nll([Origin(split, store.labels is not None)], limit)
    count = len(store) if limit is None else min(limit, len(store))
    with progress_bar(f"evaluating {name}", count, unit="sentences") as update:
        measurements = evaluate_split(
            space.model,
            store,
            space.settings,
            split=name,
            samples=samples,
            seed=seed,
            limit=limit,
            source_nll=source,
            progress=lambda done, _total: update(done),
        )
    write_results(model / "results.json", measurements)
    if json:
        print_json([m.__dict__ for m in measurements])
    else:
        print_lines([*store.ledger.describe().splitlines(), *measurement_lines(measurements)])

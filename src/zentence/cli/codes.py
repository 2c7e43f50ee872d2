"""Commands in the space of codes: encode, decode, index, neighbours, map."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.generation import Words, print_json_rows, writes_sentences
from zentence.cli.output import (
    Beside,
    Device,
    FeaturesOption,
    Json,
    Model,
    Seed,
    Threads,
    load_space,
    print_json,
    print_lines,
    warn,
)
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.latent.neighbours import Index
    from zentence.latent.space import Codes, LatentSpace
    from zentence.latent.streams import Progress

File = Annotated[Path, typer.Option("--file", help="A file of sentences; - is standard input.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")]
METHODS = {"pca": ("pca",), "tsne": ("tsne",), "both": ("pca", "tsne")}
COLOURS = ("label", "length", "likelihood")


def encode(
    model: Model,
    file: File,
    out: Annotated[Path, typer.Option("--out", help="Where the codes go: a NumPy file [N, D] of float32.")],
    from_sample: Annotated[bool, typer.Option("--sample", help="Posterior samples, not means.")] = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write the codes of a file's sentences; a run that was ended goes on where it stopped."""
    from zentence.latent.streams import encode_file

    _check_free(out, overwrite)
    space = load_space(model, device, threads)
    with _going_on_later(out), bars() as progress:
        done = encode_file(space, file, out, sample=from_sample, seed=seed, progress=progress, announce=_say)
    for warning in done.warnings:
        warn(warning)
    if json:
        print_json({"sentences": done.rows, "size": space.size, "out": str(out)})
    else:
        print(f"{done.rows:,} codes of {space.size} dimensions are in {out}")


@writes_sentences
def decode(
    model: Model,
    codes: Annotated[Path, typer.Argument(help="A NumPy file of codes, [N, D].", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", help="Where the sentences go; default: printed.")] = None,
    overwrite: Overwrite = False,
    *,
    words: Words,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Write the sentence of each code in a file; with --out, a run that was ended goes on where it stopped."""
    from zentence.latent.streams import decode_file, decode_stream, open_codes

    options = words.options(seed)
    if out is not None:
        _check_free(out, overwrite)
    space = load_space(model, device, threads)
    with bars() as progress:
        if out is None:
            found = open_codes(codes, space)
            parts = decode_stream(space, found, progress=progress, **options)
            sentences = (sentence for part in parts for sentence in part)
            if json:
                print_json_rows(sentences, "sentences", method=options["method"], seed=seed)
            else:
                for sentence in sentences:
                    print(sentence)
            return
        with _going_on_later(out):
            done = decode_file(space, codes, out, options=options, progress=progress, announce=_say)
    if json:
        print_json({"sentences": done.rows, "method": options["method"], "seed": seed, "out": str(out)})
    else:
        print(f"{done.rows:,} sentences are in {out}")


def index(
    model: Model,
    file: File,
    out: Annotated[Path, typer.Option("--out", help="Folder of the index.")],
    metric: Annotated[str, typer.Option("--metric", help="What near means: euclidean or cosine.")] = "euclidean",
    graph: Annotated[
        bool | None,
        typer.Option(
            "--graph/--no-graph",
            help="A graph for approximate search (library usearch); default: beyond a million.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing index.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Build an index of a file's sentences, for `neighbours`; a run that was ended goes on where it stopped."""
    from zentence.latent.nearest import check_metric
    from zentence.latent.neighbours import Index

    chosen = check_metric(metric)
    space = load_space(model, device, threads)
    options: dict[str, Any] = {"metric": chosen, "graph": graph, "overwrite": overwrite}
    with _going_on_later(out), bars() as progress:
        built = Index.build(space, file, out, progress=progress, announce=_say, **options)
    for warning in built.warnings:
        warn(warning)
    exact = built.meta["graph"] is None
    if json:
        print_json({"sentences": len(built), "size": built.size, "metric": chosen, "exact": exact, "out": str(out)})
    else:
        how = "exact" if exact else "approximate"
        print(f"{len(built):,} sentences are in the index {out}, for {how} search by {chosen} distance")


def neighbours(
    model: Model,
    sentences: Annotated[list[str] | None, typer.Argument(help="Sentences.", show_default=False)] = None,
    folder: Annotated[Path, typer.Option("--index", help="Folder of an index.", show_default=False)] = ...,  # type: ignore[assignment]
    codes: Annotated[Path | None, typer.Option("--codes", help="Instead of sentences, a NumPy file of codes.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=10_000, help="How many neighbours.")] = 10,
    metric: Annotated[
        str | None, typer.Option("--metric", help="euclidean or cosine; default: the index's own.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Exact search, even if the index has a graph.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Find the sentences of an index whose codes are nearest to those of others."""
    from zentence.latent.nearest import check_metric
    from zentence.latent.neighbours import Index

    if (codes is None) == (not sentences):
        raise ZentenceError("Give sentences or --codes, one of the two")
    found = Index.open(folder)
    chosen = check_metric(metric or found.metric)
    space = load_space(model, device, threads)
    found.check(space)
    is_exact = found.is_exact(chosen, exact or None)
    if found.why_exact:
        warn(found.why_exact)
    queries = _queries(space, sentences or [], codes)
    answers = _answers(found, queries, k, chosen, is_exact)
    if json:
        print_json_rows(answers, "queries", metric=chosen, exact=is_exact)
        return
    name = "distance" if chosen == "euclidean" else "cosine"
    for answer in answers:
        print(answer["sentence"] if codes is None else f"code {answer['code']}")
        print_lines([f"  {hit[name]:8.4f}  {hit['sentence']}" for hit in answer["neighbours"]])


def map_(
    model: Model,
    file: File,
    out: Annotated[Path, typer.Option("--out", help="Name of the map: OUT.png and OUT.html are written.")],
    method: Annotated[str, typer.Option("--method", help="pca (at once), tsne, or both.")] = "both",
    colour: Annotated[
        str | None,
        typer.Option("--colour", help="label, length or likelihood; default: label if the file has labels, or length."),
    ] = None,
    points: Annotated[
        int, typer.Option("--points", min=2, max=20_000, help="At most so many; more are drawn from.")
    ] = 5000,
    samples: Annotated[int, typer.Option("--samples", min=1, help="For the likelihood: importance samples K.")] = 20,
    features: FeaturesOption = "code",
    beside: Beside = [],  # noqa: B006
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Draw a file's sentences by their codes: a picture, and a page that shows the sentence under the pointer.

    --features both draws codes and the encoder's features side by side, as --beside does with another model.
    """
    from zentence.corpora.readers import read_sentences
    from zentence.latent.maps import choose, make_map, need_libraries, write_page, write_picture
    from zentence.tasks.subjects import choose_kinds, gather_subjects

    if method not in METHODS:
        raise ZentenceError(f"--method {method}: choose one of {', '.join(METHODS)}")
    if colour is not None and colour not in COLOURS:
        raise ZentenceError(f"--colour {colour}: choose one of {', '.join(COLOURS)}")
    kinds = choose_kinds(features)
    need_libraries(METHODS[method])  # type: ignore[arg-type]
    picture, page = (out.with_name(out.name + suffix) for suffix in (".png", ".html"))
    _check_free(picture, overwrite)
    _check_free(page, overwrite)
    space = load_space(model, device, threads)
    subjects = gather_subjects(space, kinds, beside, lambda folder: load_space(folder, device, threads), seed)
    with bars() as progress:
        lines, count = choose(
            read_sentences(file, progress=lambda done, total: progress("reading", done, total, "bytes")), points, seed
        )
    texts = [line.text for line in lines]
    shade = _colour(space, lines, colour, samples, seed)
    vectors = {subject.title: _encoded(subject.space, texts, subject.kind) for subject in subjects}
    drawn = (
        f"{len(texts):,} sentences" if len(texts) == count else f"{len(texts):,} of {count:,} sentences (seed {seed})"
    )
    with _clock(f"map of {len(texts):,} sentences"):
        common: dict[str, Any] = {"methods": METHODS[method], "seed": seed, "note": drawn}
        made = [
            make_map(texts, found, shade, title=title if len(vectors) > 1 else "", **common)
            for title, found in vectors.items()
        ]
        write_picture(made, picture)
        write_page(made, page)
    if json:
        files: dict[str, Any] = {"picture": str(picture), "page": str(page)}
        files |= {"panels": list(vectors)} if len(vectors) > 1 else {}
        print_json({"sentences": count, "points": len(texts), "colour": shade.name, "seed": seed, **files})
    else:
        print(f"{drawn} by {shade.name} are in {picture} and {page}")


def _queries(space: "LatentSpace", sentences: list[str], path: Path | None) -> "Iterator[tuple[str | None, Codes]]":
    """Yield each query: its sentence, if it is one, and its code [D]."""
    from zentence.latent.streams import open_codes

    if path is None:
        for place, sentence in enumerate(sentences, 1):
            if not sentence.split():
                raise ZentenceError(f"Sentence {place} is empty: give at least one word")
        yield from zip(sentences, _encoded(space, sentences), strict=True)
        return
    for code in open_codes(path, space):
        if code.ndim != 1:
            raise ZentenceError(f"{path} has several codes a sentence: give codes of shape [N, {space.size}]")
        yield None, code


def _answers(
    found: "Index", queries: "Iterable[tuple[str | None, Codes]]", k: int, metric: Any, exact: bool
) -> Iterator[dict[str, Any]]:
    """Yield each query with its neighbours; some are searched together."""
    import numpy as np

    from zentence.latent.nearest import QUERIES, pair_scores

    number, waiting = 0, list[tuple[str | None, Any]]()

    def answered() -> Iterator[dict[str, Any]]:
        codes = np.stack([code for _, code in waiting]).astype(np.float32)
        ids, _ = found.search(codes, k, metric=metric, exact=exact)
        for place, ((sentence, _), code, row) in enumerate(zip(waiting, codes, ids, strict=True)):
            near = np.asarray(found.codes[row])
            same = np.broadcast_to(code, near.shape)
            scores = zip(pair_scores(same, near, "euclidean"), pair_scores(same, near, "cosine"), strict=True)
            hits = [
                {"id": int(i), "sentence": found.sentence(int(i)), "distance": float(d), "cosine": float(c)}
                for i, (d, c) in zip(row, scores, strict=True)
            ]
            yield {"code": number + place, "sentence": sentence, "neighbours": hits}

    for query in queries:
        waiting.append(query)
        if len(waiting) == QUERIES:
            yield from answered()
            number, waiting = number + len(waiting), []
    if waiting:
        yield from answered()


def _encoded(space: "LatentSpace", sentences: list[str], kind: str = "code") -> "Codes":
    """Return the codes (or encoder features) of a bounded number of sentences, with warnings and a bar."""
    import numpy as np

    from zentence.latent.streams import Remarks, encode_stream
    from zentence.training.progress import progress_bar

    remarks, parts = Remarks(), []
    with progress_bar("encoding", len(sentences), unit="sentences") as update:
        if kind == "encoder":
            return space.features(sentences, progress=update)
        for part in encode_stream(space, sentences, remarks=remarks):
            parts.append(part)
            update(sum(map(len, parts)))
    for warning in remarks.warnings():
        warn(warning)
    return np.concatenate(parts)


def _colour(space: "LatentSpace", lines: list[Any], name: str | None, samples: int, seed: int) -> Any:
    import numpy as np

    from zentence.latent.maps import Colour
    from zentence.training.progress import progress_bar

    labelled = lines[0].label is not None
    name = name or ("label" if labelled else "length")
    if name == "label":
        if not labelled:
            raise ZentenceError("--colour label: the file has no labels (label<TAB>sentence on every line)")
        return Colour("label", [line.label for line in lines])
    texts = [line.text for line in lines]
    if name == "length":
        return Colour("length in words", np.array([text.count(" ") + 1 for text in texts], dtype=float))
    with progress_bar("scoring", len(texts), unit="sentences") as update:
        bound = space.score(texts, samples=samples, seed=seed, progress=update)
    return Colour(f"log-likelihood in nats (lower bound, K = {samples})", -bound)


def _check_free(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise ZentenceError(f"{path} is a directory: choose another --out")
    if path.exists() and not overwrite:
        raise ZentenceError(f"{path} exists: choose another --out, or pass --overwrite")


def _say(message: str) -> None:
    print(message, file=sys.stderr)


@contextmanager
def _going_on_later(out: Path) -> Iterator[None]:
    """Say, when interrupted, that what was done is kept; if it is."""
    try:
        yield
    except KeyboardInterrupt:
        places = (out.with_name(f".{out.name}.journal"), out.with_name(f".{out.name}.partial") / ".codes.npy.journal")
        if any(place.exists() for place in places):
            _say("interrupted: the same command goes on from here")
        raise


@contextmanager
def bars() -> "Iterator[Progress]":
    """Yield what shows the progress of phases, one bar after the other."""
    from zentence.training.progress import progress_bar

    with ExitStack() as stack:
        current, update = "", None

        def told(phase: str, done: int, total: int | None, unit: str) -> None:
            nonlocal current, update
            if phase != current or update is None:
                stack.close()
                current, update = phase, stack.enter_context(progress_bar(phase, total, unit=unit))
            update(done)

        yield told


@contextmanager
def _clock(title: str) -> Iterator[None]:
    """Show the seconds that pass: for a library that does not say how far it is."""
    from threading import Event, Thread
    from time import monotonic

    from zentence.training.progress import progress_bar

    began, ended = monotonic(), Event()

    def tick(update: Callable[[int], None]) -> None:
        while not ended.wait(0.5):
            update(int(monotonic() - began))

    with progress_bar(title, None, unit="seconds") as update:
        thread = Thread(target=tick, args=(update,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

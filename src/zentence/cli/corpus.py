"""`zentence corpus make|stats|split-sentences`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from zentence.cli.output import Json, Seed, print_json, print_lines
from zentence.errors import ZentenceError

app = typer.Typer(help="Make, describe and split text.")


@app.command()
def make(
    name: Annotated[str, typer.Argument(help="The built-in corpus: captions.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("captions"),
    sentences: Annotated[int, typer.Option("--sentences", min=1, help="Sentences in all three splits.")] = 50_000,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    json: Json = False,
) -> None:
    """Write a corpus whose exact entropy is known: train.txt, valid.txt, test.txt, attributes.jsonl, source.json."""
    from zentence.corpora.captions import make_corpus
    from zentence.errors import suggestion

    if name != "captions":
        raise ZentenceError(f"Unknown corpus '{name}'.{suggestion(name, ['captions'])}")
    summary = make_corpus(out, sentences, seed, overwrite=overwrite)
    if json:
        print_json(summary)
        return
    print_lines([f"{key}: {value}" for key, value in summary.items() if not isinstance(value, dict)])
    print(f"Next: zentence train {out}/train.txt --valid {out}/valid.txt")


@app.command()
def stats(
    files: Annotated[list[str], typer.Argument(help="Text files; - is standard input.")],
    labels: Annotated[str, typer.Option("--labels", help="auto, yes or no: lines are label<TAB>sentence.")] = "auto",
    png: Annotated[Path | None, typer.Option("--png", help="Draw the histogram into a PNG file.")] = None,
    json: Json = False,
) -> None:
    """Print the token ledger of text files, and draw the histogram of sentence lengths."""
    from zentence.corpora.statistics import draw_lengths, length_chart, text_statistics

    statistics = text_statistics(files, labels)
    if png is not None:
        draw_lengths(statistics, png)
    if json:
        print_json(statistics.to_dict())
    else:
        print_lines([statistics.describe(), *length_chart(statistics)])


@app.command("split-sentences")
def split_sentences(
    files: Annotated[list[str], typer.Argument(help="Text files, one document a line; - is standard input.")],
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default: standard output.")] = None,
    max_words: Annotated[int, typer.Option("--max-words", min=1, help="Longer sentences are left out.")] = 64,
    min_words: Annotated[int, typer.Option("--min-words", min=1, help="Shorter sentences are left out.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Turn documents into sentences, one a line; the share kept is reported."""
    from zentence.corpora.readers import read_sentences
    from zentence.corpora.sentences import DocumentStats, split_documents
    from zentence.files import open_atomically

    if json and out is None:
        raise ZentenceError("--json needs --out: standard output holds the JSON document")
    if out is not None and out.exists() and not overwrite:
        raise ZentenceError(f"{out} exists: choose another --out, or pass --overwrite")
    stats_ = DocumentStats()
    documents = (line.text for file in files for line in read_sentences(file, "no"))
    sentences = split_documents(documents, max_words, min_words, stats_)
    if out is None:
        for sentence in sentences:
            print(sentence)
    else:
        with open_atomically(out) as file:
            file.writelines(f"{sentence}\n" for sentence in sentences)
    summary = {**stats_.__dict__, "share_kept": stats_.share_kept, "max_words": max_words, "min_words": min_words}
    if json:
        print_json(summary)
    else:
        print(
            f"{stats_.documents:,} documents, {stats_.sentences:,} sentences found, {stats_.kept:,} kept "
            f"({stats_.share_kept:.1%}; {min_words} to {max_words} words), {stats_.words:,} words",
            file=sys.stderr,
        )

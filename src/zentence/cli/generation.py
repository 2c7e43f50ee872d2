"""What every command that writes sentences shares: how words are chosen, and sentences that come in streams."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import wraps
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from zentence.cli.output import check_words
from zentence.errors import ZentenceError

if TYPE_CHECKING:
    from zentence.latent.space import LatentSpace

METHODS = ("greedy", "sample", "beam")
CHUNK = 1024  # sentences that are read, or written, at once

Texts = Annotated[list[str] | None, typer.Argument(help="Sentences.", show_default=False)]
TextFile = Annotated[Path | None, typer.Option("--file", help="A file of sentences; - is standard input.")]


Method = Annotated[
    str | None, typer.Option("--method", help="greedy, sample or beam; default: greedy (a language model: sample).")
]
Temperature = Annotated[float, typer.Option("--temperature", min=0.01, help="Of sampling.")]
TopK = Annotated[int | None, typer.Option("--top-k", min=1, help="Sampling: only the k best words.")]
TopP = Annotated[float | None, typer.Option("--top-p", min=0.0, max=1.0, help="Sampling: nucleus.")]
Beam = Annotated[int, typer.Option("--beam", min=1, max=100, help="Beam search: sentences kept.")]
MaxWords = Annotated[int, typer.Option("--max-words", min=1, max=10_000, help="Longest sentence.")]
ForbidUnknown = Annotated[bool, typer.Option("--forbid-unk", help="Never write <unk>.")]


@dataclass(frozen=True)
class Words:
    """How words are chosen, as options of the command line."""

    method: Method = None
    temperature: Temperature = 1.0
    top_k: TopK = None
    top_p: TopP = None
    beam: Beam = 5
    max_words: MaxWords = 100
    forbid_unknown: ForbidUnknown = False

    def options(self, seed: int, default: str = "greedy") -> dict[str, Any]:
        """Return them as options of `Generation`."""
        method = self.method or default
        if method not in METHODS:
            raise ZentenceError(f"--method {method}: choose one of {', '.join(METHODS)}")
        return {**asdict(self), "method": method, "seed": seed}


def writes_sentences(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Words`; it receives them together, as its parameter `words`."""
    hints = get_type_hints(Words, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(Words)
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        words = Words(**{option.name: given.pop(option.name) for option in options})
        command(**given, words=words)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += options if name == "words" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    return run


def given_sentences(sentences: Sequence[str] | None, file: Path | None) -> Iterator[str]:
    """Return the sentences of the arguments, or those of a file as they are read; just one of the two is given."""
    if (file is None) == (not sentences):
        raise ZentenceError("Give sentences or --file, one of the two")
    return iter(sentences or []) if file is None else stream_texts(file)


def stream_texts(file: Path) -> Iterator[str]:
    """Yield the sentences of a file (`-`: standard input), labels dropped."""
    from zentence.corpora.readers import read_sentences

    return (line.text for line in read_sentences(file))


def checked_chunks(space: "LatentSpace", sentences: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield sentences in lists, each with the number of its first; of words that are all unknown it is warned once."""
    stream, first, warned = iter(sentences), 0, False
    while chunk := list(islice(stream, CHUNK)):
        warned = warned or check_words(space, chunk)
        yield first, chunk
        first += len(chunk)


def print_json_rows(rows: Iterable[Any], name: str = "", **rest: Any) -> None:
    """Print one JSON document row by row: a list, or an object whose last entry `name` is the list."""
    rows = iter(rows)
    beginning = list(islice(rows, 1))  # a mistake in the input is found before anything is printed
    opening = f"{_json(rest)[:-1]}{', ' if rest else ''}{_json(name)}: [" if name else "["
    sys.stdout.write(opening)
    for number, row in enumerate(chain(beginning, rows)):
        sys.stdout.write(f"{', ' if number else ''}{_json(row)}")
    sys.stdout.write("]}\n" if name else "]\n")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)

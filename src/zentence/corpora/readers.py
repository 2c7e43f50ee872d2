"""From text files to sentences, one a line, streamed: nothing here grows with the size of a file."""

import gzip
import io
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, TextIO

from zentence.errors import ZentenceError

MAX_LINE = 1_000_000  # characters
HEAD_LINES = 100  # non-blank lines that decide whether a file is labelled
_PROGRESS_EVERY = 4096  # lines

LabelMode = Literal["auto", "yes", "no"]
Progress = Callable[[int, int], None]  # (bytes done, bytes in all)

_UNDECODED = re.compile("[\udc80-\udcff]")  # what errors="surrogateescape" makes of bytes that are not UTF-8


class Line(NamedTuple):
    """One sentence: words joined by single spaces, its label if the file has labels, its line number from 1."""

    text: str
    label: str | None
    number: int


@dataclass
class ReadStats:
    """What reading skipped; filled while the lines are taken."""

    blank_lines: int = 0


def read_sentences(
    path: Path | str,
    labels: LabelMode = "auto",
    *,
    name: str | None = None,
    stats: ReadStats | None = None,
    progress: Progress | None = None,
) -> Iterator[Line]:
    """Yield the sentences of a text file (plain or gzip; `-`: standard input), whitespace-normalised.

    Labelled lines are `label<TAB>sentence`; `auto` decides by the first lines. Blank lines, and labels without
    a sentence, are skipped and counted in `stats`. `name` stands for the path in messages.
    A mistake in the file raises a ZentenceError that names the file and the line.
    """
    name = name or display_name(path)
    stats = stats or ReadStats()
    lines = filled_lines(path, name, stats, progress)
    head: list[tuple[int, str]] = []
    if labels == "auto":
        head = list(islice(lines, HEAD_LINES))
    labelled = labels == "yes" or _looks_labelled(head)
    hint = ' (labels = "no" reads tabs as spaces)' if labels == "auto" else ""
    found = False
    for number, line in chain(head, lines):
        label, text = _split_label(line, f"{name}, line {number}", hint) if labelled else (None, line)
        text = " ".join(text.split())
        if not text:
            stats.blank_lines += 1
            continue
        found = True
        yield Line(text, label, number)
    if not found:
        raise ZentenceError(f"{name} is empty: there is no sentence in it")


def has_labels(path: Path | str, labels: LabelMode, name: str | None = None) -> bool:
    """Tell whether a file's lines are `label<TAB>sentence`; `auto` looks at its first lines."""
    if labels != "auto":
        return labels == "yes"
    lines = filled_lines(path, name or display_name(path), ReadStats(), None)
    return _looks_labelled(list(islice(lines, HEAD_LINES)))


def display_name(path: Path | str) -> str:
    """Return a path as messages show it."""
    return "<stdin>" if is_stdin(path) else str(path)


def is_stdin(path: Path | str) -> bool:
    """Tell whether a path means standard input."""
    return str(path) == "-"


def is_stream(path: Path | str) -> bool:
    """Tell whether a path can be read only once: standard input, a pipe, a device."""
    try:
        return is_stdin(path) or not (Path(path).is_file() or Path(path).is_dir() or not Path(path).exists())
    except OSError:
        return False  # opening it will say why


def spool(path: Path | str, copy: Path) -> None:
    """Copy a stream to a file, because a corpus is read several times."""
    with ExitStack() as stack:
        source = sys.stdin.buffer if is_stdin(path) else stack.enter_context(open_file(path))
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


def open_file(path: Path | str, name: str | None = None) -> io.BufferedReader:
    """Open a file for reading bytes; a ZentenceError says why it cannot be done."""
    name = name or display_name(path)
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        raise ZentenceError(f"No such file: {name}") from None
    except IsADirectoryError:
        raise ZentenceError(f"{name} is a directory: give a text file") from None
    except OSError as error:
        raise ZentenceError(f"Cannot read {name}: {error.strerror}") from error


def _looks_labelled(head: list[tuple[int, str]]) -> bool:
    """Tell whether every line has exactly one tab, with something on either side."""
    return bool(head) and all(
        line.count("\t") == 1 and all(side.strip() for side in line.split("\t")) for _, line in head
    )


def _split_label(line: str, where: str, hint: str) -> tuple[str, str]:
    label, tab, text = line.partition("\t")
    if not tab:
        raise ZentenceError(f"{where}: no label: expected label<TAB>sentence{hint}")
    label = " ".join(label.split())
    if not label:
        raise ZentenceError(f"{where}: empty label: expected label<TAB>sentence{hint}")
    return label, text


def filled_lines(path: Path | str, name: str, stats: ReadStats, progress: Progress | None) -> Iterator[tuple[int, str]]:
    """Yield numbered lines that are not blank, and count the others."""
    for number, line in _checked_lines(path, name, progress):
        if line.isspace():
            stats.blank_lines += 1
        else:
            yield number, line


def _checked_lines(path: Path | str, name: str, progress: Progress | None) -> Iterator[tuple[int, str]]:
    with _open_text(path, name) as (text, raw):
        total = 0 if is_stdin(path) else Path(path).stat().st_size
        try:
            # Only \n, \r\n and \r end a line: str.splitlines() would also break at U+2028, form feeds and the like.
            for number, line in enumerate(iter(lambda: text.readline(MAX_LINE + 2), ""), 1):
                if number == 1:
                    line = line.removeprefix("\ufeff") or "\n"
                _check_line(line, name, number)
                yield number, line
                if progress and total and number % _PROGRESS_EVERY == 0:
                    progress(raw.tell(), total)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ZentenceError(f"{name} is a damaged gzip file: {_one_line(error)}") from error
        except OSError as error:
            raise ZentenceError(f"Cannot read {name}: {error.strerror or _one_line(error)}") from error
        if progress and total:
            progress(total, total)


def _check_line(line: str, name: str, number: int) -> None:
    if "\0" in line:
        raise ZentenceError(f"{name} looks like a binary file (line {number})")
    if not line.isascii() and (bad := _UNDECODED.search(line)):
        byte = ord(bad.group()) & 0xFF
        raise ZentenceError(f"{name}, line {number}: not UTF-8 (byte 0x{byte:02x}). Convert it, for example with iconv")
    if len(line) > MAX_LINE + 1:
        raise ZentenceError(f"{name}, line {number}: longer than 1 MB: expected one sentence a line")


@contextmanager
def _open_text(path: Path | str, name: str) -> Iterator[tuple[TextIO, BinaryIO]]:
    """Open a file as text with universal newlines; also give its raw bytes, whose position tells the progress."""
    with ExitStack() as stack:
        raw = sys.stdin.buffer if is_stdin(path) else stack.enter_context(open_file(path, name))
        binary: BinaryIO | gzip.GzipFile = raw
        peek = getattr(raw, "peek", None)
        if str(path).endswith(".gz") or (peek and peek(2)[:2] == b"\x1f\x8b"):
            binary = stack.enter_context(gzip.open(raw))
        text = io.TextIOWrapper(binary, encoding="utf-8", errors="surrogateescape", newline=None)
        stack.callback(text.detach)  # leaves standard input open
        yield text, raw


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

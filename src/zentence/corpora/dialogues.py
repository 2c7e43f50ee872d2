"""Dialogues as text: turns, and which of them answer something.

Two forms are read. DailyDialog's own: a dialogue a line, each of its turns ended by `__eou__`; every turn after the
first is a response. And a table of pairs: `context<TAB>response`, the turns of the context separated by `__eou__`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from zentence.corpora.readers import Progress, ReadStats, display_name, filled_lines
from zentence.errors import ZentenceError

END_OF_TURN = "__eou__"


class Dialogue(NamedTuple):
    """Turns one after the other; those from number `first_response` on answer the turns before them."""

    turns: tuple[str, ...]  # whitespace-normalised, none of them empty
    first_response: int
    number: int  # of its line, from 1


@dataclass
class DialogueStats:
    """What reading met; filled while the dialogues are taken."""

    read: ReadStats = field(default_factory=ReadStats)
    dialogues: int = 0
    responses: int = 0
    alone: int = 0  # dialogues of one turn: nobody answers


def split_turns(text: str) -> tuple[str, ...]:
    """Return the turns of a text, separated or ended by `__eou__`, whitespace-normalised; empty ones are left out."""
    turns = (" ".join(turn.split()) for turn in text.split(END_OF_TURN))
    return tuple(turn for turn in turns if turn)


def read_dialogues(
    path: Path | str,
    *,
    name: str | None = None,
    stats: DialogueStats | None = None,
    progress: Progress | None = None,
) -> Iterator[Dialogue]:
    """Yield the dialogues of a file (plain or gzip; `-`: standard input); it is a table if its first line has a tab.

    A mistake in the file, or a file without a single response, raises a ZentenceError that names file and line.
    """
    name, stats = name or display_name(path), stats or DialogueStats()
    is_table: bool | None = None
    for number, line in filled_lines(path, name, stats.read, progress):
        if is_table is None:
            is_table = "\t" in line
        dialogue = _pair(line, number, name) if is_table else Dialogue(split_turns(line), 1, number)
        if not dialogue.turns:
            stats.read.blank_lines += 1
            continue
        stats.dialogues += 1
        stats.alone += len(dialogue.turns) == 1
        stats.responses += len(dialogue.turns) - dialogue.first_response
        yield dialogue
    if not stats.dialogues:
        raise ZentenceError(f"{name} is empty: there is no dialogue in it")
    if not stats.responses:
        raise ZentenceError(
            f"{name} has no response: expected dialogues with two turns or more, each turn ended by {END_OF_TURN}"
        )


def _pair(line: str, number: int, name: str) -> Dialogue:
    """Read `context<TAB>response`."""
    context, tab, response = line.partition("\t")
    if not tab or "\t" in response:
        raise ZentenceError(f"{name}, line {number}: expected context<TAB>response")
    turns, answer = split_turns(context), split_turns(response)
    if not turns:
        raise ZentenceError(f"{name}, line {number}: the context is empty: expected context<TAB>response")
    if len(answer) != 1:
        what = "the response is empty" if not answer else "the response has several turns"
        raise ZentenceError(f"{name}, line {number}: {what}: expected context<TAB>response")
    return Dialogue((*turns, *answer), len(turns), number)

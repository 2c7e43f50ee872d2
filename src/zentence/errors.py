"""Errors that a user can do something about. The command line prints them as one line and exits with code 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class ZentenceError(Exception):
    """A mistake in what was given: one line that says what is wrong, where, and what to do."""


class NotInvertibleError(ZentenceError):
    """A density was asked for at a point where this distribution cannot compute it."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known word, else the list of known words."""
    words = sorted(known)
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else f" Known: {', '.join(words)}."

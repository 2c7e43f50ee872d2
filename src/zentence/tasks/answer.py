"""Answers to questions, written by the model (paper 1, §4.6 and D.4)."""

import re
from dataclasses import dataclass
from typing import Any

from zentence.latent import LatentSpace
from zentence.noise import derive_key
from zentence.tasks.normalise import Normaliser
from zentence.tasks.questions import check_space, is_deterministic, with_unknown_answer

LENGTHS = {"short": 5, "medium": 10, "long": 15}  # unknown words, which tell the length expected
_NAMES = "a|abbr|b|big|blockquote|br|center|code|dd|div|dl|dt|em|font|h[1-6]|hr|i|img|li|ol|p|pre|q|s|small|span|strong"
_NAMES += "|strike|sub|sup|table|tbody|td|th|tr|tt|u|ul"
_ATTRIBUTE = r"""\s+[\w-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s<>]+)"""
_TAG = re.compile(rf"<\s*/?\s*(?:{_NAMES})(?:{_ATTRIBUTE})*\s*/?\s*>", re.IGNORECASE)


@dataclass(frozen=True)
class Answers:
    """A question, the answers by expected length, and all that the model wrote for each."""

    question: str
    answers: dict[str, str]
    written: dict[str, str]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return what `zentence answer --json` prints."""
        return {"task": "answer", **self.__dict__}


def write_answers(space: LatentSpace, question: str, *, seed: int = 0) -> Answers:
    """Return a short, a medium and a long answer: z ~ q(z|Q^unk), decoded greedily, `<unk>` forbidden.

    Q^unk is the question, " ? ", and 5, 10 or 15 unknown words. An answer is what the model writes after the first "?",
    without HTML tags: nothing if it writes no "?". An auto-encoder trained on posterior means decodes the mean.
    """
    check_space(space)
    asked = Normaliser(space.vocabulary, space.settings.corpus)(question)
    prompts = [with_unknown_answer(asked, count) for count in LENGTHS.values()]
    codes = space.encode(prompts, sample=not is_deterministic(space), seed=derive_key(seed, "answer") % 2**31)
    longest = min(10_000, max(100, 2 * max(len(prompt.split()) for prompt in prompts)))
    texts = space.decode(codes, method="greedy", forbid_unknown=True, max_words=longest)
    written = dict(zip(LENGTHS, texts, strict=True))
    return Answers(question, {length: answer_in(text) for length, text in written.items()}, written, seed)


def answer_in(text: str) -> str:
    """Return the words after the first "?", without HTML tags."""
    return " ".join(without_tags(text).partition("?")[2].split())


def without_tags(text: str) -> str:
    """Return text without HTML tags, also those that a tokeniser pulled apart; other "<" and ">" stay."""
    return _TAG.sub(" ", text)

"""A model's health in plain words."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from zentence.evaluation.measurement import Measurement

State = Literal["healthy", "collapsed", "ignored", "unknown", "no code"]

LITTLE = 0.1  # nats: less information, or less use of it, is none
SHARE_USED = (
    0.25  # of the information that shuffling must cost in nats: a decoder that reads its code loses all and more
)


class Verdict(NamedTuple):
    """`collapsed`: the code tells nothing of the sentence; `ignored`: it does, but the decoder does not read it."""

    state: State
    text: str

    @property
    def healthy(self) -> bool:
        """Whether the code is informative, and the decoder uses it."""
        return self.state == "healthy"


def verdict(measurements: Iterable[Measurement]) -> Verdict:
    """Judge a model by the figures of one split.

    An informative encoder is not enough: a code that the decoder does not read is no code. Where the figure is missing
    that tells (shuffled_code_gap), a model with an informative encoder is neither called healthy nor ignored.
    """
    found = {m.name: m for m in measurements}
    if "nll" in found and "rate" not in found:
        return Verdict("no code", "A language model: it has no code.")
    told = found.get("mutual_information", found.get("rate"))
    active, gap = found.get("active_units"), found.get("shuffled_code_gap")
    words = []
    if active is not None:
        words.append(f"{active.value:.0f} of {active.details.get('of', '?')} units active")
    if told is not None:
        least = "at least " if told.details.get("saturated") else ""
        what = "information" if told.name == "mutual_information" else "rate"
        words.append(f"{least}{told.value:.1f} nats of {what}")
    if gap is not None:
        words.append(_loss(gap.value))
    state = _state(told, active, gap)
    ends = {
        "healthy": "the code is used",
        "collapsed": "the code has collapsed: it tells nothing of the sentence",
        "ignored": "the encoder is informative, but the decoder ignores the code",
        "unknown": "whether the code is used is not known",
        "no code": "",
    }
    return Verdict(state, f"{', '.join(words)}; {ends[state]}." if words else f"{ends[state].capitalize()}.")


def _loss(gap: float) -> str:
    if gap < LITTLE:
        return "the decoder loses nothing without the code"
    return f"the decoder loses {gap:.1f} nats without the code"


def _state(told: Measurement | None, active: Measurement | None, gap: Measurement | None) -> State:
    if (told is not None and told.value < LITTLE) or (active is not None and active.value == 0):
        return "collapsed"
    if told is None or gap is None:
        return "unknown"
    return "ignored" if gap.value < max(LITTLE, SHARE_USED * told.value) else "healthy"

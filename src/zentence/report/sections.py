"""The parts of the page: which pictures and tables stand where, and what is said where there is nothing to show."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, NamedTuple, get_args

from zentence.evaluation.measurement import Kind, Measurement
from zentence.evaluation.metrics import METRICS
from zentence.report import charts
from zentence.report.codemap import draw_map
from zentence.report.examples import Examples
from zentence.report.picture import Picture
from zentence.report.record import Record, is_number

KINDS = {
    "exact": ("Exact", "no estimate is involved"),
    "upper_bound": ("Upper bounds", "the true value is at most this, up to the stated error"),
    "estimate": ("Estimates", "not bounds: the true value may lie on either side"),
    "not_a_bound": ("Not bounds", "published ways of counting that bound nothing; never compare them with the others"),
}
assert set(KINDS) == set(get_args(Kind))
_WHOLE = {"active_units"}
VALIDATION = "On validation text during training, by which the best weights were kept."


class Gap(NamedTuple):
    """Something that is not shown: what, why, and the command that would fill it."""

    what: str
    command: str = ""


@dataclass
class Section:
    """A group of pictures under a heading."""

    title: str
    anchor: str
    lead: str = ""
    pictures: list[Picture] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    wide: bool = False

    def add(self, picture: Picture | None, gap: Gap | None = None) -> None:
        """Add a picture, or say what is missing."""
        if picture is not None:
            self.pictures.append(picture)
        elif gap is not None:
            self.gaps.append(gap)


def doubt(record: Record) -> Gap:
    """Return what to measure before it can be said whether a code is in use."""
    names = [
        name for name in ("mutual_information", "active_units", "shuffled_code_gap") if record.figure(name) is None
    ]
    return Gap("The verdict needs more figures.", record.command("evaluate", "--metrics", ",".join(names)))


class Cell(NamedTuple):
    """A figure in a table."""

    value: str
    error: str = ""
    note: str = ""


class Row(NamedTuple):
    """A metric in a table: one cell a run, None where a run has no such figure of this kind."""

    name: str
    group: str
    meaning: str
    unit: str
    better: str
    cells: list[Cell | None]


def shown_value(m: Measurement) -> Cell:
    """Return a figure as text, with as many decimals as give its error two digits, at least one and at most four."""
    error, digits = m.standard_error, 0
    if m.name not in _WHOLE:
        size = error or 0.1 * abs(m.value)
        digits = min(max(1 - math.floor(math.log10(size)), 1 if error else 2), 4) if size else 2
    notes = []
    if m.name == "active_units" and "of" in m.details:
        notes.append(f"of {m.details['of']}")
    if m.samples is not None and m.name in ("iw_nll", "ppl", "melbo_nll"):
        mean = m.details.get("samples_mean")
        notes.append(f"K = {mean:,.0f} on average" if is_number(mean) else f"K = {m.samples:,}")
    if m.details.get("saturated"):
        notes.append("at its ceiling log M")
    if is_number(share := m.details.get("unreliable_share")):
        notes.append(f"{share:.1%} of sentences unreliable")
    return Cell(f"{m.value:,.{digits}f}", "" if error is None else f"{error:.{digits}f}", ", ".join(notes))


def figure_tables(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a table a text, its rows by kind: exact figures, bounds, estimates and non-bounds never share a block.

    Splits of one name are one text only if their content agrees, where it was recorded, and their size.
    """
    texts: dict[tuple[str, str | None, int], list[int]] = {}
    for number, record in enumerate(records):
        for split in record.run.splits:
            texts.setdefault(record.text(split), []).append(number)
    tables = []
    for (split, _, sentences), shown in texts.items():
        mine = [{(str(m.kind), m.name): m for m in records[number].run.of_split(split)} for number in shown]
        blocks = [
            {"title": title, "meaning": meaning, "rows": rows}
            for kind, (title, meaning) in KINDS.items()
            if (rows := list(_rows(kind, mine)))
        ]
        names = [records[number].name for number in shown]
        tables.append({"split": split, "sentences": sentences, "runs": names, "blocks": blocks})
    return tables


def _rows(kind: str, found: Sequence[dict[tuple[str, str], Measurement]]) -> Iterator[Row]:
    order = list(METRICS)
    names = {name: m for row in found for (of, name), m in row.items() if of == kind}
    for name in sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name)):
        metric = METRICS.get(name)
        better = {"lower": "lower is better", "higher": "higher is better"}.get(metric.direction if metric else "", "")
        cells = [shown_value(row[kind, name]) if (kind, name) in row else None for row in found]
        yield Row(
            name, metric.group if metric else "", metric.meaning if metric else "", names[name].unit, better, cells
        )


class Curve(NamedTuple):
    """A number in the log's steps that is drawn over training."""

    name: str
    title: str
    unit: str
    caption: str
    noisy: bool = False


CURVES = (
    Curve("distortion", "Distortion", "nats per sentence", "What the words cost once the code is known.", True),
    Curve("rate", "Rate", "nats per sentence", "What the code costs. At zero, nothing is said by it."),
    Curve("beta", "Weight of the rate, β", "β", "How much the rate counts in what is minimised."),
    Curve("multiplier", "Multiplier", "u", "Of the constraint on the rate; it rises while the rate is too small."),
    Curve("active_units", "Active units", "units", "Dimensions whose mean varies with the sentence."),
)


def training_section(records: Sequence[Record], draw: Callable[..., Any]) -> Section:
    """Return the curves over training."""
    section = Section("Training", "training", "What the log holds of each run, update by update.")
    for curve in CURVES:
        section.add(draw(charts.training_curve, records, "step", *curve))
    validations = [[e for e in record.events if e.get("event") == "validation"] for record in records]
    names = {str(event["selection"]) for events in validations for event in events if event.get("selection")}
    for name in sorted(names):
        kept = [
            record if any(event.get("selection") == name for event in events) else replace(record, events=[])
            for record, events in zip(records, validations, strict=True)
        ]
        curve = Curve(name, f"Validation, {name}", "nats per sentence", VALIDATION, True)
        section.add(draw(charts.training_curve, kept, "validation", *curve))
    for record in records:
        if not record.events:
            section.gaps.append(Gap(f"{record.name} has no log.jsonl, so there are no curves of it."))
    return section


def plane_section(records: Sequence[Record], draw: Callable[..., Any]) -> Section:
    """Return the rate–distortion plane."""
    section = Section("Rate and distortion", "plane", wide=True)
    picture, left_out = draw(charts.rate_distortion_plane, records)
    coded = [r for r in records if r.settings.has_code] or list(records)
    section.add(
        picture,
        Gap("Rate and distortion were not measured.", coded[0].command("evaluate", "--metrics", "rate,distortion")),
    )
    section.gaps += [
        Gap(f"{name} was measured on other text than most, so it is not in the plane.") for name in left_out
    ]
    return section


def bound_section(records: Sequence[Record], draw: Callable[..., Any]) -> Section:
    """Return K-curve and MELBO curve."""
    section = Section("How tight the bounds are", "bounds")
    coded = [r for r in records if r.settings.has_code]
    if not coded:
        return section
    first = coded[0]
    section.add(
        draw(charts.sampling_curve, records),
        Gap("There is no curve of the bound against K.", first.command("evaluate", "--metrics", "iw_nll")),
    )
    section.add(
        draw(charts.melbo_curve, records),
        Gap("There is no curve of MELBO against N.", first.command("evaluate", "--metrics", "melbo_nll")),
    )
    return section


def code_section(record: Record, examples: Examples | None, number: int, draw: Callable[..., Any]) -> Section:
    """Return rate per dimension, variance spectrum and histograms of a run."""
    section = Section("Code and text", f"code-{number + 1}")

    def gap(what: str, metrics: str) -> Gap:
        return Gap(what, record.command("evaluate", "--metrics", metrics))

    if record.settings.has_code:
        rate = gap("The rate of each dimension was not measured.", "rate")
        section.add(draw(charts.sorted_bars, record, number, "rate", "per_dimension"), rate)
        variance = gap("The variances of the code were not measured.", "active_units")
        section.add(draw(charts.sorted_bars, record, number, "active_units", "variances"), variance)
        for name, what in (("log_likelihood_pairs", "log p(x_i|z_j)"), ("log_posterior_pairs", "log q(z_i|x_j)")):
            missing = gap(f"There is no histogram of {what}.", name)
            section.add(draw(charts.pair_histograms, record, number, name), missing)
    bounds = gap("There is no histogram over sentences.", "iw_nll,elbo_nll" if record.settings.has_code else "nll")
    section.add(draw(charts.bound_histograms, record, number), bounds)
    if examples is not None and examples.lengths is not None:
        section.add(draw(charts.length_histogram, examples.lengths, number, examples.unit))
    return section


def map_pictures(examples: Examples | None, number: int, draw: Callable[..., Any]) -> list[Picture]:
    """Return the code maps of a run."""
    if examples is None or examples.codes is None:
        return []
    pictures = [draw(draw_map, examples.codes, number, examples.unit, neighbours) for neighbours in (False, True)]
    return [picture for picture in pictures if picture is not None]


class Word(NamedTuple):
    """Words of a sentence, and whether they stand in the other sentence too."""

    text: str
    shared: bool


def marked(text: str, other: str) -> list[Word]:
    """Return a sentence in pieces, those told apart that a longest common sequence with another sentence holds."""
    mine, theirs = text.split(), other.split()
    shared = [False] * len(mine)
    for block in SequenceMatcher(None, theirs, mine, autojunk=False).get_matching_blocks():
        shared[block.b : block.b + block.size] = [True] * block.size
    pieces = groupby(zip(mine, shared, strict=True), key=lambda word: word[1])
    return [Word(" ".join(word for word, _ in words), same) for same, words in pieces]


def example_gaps(record: Record, examples: Examples | None) -> Iterator[Gap]:
    """Yield what cannot be shown of a model's own writing, and what to do about it."""
    if examples is None:
        yield Gap("Text and code maps were left out (--no-examples).", record.command("report"))
        return
    if (reason := examples.gaps.get("model")) is not None:
        yield Gap(f"There are no samples: {reason}.")
        return
    if not examples.has_code:
        yield Gap("A language model has no codes: there is nothing to map, reconstruct or interpolate.")
    elif (reason := examples.gaps.get("text")) is not None:
        yield Gap(
            f"There are no reconstructions, interpolations or code maps: {reason}.",
            record.command("report", "--text", "FILE"),
        )
    if (reason := examples.gaps.get("training")) is not None:
        yield Gap(f"The nearest training sentences of the samples are not shown: {reason}.")
    if examples.codes is not None and examples.codes.neighbours is None:
        yield Gap(
            "There is no t-SNE map: it needs scikit-learn and ten different codes.", "pip install 'zentence[tasks]'"
        )

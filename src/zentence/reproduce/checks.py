"""Directions that must come out, as relations between rows.

    fix-4.iw_nll < lm.nll               a figure of a row against another's
    fix-4.active_units == 32            or against a number
    fb-3.rate >= 3 by 0.2               as much as 0.2 less will do
    smim-16.distortion < svae-16.distortion by 5    a strict relation: at least 5 less
    mdr-5.rate near 5 by 0.2            at most 0.2 apart
    ae.distortion < *.distortion        against every other row on the same corpus that has the figure

A relation whose rows have no results yet is open.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from zentence.errors import ZentenceError
from zentence.evaluation.papers import PaperTable

Outcome = Literal["holds", "fails", "open"]
Values = Mapping[str, Mapping[str, float]]  # row → metric → mean over seeds
_FORM = re.compile(r"^(\S+) (<|<=|>|>=|==|near) (\S+)(?: by (\d+(?:\.\d+)?))?$")


class Relation(NamedTuple):
    """`left sign right by margin`; sides are `row.metric` or numbers."""

    left: str
    sign: str
    right: str
    margin: float

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.left} {self.sign} {self.right}" + (f" by {self.margin:g}" if self.margin else "")


@dataclass(frozen=True)
class Checked:
    """A claim, and how each of its relations came out with the numbers seen."""

    text: str
    outcome: Outcome
    relations: tuple[tuple[str, Outcome], ...]


def parse_relation(text: str) -> Relation:
    """Read a relation."""
    found = _FORM.match(text.strip())
    if found is None:
        raise ZentenceError(f"'{text}' is no relation: write row.metric < row.metric, or near 5 by 0.2")
    left, sign, right, margin = found.groups()
    if sign == "near" and margin is None:
        raise ZentenceError(f"'{text}': near needs `by` a distance")
    return Relation(left, sign, right, float(margin or 0.0))


def _is_number(side: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", side) is not None


def rows_named(relation: Relation) -> list[str]:
    """Return the rows that a relation names; `*` is none."""
    sides = [side.rpartition(".")[0] for side in (relation.left, relation.right) if not _is_number(side)]
    return [row for row in sides if row != "*"]


def holds(sign: str, left: float, right: float, margin: float) -> bool:
    """Say whether `left sign right by margin`."""
    if sign == "near":
        return abs(left - right) <= margin
    if sign == "==":
        return left == right
    if sign in ("<", ">"):
        low, high = (left, right) if sign == "<" else (right, left)
        return low < high and low <= high - margin
    low, high = (left, right) if sign == "<=" else (right, left)
    return low <= high + margin


def check_relation(relation: Relation, values: Values, corpora: Mapping[str, object]) -> tuple[str, Outcome]:
    """Return the relation with the numbers seen, and how it came out; `corpora` says which text a row is of."""
    left_row = relation.left.rpartition(".")[0]
    left = _values(relation.left, values, corpora, left_row)
    right = _values(relation.right, values, corpora, left_row)
    if not left or not right:
        return relation.text, "open"
    outcome: Outcome = "holds"
    shown = []
    for (_, a), (name, b) in ((one, other) for one in left for other in right):
        fine = holds(relation.sign, a, b, relation.margin)
        if not fine or len(right) == 1:
            by = f" by {relation.margin:g}" if relation.margin else ""
            shown.append(f"{a:.4g} {relation.sign} {b:.4g}{by}" + (f" of {name}" if len(right) > 1 else ""))
        outcome = outcome if fine else "fails"
    return f"{relation.text}" + (f" ({'; '.join(shown)})" if shown else ""), outcome


def _values(side: str, values: Values, corpora: Mapping[str, object], beside: str) -> list[tuple[str, float]]:
    if _is_number(side):
        return [("", float(side))]
    row, _, metric = side.rpartition(".")
    names = [row]
    if row == "*":
        names = [name for name in values if name != beside and corpora.get(name) == corpora.get(beside)]
    return [(name, values[name][metric]) for name in names if metric in values.get(name, {})]


def check_directions(table: PaperTable, values: Values, corpora: Mapping[str, object]) -> list[Checked]:
    """Check all of a paper's claims on the rows that are finished."""
    found = []
    for claim in table.checks:
        relations = tuple(check_relation(parse_relation(text), values, corpora) for text in claim.all)
        outcomes = {outcome for _, outcome in relations}
        whole: Outcome = "fails" if "fails" in outcomes else "open" if "open" in outcomes else "holds"
        found.append(Checked(claim.text, whole, relations))
    return found


def same_order(table: PaperTable, values: Values, texts: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Return by metric how many pairs of rows stand in the paper's order, and of how many.

    Pairs are of one published text and kind, on one text of ours, and differ in the paper by more than its tolerance.
    """
    counts: dict[str, tuple[int, int]] = {}
    entries = [entry for entry in table.rows if entry.recipe in values]
    for number, one in enumerate(entries):
        for other in entries[number + 1 :]:
            if one.split != other.split or texts.get(one.recipe or "") != texts.get(other.recipe or ""):
                continue
            for metric in one.figures.keys() & other.figures.keys():
                tolerance = one.tolerance_of(metric)
                theirs = one.figures[metric] - other.figures[metric]
                if one.kind_of(metric) != other.kind_of(metric) or tolerance is None or abs(theirs) <= tolerance:
                    continue
                a, b = (values[entry.recipe or ""].get(metric) for entry in (one, other))
                if a is None or b is None:
                    continue
                same, total = counts.get(metric, (0, 0))
                counts[metric] = same + ((a - b) * theirs > 0.0), total + 1
    return dict(sorted(counts.items()))

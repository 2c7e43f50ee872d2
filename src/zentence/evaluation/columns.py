"""The columns of a comparison: which figures may stand together, and which of those may be ranked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from zentence.evaluation.measurement import Kind, Measurement
from zentence.evaluation.metrics import METRICS, Direction

IMPORTANCE_WEIGHTED = ("iw_nll", "aggregate_prior_nll", "mixture_prior_nll")
METHOD = ("signature", "from", "method", "threshold", "k", "order", "codes", "components", "model")  # details
SIZE = ("N", "M", "pairs", "training_sentences")
MUST_AGREE = (*METHOD, *SIZE)  # or figures are not ranked
SHOULD_AGREE = ("policy", "tolerance")  # details of importance-weighted figures, as their number of samples: a note


@dataclass(frozen=True)
class Column:
    """What the figures of a column have in common."""

    metric: str
    kind: Kind
    of: str | None = None  # the figure that a perplexity is made from
    version: int = 1

    @property
    def direction(self) -> Direction:
        """Which is better."""
        return METRICS[self.metric].direction if self.metric in METRICS else "none"

    @property
    def unit(self) -> str:
        """The metric's unit."""
        return METRICS[self.metric].unit if self.metric in METRICS else ""

    @property
    def place(self) -> tuple[int, int, str, int]:
        """Where it stands: metrics in their order and kinds side by side; MELBO last, as it has a prior of its own."""
        order = list(METRICS)
        number = order.index(self.metric) if self.metric in METRICS else len(order)
        if self.metric.startswith("melbo"):
            number = len(order) + 1
        return number, get_args(Kind).index(self.kind), self.of or "", self.version


def column_of(m: Measurement) -> Column:
    """Return the column that a figure belongs to."""
    of = m.details.get("of")
    return Column(m.name, m.kind, of if isinstance(of, str) else None, m.version)


def agreement(column: Column, rows: dict[str, list[Measurement]]) -> tuple[list[str], bool]:
    """Return notes on how the figures of a column were made differently, and whether they may still be ranked."""
    label = f"{column.metric} ({column.kind.replace('_', ' ')})"
    weighted = column.metric in IMPORTANCE_WEIGHTED or column.of in IMPORTANCE_WEIGHTED
    notes, comparable = [], True
    differing = _differing(rows, lambda m: m.count)
    if differing:
        notes.append(f"{label} not ranked: not the same number of sentences or items ({differing})")
        comparable = False
    for key in MUST_AGREE:
        if not differing and (told := _differing(rows, _detail(key))):
            notes.append(f"{label} not ranked: {key} differs ({told})")
            comparable = False
    if weighted:
        if told := _differing(rows, _importance_samples):
            notes.append(f"{label}: the number of samples K differs ({told}); a larger K gives a tighter bound")
        told_of = {key: _differing(rows, _detail(key)) for key in SHOULD_AGREE}
        notes += [f"{label}: {key} differs ({told})" for key, told in told_of.items() if told]
    return notes, comparable


def _detail(key: str) -> Callable[[Measurement], Any]:
    return lambda m: m.details.get(key)


def _importance_samples(m: Measurement) -> str | int | None:
    """Return K, or `auto` where it was chosen for each sentence; a perplexity has that from its evaluation."""
    evaluation = m.provenance.get("evaluation")
    chosen = isinstance(evaluation, dict) and evaluation.get("samples", 0) is None
    return "auto" if chosen or m.details.get("policy") == "auto" else m.samples


def _differing(rows: dict[str, list[Measurement]], what: Callable[[Measurement], Any]) -> str:
    """Return `name: value, …` if a property is not the same everywhere, else nothing."""
    found = {name: sorted({str(what(m)) for m in figures}) for name, figures in rows.items()}
    if len({value for values in found.values() for value in values}) < 2:
        return ""
    return ", ".join(f"{name}: {' and '.join(values)}" for name, values in found.items())

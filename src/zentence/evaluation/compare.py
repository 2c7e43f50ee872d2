"""Runs side by side: one table a text, kinds kept apart, the best marked only among figures that may be ranked.

A column is a metric of one kind, made from one figure (a perplexity of `nll` is another column than one of `iw_nll`)
by one version of its definition. Figures of different kinds therefore never share a column, and figures on different
texts never a table. Within a column the best is marked if all its runs measured the same number of sentences in the
same way; where they did not, a note says so and nothing is marked.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError, suggestion
from zentence.evaluation.columns import Column, agreement, column_of
from zentence.evaluation.measurement import Kind, Measurement
from zentence.evaluation.metrics import METRICS
from zentence.evaluation.paired import RESAMPLES, paired_bootstrap
from zentence.evaluation.papers import PaperRow, PaperTable
from zentence.evaluation.runs import Run, group_names, group_seeds

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Cell:
    """A figure of one row: of a run, the mean of runs that differ in the seed, or a paper's."""

    value: float
    std: float | None = None  # over seeds, n − 1 in the denominator
    seeds: int = 1
    standard_error: float | None = None  # over sentences, of a single run
    count: int | None = None
    samples: int | None = None
    best: bool = False
    tolerance: float | None = None  # of a paper's figure


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    cells: dict[Column, Cell]
    seeds: tuple[int, ...] = ()
    paper: bool = False
    remark: str | None = None  # a paper's source, and what contradicts it


@dataclass(frozen=True)
class Block:
    """One text's table."""

    split: str
    content: str | None
    sentences: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Two rows on the same sentences: first − second, and what resampling the sentences says about it."""

    split: str
    metric: str
    kind: Kind
    first: str
    second: str
    difference: float
    low: float
    high: float
    first_better: float
    sentences: int
    resamples: int


@dataclass(frozen=True)
class Comparison:
    """Tables, paired differences, and what could not be compared."""

    blocks: tuple[Block, ...]
    pairs: tuple[Pair, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Text:
    """A text that figures are of: for each group of runs, its figures run by run."""

    content: str | None
    names: list[str] = field(default_factory=list)
    figures: dict[int, list[tuple[Run, str, list[Measurement]]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare(
    runs: Sequence[Run],
    *,
    split: str | None = None,
    metrics: Sequence[str] | None = None,
    paper: PaperTable | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare runs on one split (by its recorded name) or on all, by some metrics or all that were measured.

    Runs that differ only in their seed become one row. Where there are per-sentence figures, every other row is
    compared with the first by a paired bootstrap.
    """
    _check_names(runs, split, metrics)
    groups = group_seeds(runs)
    names = group_names(groups)
    texts = _texts(groups, split)
    wanted = None if metrics is None else set(metrics)
    blocks = [_block(text, names, wanted, paper) for text in texts]
    blocks = [block for block in blocks if block.columns]
    if not blocks:
        raise ZentenceError(f"None of these runs has {', '.join(metrics or ())}: measure it with zentence evaluate")
    pairs, notes = _pairs(texts, names, wanted, resamples, seed, progress)
    return Comparison(tuple(blocks), tuple(pairs), tuple(notes))


def _check_names(runs: Sequence[Run], split: str | None, metrics: Sequence[str] | None) -> None:
    if split is not None and not any(split in run.splits for run in runs):
        known = {name for run in runs for name in run.splits}
        raise ZentenceError(f"No run has figures on the split '{split}'.{suggestion(split, known)}")
    measured = {m.name for run in runs for m in run.measurements}
    for name in metrics or ():
        if name not in METRICS and name not in measured:
            raise ZentenceError(f"Unknown metric '{name}'.{suggestion(name, METRICS)}")


def _texts(groups: Sequence[Sequence[Run]], split: str | None) -> list[_Text]:
    """Sort the runs' splits by what is in them; by name and number of sentences where that was not recorded."""
    texts: dict[tuple[Any, ...], _Text] = {}
    for number, group in enumerate(groups):
        for run in group:
            for name in run.splits if split is None else [name for name in run.splits if name == split]:
                figures, content = run.of_split(name), run.content(name)
                key = (content,) if content is not None else (name, _sentences(figures))
                text = texts.setdefault(key, _Text(content))
                mine = text.figures.setdefault(number, [])
                if any(other is run for other, _, _ in mine):
                    text.notes.append(f"{run.name} has figures on this text also as '{name}': see --split")
                    continue
                mine.append((run, name, figures))
                if name not in text.names:
                    text.names.append(name)
    return list(texts.values())


def _sentences(figures: Iterable[Measurement]) -> int:
    """Return the number of sentences of a split's likelihoods, or whatever its first figure counts."""
    rows = list(figures)
    likelihood = [m.count for m in rows if m.name in ("nll", "elbo_nll", "iw_nll", "distortion", "rate")]
    return (likelihood or [m.count for m in rows])[0]


def _block(text: _Text, names: Sequence[str], wanted: set[str] | None, paper: PaperTable | None) -> Block:
    table: dict[Column, dict[int, list[tuple[Run, Measurement]]]] = {}
    for number, members in text.figures.items():
        for run, _, figures in members:
            for m in figures:
                if wanted is None or m.name in wanted:
                    table.setdefault(column_of(m), {}).setdefault(number, []).append((run, m))
    columns = sorted(table, key=lambda column: column.place)
    notes = list(text.notes)
    cells: dict[int, dict[Column, Cell]] = {number: {} for number in text.figures}
    for column in columns:
        made = {number: _cell([m for _, m in members]) for number, members in table[column].items()}
        remarks, comparable = agreement(column, {names[n]: [m for _, m in ms] for n, ms in table[column].items()})
        notes += remarks
        best = _best(column, made) if comparable and text.content is not None else set()
        for number, cell in made.items():
            cells[number][column] = cell if number not in best else Cell(**{**cell.__dict__, "best": True})
    notes += _remarks_on_kinds(columns, table)
    if text.content is None and len(text.figures) > 1:
        notes.append("not ranked: it was not recorded whether this is the same text for all; see zentence evaluate")
    rows = [
        Row(names[number], cells[number], tuple(run.seed for run, _, _ in members if run.seed is not None))
        for number, members in text.figures.items()
        if cells[number]
    ]
    if paper is not None and columns:
        published = list(_paper_rows(paper, wanted))
        rows += published
        notes += [f"{row.name}: {row.remark}" for row in published]
        columns = sorted({*columns, *(column for row in published for column in row.cells)}, key=lambda c: c.place)
    sentences = _sentences(next(iter(text.figures.values()))[0][2])
    return Block(" = ".join(text.names), text.content, sentences, tuple(columns), tuple(rows), tuple(notes))


def _cell(figures: Sequence[Measurement]) -> Cell:
    values = np.array([m.value for m in figures], dtype=np.float64)
    one = figures[0] if len(figures) == 1 else None
    return Cell(
        value=float(values.mean()),
        std=None if one else float(values.std(ddof=1)),
        seeds=len(values),
        standard_error=one.standard_error if one else None,
        count=_shared([m.count for m in figures]),
        samples=_shared([m.samples for m in figures]),
    )


def _shared(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None


def _best(column: Column, cells: dict[int, Cell]) -> set[int]:
    """Return the rows with the best value; none where neither direction is better, or all values are equal."""
    values = {cell.value for cell in cells.values()}
    if column.direction == "none" or len(values) < 2:
        return set()
    best = min(values) if column.direction == "lower" else max(values)
    return {number for number, cell in cells.items() if cell.value == best}


def _remarks_on_kinds(
    columns: Sequence[Column], table: dict[Column, dict[int, list[tuple[Run, Measurement]]]]
) -> list[str]:
    notes = []
    for metric in dict.fromkeys(column.metric for column in columns):
        versions = {column.version for column in columns if column.metric == metric}
        if len(versions) > 1:
            told = ", ".join(map(str, sorted(versions)))
            notes.append(f"{metric}: versions {told} of its definition stand in columns of their own")
    for column in columns:
        figures = [m for members in table[column].values() for _, m in members]
        if column.metric.startswith("melbo"):
            floors = {m.details.get("floor") for m in figures} - {None}
            floor = f"; its floor is log N = {floors.pop():.2f}" if len(floors) == 1 else ""
            notes.append(f"{column.metric} is a bound only under a prior made of the evaluated sentences{floor}")
        elif column.kind == "not_a_bound":
            reasons = {m.details.get("note") for m in figures}
            why = reasons.pop() if len(reasons) == 1 and None not in reasons else "it may lie below −log p(x)"
            notes.append(f"{column.metric} is not a bound: {why}")
    return notes


def _paper_rows(paper: PaperTable, wanted: set[str] | None) -> Iterable[Row]:
    for entry in paper.rows:
        cells = {
            Column(name, entry.kind_of(name), _base(name, entry), _version(name)): Cell(
                value, tolerance=entry.tolerance_of(name)
            )
            for name, value in entry.figures.items()
            if wanted is None or name in wanted
        }
        remark = entry.source + (f"; {entry.conflict}" if entry.conflict else "")
        if cells:
            yield Row(f"{entry.name} (paper, {entry.split})", cells, paper=True, remark=remark)


def _version(metric: str) -> int:
    return METRICS[metric].version if metric in METRICS else 1


def _base(metric: str, entry: PaperRow) -> str | None:
    """Return the likelihood that a published perplexity is made from: the one of its row and kind."""
    if metric not in ("ppl", "bits_per_byte"):
        return None
    candidates = ("nll",) if entry.kind_of(metric) == "exact" else ("iw_nll", "elbo_nll")
    return next((name for name in candidates if name in entry.figures), candidates[0])


def _pairs(
    texts: Sequence[_Text],
    names: Sequence[str],
    wanted: set[str] | None,
    resamples: int,
    seed: int,
    progress: Progress | None,
) -> tuple[list[Pair], list[str]]:
    """Compare every other row with the first, metric by metric, where both have the same sentences' figures."""
    pairs: list[Pair] = []
    notes: list[str] = []
    for text in texts:
        numbers = sorted(text.figures)
        sides = {number: _sentence_means(text.figures[number], notes) for number in numbers} if len(numbers) > 1 else {}
        jobs = [
            (number, column)
            for number in numbers[1:]
            for column in sorted(sides[numbers[0]].keys() & sides[number].keys(), key=lambda column: column.place)
            if column.direction != "none" and (wanted is None or column.metric in wanted)
        ]
        for done, (number, column) in enumerate(jobs):
            first, second = sides[numbers[0]][column], sides[number][column]
            if len(first) != len(second) or len(first) < 2:
                notes.append(f"{names[numbers[0]]} and {names[number]}: {column.metric} is of other sentences")
                continue
            found = paired_bootstrap(first, second, column.direction, resamples=resamples, seed=seed)
            about = (" = ".join(text.names), column.metric, column.kind, names[numbers[0]], names[number])
            pairs.append(Pair(*about, **found._asdict()))
            if progress is not None:
                progress(done + 1, len(jobs))
    return pairs, list(dict.fromkeys(notes))


def _sentence_means(
    members: Sequence[tuple[Run, str, list[Measurement]]], notes: list[str]
) -> dict[Column, NDArray[np.float64]]:
    """Return per-sentence figures by column, the mean over the seeds of a row; only what agrees with the results."""
    found: list[dict[Column, NDArray[np.float64]]] = []
    for run, split, figures in members:
        arrays = run.sentence_figures(split)
        if arrays is None:
            return {}
        if arrays.content is None or arrays.content != run.content(split):
            notes.append(f"{run.name}: the per-sentence figures of {split} are of another text than its results")
            return {}
        mine = {}
        for m in figures:
            values = arrays.values.get(m.name)
            if values is None:
                continue
            if len(values) != m.count or not np.isclose(values.mean(), m.value, rtol=1e-6, atol=1e-9):
                notes.append(f"{run.name}: the per-sentence {m.name} of {split} are not those of its results")
                continue
            mine[column_of(m)] = values
        found.append(mine)
    shared = set.intersection(*(set(mine) for mine in found))
    alike = {column for column in shared if len({len(mine[column]) for mine in found}) == 1}
    return {column: np.mean([mine[column] for mine in found], axis=0) for column in alike}

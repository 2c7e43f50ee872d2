"""Ours beside the paper's: as plain values, for a terminal, and as Markdown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zentence.evaluation.papers import PaperRow
from zentence.reproduce.checks import Checked, check_directions, same_order
from zentence.reproduce.results import Results
from zentence.reproduce.rows import Row, rows_of, table_of
from zentence.reproduce.verdicts import Figure, Verdict, judge

SUMMARY = (
    *("nll", "iw_nll", "elbo_nll", "melbo_nll", "aggregate_prior_nll", "ppl", "distortion", "rate"),
    *("mutual_information", "active_units", "shuffled_code_gap"),
)
_SHORT = {
    "mutual_information": "information",
    "active_units": "active",
    "shuffled_code_gap": "shuffled",
    "aggregate_prior_nll": "aggregate prior",
}


@dataclass(frozen=True)
class Line:
    """One published figure, ours beside it."""

    row: str
    title: str
    metric: str
    corpus: str
    theirs: float
    source: PaperRow
    ours: Figure
    verdict: Verdict


@dataclass(frozen=True)
class Report:
    """What there is to say of a paper's finished rows."""

    results: Results
    title: str
    rows: tuple[Row, ...]  # the finished ones, in the paper's order
    lines: tuple[Line, ...]
    checks: tuple[Checked, ...]
    order: dict[str, tuple[int, int]]


def make_report(results: Results) -> Report:
    """Compare all finished rows with the paper."""
    table = table_of(results.paper)
    rows = [row for row in rows_of(results.paper) if row.name in results.rows]
    lines = []
    for row in rows:
        figures = results.figures(row.name)
        for entry in row.published:
            corpus = entry.corpus or row.corpora[0]
            for metric, theirs in entry.figures.items():
                if (ours := figures.get((metric, corpus))) is None:
                    continue
                kind, tolerance = entry.kind_of(metric), entry.tolerance_of(metric)
                verdict = judge(metric, ours, theirs, kind, entry.split, tolerance)
                lines.append(Line(row.name, entry.name, metric, corpus, theirs, entry, ours, verdict))
    values = results.values()
    corpora = {row.name: row.corpora for row in rows}
    checks = tuple(check_directions(table, values, corpora))
    return Report(results, table.title, tuple(rows), tuple(lines), checks, same_order(table, values, corpora))


def to_json(report: Report) -> dict[str, Any]:
    """Return plain values."""
    results = report.results
    return {
        "paper": results.paper,
        "title": report.title,
        "variant": results.variant,
        "split": results.split,
        "rows": [
            {
                "row": row.name,
                "seeds": [int(seed) for seed in results.rows[row.name]["seeds"]],
                "figures": [
                    {"metric": metric, "corpus": corpus, **asdict(figure)}
                    for (metric, corpus), figure in results.figures(row.name).items()
                ],
            }
            for row in report.rows
        ],
        "beside": [
            {
                "row": line.row,
                "metric": line.metric,
                "ours": asdict(line.ours),
                "paper": {
                    "name": line.title,
                    "value": line.theirs,
                    "kind": line.source.kind_of(line.metric),
                    "text": line.source.split,
                    "source": line.source.source,
                    "tolerance": line.source.tolerance_of(line.metric),
                    "conflict": line.source.conflict,
                },
                "difference": line.verdict.difference,
                "verdict": line.verdict.state,
                "words": line.verdict.words,
            }
            for line in report.lines
        ],
        "checks": [asdict(check) for check in report.checks],
        "same_order": {metric: {"pairs": total, "same": same} for metric, (same, total) in report.order.items()},
    }


def shown(figure: Figure) -> str:
    """Return a figure, with its spread over seeds."""
    whole = figure.value == int(figure.value) and figure.std is None
    digits = 0 if whole else 3 if abs(figure.value) < 1.0 else 2
    spread = f" ± {figure.std:.{digits}f}" if figure.std is not None else ""
    return f"{round(figure.value, digits) + 0.0:.{digits}f}{spread}"  # + 0.0: no −0.00


def summary_table(report: Report) -> list[list[str]]:
    """Return our figures row by row, with the kinds of likelihoods in the heads of their columns."""
    found = {
        (row.name, corpus): {m: f for (m, c), f in report.results.figures(row.name).items() if c == corpus}
        for row in report.rows
        for corpus in row.corpora
    }
    columns: dict[tuple[str, str], None] = {}
    for metric in SUMMARY:
        for figures in found.values():
            if metric in figures:
                columns.setdefault((metric, figures[metric].kind))
    table = [["row", "text", "seeds", *(_head(metric, kind) for metric, kind in columns)]]
    for (name, _), figures in found.items():
        if not figures:
            continue
        seeds = len(report.results.rows[name]["seeds"])
        cells = [
            shown(figures[metric]) if metric in figures and figures[metric].kind == kind else "–"
            for metric, kind in columns
        ]
        table.append([name, next(iter(figures.values())).text, str(seeds), *cells])
    return table


def _head(metric: str, kind: str) -> str:
    name = _SHORT.get(metric, metric)
    return f"{name} ({kind.replace('_', ' ')})" if metric.endswith("nll") or metric == "ppl" else name


def beside_table(report: Report) -> list[list[str]]:
    """Return one line for each published figure."""
    table = [["row", "figure", "paper", "ours", "difference", "verdict"]]
    for line in report.lines:
        where = f"{line.theirs:g} ({line.source.source})"
        digits = 3 if abs(line.theirs) < 1.0 else 2
        difference = f"{round(line.verdict.difference, digits) + 0.0:+.{digits}f}"
        if line.verdict.state == "direction only":
            difference = f"({difference})"
        table.append([line.row, line.metric, where, shown(line.ours), difference, line.verdict.words])
    return table


def check_lines(report: Report) -> list[str]:
    """Return the directions that must come out, and how they did."""
    lines = []
    for check in report.checks:
        relations = "; ".join(text if one == check.outcome else f"{text}: {one}" for text, one in check.relations)
        lines.append(f"{check.outcome}: {check.text} [{relations}]")
    for metric, (same, total) in report.order.items():
        lines.append(f"{metric}: {same} of {total} pairs of rows stand in the paper's order")
    return lines


def note_lines(report: Report) -> list[str]:
    """Return what was changed in our rows, and what papers say against their own figures."""
    changed: dict[str, list[str]] = {}
    for row in report.rows:
        for run in report.results.rows[row.name]["seeds"].values():
            if run["changes"]:
                told = f"settings were changed: {', '.join(run['changes'])}"
                changed.setdefault(told, []).append(row.name)
    ours = [f"{', '.join(dict.fromkeys(rows))}: {told}" for told, rows in changed.items()]
    notes = {(line.title, line.source.conflict) for line in report.lines if line.source.conflict}
    return [*ours, *(f"{title}: {conflict}" for title, conflict in sorted(notes, key=str))]


def to_text(report: Report) -> str:
    """Return tables for a terminal."""
    parts = [f"{report.title}: {report.results.variant}", *aligned(summary_table(report)), ""]
    if report.lines:
        parts += [*aligned(beside_table(report)), ""]
    parts += [*check_lines(report), *(f"note: {line}" for line in note_lines(report))]
    return "\n".join(parts)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose columns stand below each other."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def markdown_table(table: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table."""
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return [rows[0], "| " + " | ".join("---" for _ in table[0]) + " |", *rows[1:]]


def to_markdown(report: Report, level: int = 1) -> str:
    """Return the whole report as Markdown, with headings from a level on."""
    heading = "#" * level
    parts = [f"{heading} {report.title}: {report.results.variant}", ""]
    parts += [*markdown_table(summary_table(report)), ""]
    if report.lines:
        parts += [f"{heading}# Beside the paper", "", *markdown_table(beside_table(report)), ""]
    if report.checks:
        parts += [f"{heading}# Directions", "", *(f"- {line}" for line in check_lines(report)), ""]
    if notes := note_lines(report):
        parts += [f"{heading}# Notes", "", *(f"- {line}" for line in notes), ""]
    return "\n".join(parts)

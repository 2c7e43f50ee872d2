"""The page on all stored results: `docs/reproduction.md`. Nothing stands there that is not in the results."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zentence.errors import ZentenceError
from zentence.reproduce.data import Split
from zentence.reproduce.results import last_stage, only_ended_early, read_stored, result_path
from zentence.reproduce.rows import deviations, papers, table_of
from zentence.reproduce.tables import Report, make_report, markdown_table, to_markdown

TITLE = "# The papers' tables, again"
_INTRODUCTION = f"""{TITLE}

Written by `zentence reproduce --write-docs docs/reproduction.md` from the files in `results/`; only rows that have been
run are here. *faithful* is the paper's optimiser and schedule, *quick* the same model and objective with a schedule of
ours. Likelihoods carry their kind: `exact`, `upper bound`, `estimate` or `not a bound`; kinds are never ranked against
each other. A figure is compared with the paper's by number only on the same text and of the same kind; everywhere else
the direction is all that is said, and the directions that must come out are checked below each table.
"""


def stored_reports(folder: Path) -> Iterator[Report]:
    """Yield a report for every file of results that has a row, paper by paper."""
    for paper in papers():
        for variant in ("faithful", "quick"):
            splits: tuple[Split, ...] = ("valid", "test")
            for split in splits:
                path = result_path(folder, paper, variant, split)
                if path.exists() and (stored := read_stored(path, paper, variant, split)).rows:
                    yield make_report(stored)


def write_page(folder: Path) -> tuple[str, int]:
    """Return the page as Markdown, and from how many files it was made."""
    reports = list(stored_reports(folder))
    if not reports:
        raise ZentenceError(f"There are no results in {folder}: make some with zentence reproduce PAPER")
    parts = [_INTRODUCTION]
    before = None
    for report in reports:
        if report.results.paper != before:
            before = report.results.paper
            parts += [f"# {report.title}", "", *_deviations(before)]
        parts += [to_markdown(report, 2), *_times(report), *_to_quality(report, folder)]
    parts += _converted()
    return "\n".join(parts).rstrip("\n") + "\n", len(reports)


def _deviations(paper: str) -> list[str]:
    """Return what a paper's README says of differences, without its title and how to run the rows."""
    lines = deviations(paper).partition("## How to run it")[0].strip().splitlines()
    body = [line.replace("## ", "### ", 1) if line.startswith("## ") else line for line in lines[1:]]
    return [*body, ""]


def _times(report: Report) -> list[str]:
    """Return the minutes that each row's training took, over its seeds."""
    table = [["row", "minutes of training", "commit"]]
    for row in report.rows:
        runs = report.results.rows[row.name]["seeds"].values()
        seconds = [run["seconds"] for run in runs if run["seconds"] is not None]
        commits = {str(about.get("commit") or "")[:8] for run in runs for about in run["provenance"].values()}
        if seconds:
            table.append([row.name, f"{sum(seconds) / len(seconds) / 60:.1f}", ", ".join(sorted(commits))])
    return ["### Time", "", *markdown_table(table), ""] if len(table) > 1 else []


def _to_quality(report: Report, folder: Path) -> list[str]:
    """Return what quick reaches beside what a faithful run that was ended early had reached, and when."""
    results = report.results
    path = result_path(folder, results.paper, "faithful", results.split, changed=True)
    slow = read_stored(path, results.paper, "faithful", results.split).rows if results.variant == "quick" else {}
    table = [["row", "figure", "schedule", "minutes", "best", "best in 15 minutes", "best in 60 minutes"]]
    for name in (name for name in slow if name in results.rows):
        for schedule, row in (("faithful", slow[name]), ("quick", results.rows[name])):
            run = next(iter(row["seeds"].values()))
            if (curve := last_stage(run)) and only_ended_early(run):
                within = [_best(curve, minutes) for minutes in (math.inf, 15.0, 60.0)]
                table.append([name, curve[0]["figure"], schedule, f"{curve[-1]['seconds'] / 60:.0f}", *within])
    about = "On the validation sentences that select weights; these faithful runs were ended early."
    return ["### Time to quality", "", about, "", *markdown_table(table), ""] if len(table) > 1 else []


def _best(curve: Sequence[Mapping[str, Any]], minutes: float) -> str:
    values = [point["value"] for point in curve if point["seconds"] <= 60.0 * minutes]
    return f"{min(values):.2f}" if values else "–"


def _converted() -> list[str]:
    """Return how many things a sentence each paper counts: nats per sentence over the logarithm of its perplexity."""
    table = [["paper", "row", "text", "nats a sentence", "perplexity", "counted a sentence"]]
    for paper in papers():
        seen = set()
        for entry in table_of(paper).rows:
            figures = entry.figures
            nats = figures.get("nll", figures.get("iw_nll"))
            if nats is None or figures.get("ppl", 1.0) <= 1.0 or entry.split in seen:
                continue
            seen.add(entry.split)
            counted = nats / math.log(figures["ppl"])
            table.append([paper, entry.name, entry.split, f"{nats:g}", f"{figures['ppl']:g}", f"{counted:.2f}"])
    text = """# What the papers' perplexities count

A perplexity is exp(nats / n). From a paper's own nats a sentence and perplexity follows what it divides by: n =
nats / log(perplexity). PTB's validation text has 20.89 words a sentence, 21.89 with `<eos>`: papers near 21.9 count
words and `<eos>`, as zentence does. `zentence convert` turns any published figure into the others, with and without
`<eos>`, per word or per sub-word.
"""
    return [text, *markdown_table(table), ""]

"""A comparison as text, Markdown, LaTeX, CSV or JSON.

JSON: `{"blocks": […], "pairs": […], "notes": […]}`. A block is one text: `{"split", "content", "sentences", "columns",
"rows", "notes"}`; a column `{"metric", "kind", "of", "version", "unit", "direction"}`; a row `{"name", "paper",
"seeds", "remark", "cells"}` with one cell a column: null, or `{"value", "std", "seeds", "standard_error", "count",
"samples", "best", "tolerance"}`. A pair is `{"split", "metric", "kind", "first", "second", "difference", "low",
"high", "first_better", "sentences", "resamples"}`.
CSV has one line a figure, with the columns in `CSV_COLUMNS`.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from zentence.evaluation.columns import Column
from zentence.evaluation.compare import Block, Cell, Comparison, Pair, Row

FORMATS = ("table", "markdown", "latex", "csv", "json")
CSV_COLUMNS = (
    *("split", "content", "run", "paper", "seeds", "metric", "kind", "of", "version", "unit", "direction"),
    *("value", "std", "standard_error", "count", "samples", "best", "remark"),
)
_GREEK = (  # from α to ω; LaTeX has no command for ο and ς
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "-", "pi", "rho", "-", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
        **{character: f"\\{character}" for character in "{}$&#%_"},
        **{character: f"${character}$" for character in "<>"},
        "−": "$-$",
        **{
            character: rf"$\{name}$" for character, name in zip("±≤≥×→", ("pm", "le", "ge", "times", "to"), strict=True)
        },
        **{chr(0x3B1 + number): rf"$\{name}$" for number, name in enumerate(_GREEK) if name != "-"},
    }
)
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in r"\`*_{}[]<>#|~$"})


def latex_text(text: str) -> str:
    """Return text as LaTeX shows it literally."""
    return _one_line(text).translate(_LATEX)


def markdown_text(text: str) -> str:
    """Return text as Markdown shows it literally, inside a table as well."""
    return _one_line(text).translate(_MARKDOWN)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return plain values of the form that the module describes."""
    return {
        "blocks": [
            {
                "split": block.split,
                "content": block.content,
                "sentences": block.sentences,
                "columns": [{**asdict(c), "unit": c.unit, "direction": c.direction} for c in block.columns],
                "rows": [_row_json(row, block.columns) for row in block.rows],
                "notes": list(block.notes),
            }
            for block in comparison.blocks
        ],
        "pairs": [asdict(pair) for pair in comparison.pairs],
        "notes": list(comparison.notes),
    }


def _row_json(row: Row, columns: Sequence[Column]) -> dict[str, Any]:
    cells = [row.cells.get(column) for column in columns]
    return {
        "name": row.name,
        "paper": row.paper,
        "seeds": list(row.seeds),
        "remark": row.remark,
        "cells": [None if cell is None else asdict(cell) for cell in cells],
    }


def to_csv(comparison: Comparison) -> str:
    """Return one line a figure, with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for block in comparison.blocks:
        for row in block.rows:
            for column, cell in sorted(row.cells.items(), key=lambda item: item[0].place):
                of, seeds = column.of or "", cell.seeds if not row.paper else ""
                about = (
                    "" if row.paper else block.split,
                    "" if row.paper else block.content,
                    row.name,
                    row.paper,
                    seeds,
                )
                what = (column.metric, column.kind, of, column.version, column.unit, column.direction)
                figure = (cell.value, cell.std, cell.standard_error, cell.count, cell.samples, cell.best)
                writer.writerow([*about, *what, *figure, row.remark])
    return out.getvalue()


def to_text(comparison: Comparison, width: int = 120) -> str:
    """Return tables for a terminal; columns that do not fit in its width go on below."""
    lines: list[str] = []
    for block in comparison.blocks:
        lines += [_title(block), *_folded(block, width), *_legend(block)]
        lines += [*(f"  note: {note}" for note in block.notes), ""]
    lines += _pair_lines(comparison.pairs)
    lines += [f"note: {note}" for note in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def _title(block: Block) -> str:
    return f"{_one_line(block.split)} ({block.sentences:,} sentences)"


def _legend(block: Block) -> list[str]:
    cells = [cell for row in block.rows for cell in row.cells.values()]
    parts = ["* best of its column"] if any(cell.best for cell in cells) else []
    if any(cell.std is not None for cell in cells):
        parts.append("± standard deviation over seeds")
    return [f"  {'; '.join(parts)}"] if parts else []


def _folded(block: Block, width: int) -> list[str]:
    first = ["", "", *(_row_name(row) for row in block.rows)]
    columns = [
        [*_heading(block, c), *(_text_cell(row.cells.get(c), c, block) for row in block.rows)] for c in block.columns
    ]
    left = max(len(name) for name in first)
    lines: list[str] = []
    while columns:
        taken, used = 0, 2 + left
        while taken < len(columns) and (taken == 0 or used + 2 + _width(columns[taken]) <= width):
            used += 2 + _width(columns[taken])
            taken += 1
        for number, name in enumerate(first):
            cells = [column[number].rjust(_width(column)) for column in columns[:taken]]
            lines.append("  ".join([f"  {name:<{left}}", *cells]).rstrip())
        columns = columns[taken:]
        if columns:
            lines.append("")
    return lines


def _width(column: Sequence[str]) -> int:
    return max(map(len, column))


def _row_name(row: Row) -> str:
    seeds = f" ({len(row.seeds)} seeds)" if len(row.seeds) > 1 else ""
    return _one_line(row.name) + seeds


def _heading(block: Block, column: Column) -> tuple[str, str]:
    """Return a column's name, with what tells it from others of its metric and kind, and its kind."""
    alike = [c for c in block.columns if (c.metric, c.kind) == (column.metric, column.kind)]
    name = column.metric
    if len({c.of for c in alike}) > 1 and column.of:
        name += f" of {column.of}"
    if len({c.version for c in alike}) > 1:
        name += f" v{column.version}"
    return name, column.kind.replace("_", " ")


def _digits(column: Column, block: Block) -> int:
    cells = [row.cells[column] for row in block.rows if column in row.cells]
    if column.unit == "units":
        return 0 if all(cell.value == round(cell.value) for cell in cells) else 1
    return 2 if max(abs(cell.value) for cell in cells) >= 1.5 else 3


def _number(cell: Cell, digits: int) -> tuple[str, str | None]:
    """Return value and deviation as they are printed."""
    deviation = None if cell.std is None else f"{cell.std:.{max(digits, 1)}f}"
    return f"{cell.value:.{digits}f}", deviation


def _text_cell(cell: Cell | None, column: Column, block: Block) -> str:
    if cell is None:
        return "– "
    value, deviation = _number(cell, _digits(column, block))
    return value + (f" ± {deviation}" if deviation else "") + ("*" if cell.best else " ")


def _pair_lines(pairs: Sequence[Pair]) -> list[str]:
    lines = []
    for p in pairs:
        head = f"{_one_line(p.split)}, {p.metric} ({p.kind.replace('_', ' ')}): {p.first} − {p.second}"
        interval = f"{p.difference:+.3f}, 95 % interval {p.low:+.3f} to {p.high:+.3f}"
        lines.append(f"{_one_line(head)} = {interval}; the first is better in {p.first_better:.1%} of resamples")
    if pairs:
        lines.insert(0, f"Paired bootstrap over sentences ({pairs[0].resamples:,} resamples)")
        lines.append("")
    return lines


def to_markdown(comparison: Comparison) -> str:
    """Return Markdown tables, the best in bold."""
    lines: list[str] = []
    for block in comparison.blocks:
        headings = [_heading(block, column) for column in block.columns]
        lines += [f"**{markdown_text(_title(block))}**", ""]
        lines.append(_bar(["", *(f"{markdown_text(name)}<br>{kind}" for name, kind in headings)]))
        lines.append(_bar([":--", *("--:" for _ in headings)]))
        for row in block.rows:
            cells = [_markdown_cell(row.cells.get(column), column, block) for column in block.columns]
            lines.append(_bar([markdown_text(_row_name(row)), *cells]))
        lines += ["", *(f"- {markdown_text(note)}" for note in block.notes), *([""] if block.notes else [])]
    lines += [f"- {markdown_text(line)}" for line in _pair_lines(comparison.pairs) if line]
    lines += [f"- {markdown_text(note)}" for note in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def _bar(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell | None, column: Column, block: Block) -> str:
    if cell is None:
        return ""
    value, deviation = _number(cell, _digits(column, block))
    text = value + (f" ± {deviation}" if deviation else "")
    return f"**{text}**" if cell.best else text


def to_latex(comparison: Comparison) -> str:
    """Return `tabular`s in the style of the package booktabs, the best in bold; notes are comments."""
    lines: list[str] = []
    for block in comparison.blocks:
        headings = [_heading(block, column) for column in block.columns]
        lines += [f"% {_title(block)}", rf"\begin{{tabular}}{{l{'r' * len(headings)}}}", r"\toprule"]
        lines.append(" & ".join(["", *(latex_text(name) for name, _ in headings)]) + r" \\")
        lines.append(" & ".join(["", *(rf"{{\footnotesize {kind}}}" for _, kind in headings)]) + r" \\")
        lines.append(r"\midrule")
        for number, row in enumerate(block.rows):
            if row.paper and number and not block.rows[number - 1].paper:
                lines.append(r"\midrule")
            cells = [_latex_cell(row.cells.get(column), column, block) for column in block.columns]
            lines.append(" & ".join([latex_text(_row_name(row)), *cells]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {_one_line(note)}" for note in block.notes), ""]
    lines += [f"% {line}" for line in _pair_lines(comparison.pairs) if line]
    lines += [f"% {_one_line(note)}" for note in comparison.notes]
    return "\n".join(lines).rstrip() + "\n"


def _latex_cell(cell: Cell | None, column: Column, block: Block) -> str:
    if cell is None:
        return ""
    value, deviation = _number(cell, _digits(column, block))
    value = value.replace("-", "$-$")
    text = rf"\textbf{{{value}}}" if cell.best else value
    return text + (rf" $\pm$ {deviation}" if deviation else "")

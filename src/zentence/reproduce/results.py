"""Results of a paper's rows: figures and where they come from, no text of any corpus.

`results/<paper>/<variant>.json` (`<variant>-test.json` for the test split, `…-changed.json` for rows with changed
settings, which never touch the results of the recipes as they are) holds

    {"paper", "variant", "split", "rows": {row: {"fingerprint", "seeds": {seed: {"figures", "curve", …}}}}}

where a figure is {"name", "corpus", "text", "value", "kind", "unit", "standard_error", "count", "samples", "version",
"details"} and the curve is what validation said while training: [{"seconds", "stage", "figure", "value"}].
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zentence.errors import ZentenceError
from zentence.evaluation.measurement import Measurement
from zentence.files import write_atomically
from zentence.reproduce.data import Split
from zentence.reproduce.verdicts import Figure, figure_over_seeds

_NUMBERS_IN_WORDS = ("policy", "of")  # details that are words of zentence's own
Place = tuple[str, str]  # metric, corpus


def result_path(folder: Path, paper: str, variant: str, split: Split, *, changed: bool = False) -> Path:
    """Return where results are kept."""
    name = variant + ("" if split == "valid" else f"-{split}") + ("-changed" if changed else "")
    return folder / paper / f"{name}.json"


def figure_of(m: Measurement, corpus: str, text: str) -> dict[str, Any]:
    """Return a measurement as plain values; of its details only numbers remain, no words from a corpus."""
    details = {name: value for name, value in m.details.items() if _is_figure(name, value)}
    return {
        "name": m.name,
        "corpus": corpus,
        "text": text,
        "value": m.value,
        "kind": m.kind,
        "unit": m.unit,
        "standard_error": m.standard_error,
        "count": m.count,
        "samples": m.samples,
        "version": m.version,
        "details": details,
    }


def _is_figure(name: str, value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (name in _NUMBERS_IN_WORDS and isinstance(value, str))


@dataclass(frozen=True)
class Results:
    """All rows of a paper that are finished in a variant, on a split."""

    paper: str
    variant: str
    split: Split
    rows: dict[str, Any]

    def figures(self, row: str) -> dict[Place, Figure]:
        """Return a row's figures, joined over seeds, by metric and corpus."""
        seeds = self.rows[row]["seeds"].values()
        found: dict[Place, list[dict[str, Any]]] = {}
        for result in seeds:
            for figure in result["figures"]:
                found.setdefault((figure["name"], figure["corpus"]), []).append(figure)
        return {
            place: figure_over_seeds([f["value"] for f in same], same[0]["kind"], same[0]["text"])
            for place, same in found.items()
        }

    def values(self) -> dict[str, dict[str, float]]:
        """Return means over seeds by row and metric; of a row on several corpora, the first's."""
        result: dict[str, dict[str, float]] = {}
        for row in self.rows:
            for (metric, _), figure in self.figures(row).items():
                result.setdefault(row, {}).setdefault(metric, figure.value)
        return result


def read_stored(path: Path, paper: str, variant: str, split: Split) -> Results:
    """Read what is stored; nothing, if there is no file yet."""
    if not path.exists():
        return Results(paper, variant, split, {})
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["paper"], content["variant"], content["split"]) != (paper, variant, split):
            raise ValueError("it is of another paper, variant or split")
        return Results(paper, variant, split, content["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ZentenceError(f"{path} is not a file of results: {error}") from error


def only_ended_early(run: dict[str, Any]) -> bool:
    """Say whether the one change to a run's settings was a limit of its time: until then it is the recipe's own run."""
    return all(change.startswith("training.max_minutes=") for change in run["changes"])


def last_stage(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what validation said in a run's last stage."""
    curve: list[dict[str, Any]] = run["curve"]
    return [point for point in curve if point["stage"] == curve[-1]["stage"]]


def add_result(results: Results, row: str, seed: int, fingerprint: str, result: dict[str, Any]) -> Results:
    """Return results with those of a seed; seeds of other settings of the row are dropped."""
    before = results.rows.get(row, {})
    seeds = before.get("seeds", {}) if before.get("fingerprint") == fingerprint else {}
    merged = dict(sorted({**seeds, str(seed): result}.items(), key=lambda item: int(item[0])))
    rows = {**results.rows, row: {"fingerprint": fingerprint, "seeds": merged}}
    return Results(results.paper, results.variant, results.split, rows)


def write_stored(path: Path, results: Results) -> None:
    """Write results, whole or not at all."""
    content = {"paper": results.paper, "variant": results.variant, "split": results.split, "rows": results.rows}
    write_json(path, content)


def write_json(path: Path, content: Any) -> None:
    """Write one JSON document, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZentenceError(f"Cannot write {path}: {error.strerror}") from error
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

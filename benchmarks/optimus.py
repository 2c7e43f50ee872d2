"""`python -m benchmarks.optimus`: pre-training, injections and pre-trained parts compared; fills docs/optimus.md.

Every row is a recipe with `--set` changes on text of the data folder (`ZENTENCE_DATA`): `zentence train` does the same.
Finished rows are kept, and interrupted ones go on. Figures go to results/optimus/, without any of the text.
"""

import argparse
import json
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.children import train_row, write_between
from zentence.files import write_atomically

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "optimus.md", ROOT / "results" / "optimus"
MARKS = "<!-- {}: written by python -m benchmarks.optimus -->", "<!-- end of {} -->"
FILES = {
    "pretrain": ("pretrain/sentences.train.txt", "pretrain/sentences.valid.txt"),
    "snli": ("snli/snli.train.txt", "snli/snli.valid.txt"),
}
LENGTH = ("stages.0.max_tokens=600000", "training.validate_every=0.3")  # of fine-tuning, for all rows alike
# the objective of the recipe's own training, for both models: neither is helped or held back by a schedule
RULE = "total_target=8.0,target_per_dimension=0.03,mismatch_weight=1.0"
OBJECTIVE = f'stages.0.objective={{name="elbo",rate_rule={{name="free_bits",on="both",mean="batch",{RULE}}}}}'
FAST = "optimizer.learning_rate=1e-3"
NEW = 'stages.0.reset=["encoder","posterior","decoder"]'
ALONE = ('encoder={name="none"}', 'stages.0.objective={name="likelihood"}', 'stages.0.reset=["decoder"]')
SHORT = ("stages.0.max_tokens=60000", "stages.1.max_tokens=240000", "training.validate_every=0.045")
INJECTIONS = ("both", "memory", "embedding")


class Row(NamedTuple):
    """A run: what it is called, its recipe and text, the row whose model it starts from, and its changes."""

    name: str
    title: str
    recipe: str
    text: str = "snli"
    start: str | None = None
    changes: tuple[str, ...] = ()
    sentences: int | None = None  # of validation, the first ones; None: all
    codes: int = 1  # drawn a sentence for its bound


ROWS = (
    Row(
        "pretrained",
        "pre-training, on the other text",
        "optimus-mini@information",
        "pretrain",
        changes=("stages.0.max_tokens=200000", "stages.1.max_tokens=1700000"),
        codes=20,
    ),
    Row(
        "finetuned",
        "pre-trained, then fine-tuned",
        "optimus-finetune",
        start="pretrained",
        changes=(*LENGTH, OBJECTIVE),
        sentences=2000,
        codes=50,
    ),
    Row(
        "scratch",
        "from scratch",
        "optimus-finetune",
        start="pretrained",  # for its tokeniser: the weights are drawn anew
        changes=(*LENGTH, OBJECTIVE, NEW, FAST),
        sentences=2000,
        codes=50,
    ),
    Row(
        "decoder",
        "the decoder alone, from scratch",
        "optimus-finetune",
        start="pretrained",
        changes=(*LENGTH, *ALONE, FAST),
        sentences=2000,
    ),
    Row(
        "autoencoder",
        "pre-trained, then an auto-encoder",
        "optimus-finetune@autoencoder",
        start="pretrained",
        changes=LENGTH,
        sentences=2000,
    ),
    Row("both", "memory and embedding", "optimus-mini@autoencoder", changes=SHORT),
    Row("memory", "memory alone", "optimus-mini@autoencoder", changes=(*SHORT, "decoder.embedding=false")),
    Row("embedding", "embedding alone", "optimus-mini@autoencoder", changes=(*SHORT, "decoder.memory=false")),
    Row(
        "small",
        "MiniLM and SmolLM2, fine-tuned",
        "optimus-small-pretrained",
        sentences=500,
        codes=5,
    ),
)


def arguments_of(row: Row, data: Path, out: Path) -> list[str]:
    """Return what `zentence train` is called with; the first sentences of a validation text are written out."""
    train, valid = (data / name for name in FILES[row.text])
    if row.sentences is not None:
        with valid.open(encoding="utf-8") as lines:
            valid = out / f"{row.text}-{row.sentences}.txt"
            write_atomically(valid, "".join(islice(lines, row.sentences)))
    start = [] if row.start is None else ["--init-from", str(out / row.start)]
    return [str(train), "--valid", str(valid), "--recipe", row.recipe, *start]


def log_of(folder: Path, event: str) -> list[dict[str, Any]]:
    """Return the events of one kind in a run's log."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [found for found in map(json.loads, lines) if found["event"] == event]


def run(row: Row, data: Path, out: Path, further: Sequence[str]) -> None:
    """Train and measure one row, and store what was found; a finished one is read."""
    if row.start is not None and not (out / row.start / "model.safetensors").is_file():
        raise SystemExit(f"{row.name} starts from {row.start}: train that row first")
    changes = [f"evaluation.samples={row.codes}", *row.changes, *further]
    folder = out / row.name
    content = train_row(row.name, arguments_of(row, data, out), changes, folder, {})
    kept = ("tick", "seconds", "stage", "distortion", "rate", "nll", "iw_nll")
    curve = [{key: event[key] for key in kept if key in event} for event in log_of(folder, "validation")]
    split = log_of(folder, "start")[0]["corpus"]["splits"]["valid"]
    stored = {
        "row": row.name,
        "recipe": row.recipe,
        "text": row.text,
        "changes": changes,
        "seconds": max(event["seconds"] for event in curve),
        "updates": curve[-1]["tick"],
        "words_a_sentence": split["words"] / split["sentences"],
        "figures": content["figures"],
        "curve": curve,
    }
    write_atomically(RESULTS / f"{row.name}.json", json.dumps(stored, indent=1) + "\n")


def read_results() -> dict[str, dict[str, Any]]:
    """Return what is stored, by row."""
    paths = (RESULTS / f"{row.name}.json" for row in ROWS)
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()}


def models_table(found: dict[str, dict[str, Any]]) -> str:
    """Return rows with their figures, as Markdown."""
    heads = "model | updates | minutes | nats/sentence | kind | K | distortion | rate | information | active | shuffled"
    lines = [f"| {heads} |", "|" + " --- |" * 11]
    for row in ROWS:
        if row.name not in found or row.name in INJECTIONS:
            continue
        stored = found[row.name]
        figures = stored["figures"]
        likelihood = figures.get("nll") or figures["iw_nll"]
        named = ("distortion", "rate", "mutual_information", "active_units", "shuffled_code_gap")
        numbers = [f"{figures[name]['value']:.2f}".removesuffix(".00") if name in figures else "" for name in named]
        cells = [row.title, f"{stored['updates']:,}", f"{stored['seconds'] / 60:.0f}", f"{likelihood['value']:.2f}"]
        cells += [likelihood["kind"].replace("_", " "), str(likelihood["samples"] or ""), *numbers]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def injections_table(found: dict[str, dict[str, Any]]) -> str:
    """Return the reconstruction error in nats per word against updates (the paper's Figure 5), as Markdown."""
    rows = [row for row in ROWS if row.name in INJECTIONS and row.name in found]
    updates = [point["tick"] for point in found[rows[0].name]["curve"]] if rows else []
    lines = [f"| updates | {' | '.join(f'{tick:,}' for tick in updates)} |", "|" + " --- |" * (len(updates) + 1)]
    for row in rows:
        stored = found[row.name]
        errors = [f"{point['distortion'] / stored['words_a_sentence']:.3f}" for point in stored["curve"]]
        lines.append(f"| {row.title} | {' | '.join(errors)} |")
    return "\n".join(lines)


def main() -> None:
    """Train all rows that are not done, or some, and write the page from what is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/optimus"))
    parser.add_argument("--only", action="append", help="name of a row, may be repeated")
    parser.add_argument("--set", action="append", default=[], help="a.b=c, laid over every row")
    chosen = parser.parse_args()
    data = os.environ.get("ZENTENCE_DATA")
    if not data:
        raise SystemExit("Where is the data? Set ZENTENCE_DATA")
    for row in ROWS:
        if chosen.only is None or row.name in chosen.only:
            run(row, Path(data), chosen.out, chosen.set)
    found = read_results()
    for name, table in (("models", models_table(found)), ("injections", injections_table(found))):
        write_between(PAGE, (MARKS[0].format(name), MARKS[1].format(name)), table)
        print(table)


if __name__ == "__main__":
    main()

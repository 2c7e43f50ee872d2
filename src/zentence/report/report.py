"""Writes the page: one HTML file that needs nothing else, and its pictures as PNG files beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from zentence.corpora.readers import LabelMode
from zentence.errors import ZentenceError
from zentence.evaluation.measurement import Measurement
from zentence.evaluation.verdict import Verdict, verdict
from zentence.files import write_atomically
from zentence.parts import plain
from zentence.report import sections
from zentence.report.examples import Examples, Progress, gather
from zentence.report.picture import SERIES
from zentence.report.record import Record, is_number, read_records

_SHARED_DRAWINGS, _DRAWINGS = len(sections.CURVES) + 4, 8  # pictures of all runs, of each run: about so many
_JOINERS = "\u200c\u200d"  # invisible, but letters need them in some scripts


@dataclass(frozen=True)
class Report:
    """What was written."""

    path: Path
    images: list[Path]
    verdicts: dict[str, str]  # run → verdict


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    overwrite: bool = False,
    text: Path | None = None,
    labels: LabelMode = "auto",
    examples: bool = True,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write a report on runs to `out` (HTML), and its pictures to a folder beside it; equal input gives equal bytes.

    `text` is where examples and code maps come from (lines of label<TAB>sentence are coloured by label); without it,
    the validation text of each run's training. With `examples` off no model is loaded and no text is shown.
    """
    pictures = out.with_name(f"{out.stem}-images")
    _check_target(out, pictures, overwrite)
    records = read_records(folders)
    gathered = [
        gather(record, text=text, labels=labels, seed=seed, device=device, threads=threads, progress=progress)
        if examples
        else None
        for record in records
    ]
    draw = _Drawing(progress, _SHARED_DRAWINGS + _DRAWINGS * len(records))
    page = _page(records, gathered, draw)
    if draw.pictures:
        _make_folder(pictures)
    images = []
    for picture in draw.pictures:
        images.append(pictures / f"{picture.name}.png")
        write_atomically(images[-1], picture.png)
    write_atomically(out, page)
    draw.finish()
    return Report(out, images, {record.name: _judged(record).text for record in records})


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise ZentenceError(f"Cannot write {folder}: {error.strerror}") from error


def _judged(record: Record) -> Verdict:
    return verdict(record.run.of_split(record.split))


def _check_target(out: Path, pictures: Path, overwrite: bool) -> None:
    if out.is_dir():
        raise ZentenceError(f"{out} is a directory: give a file name with --out")
    if not out.parent.is_dir():
        raise ZentenceError(f"No such folder: {out.parent}")
    for path in (out, pictures):
        if path.exists() and not overwrite:
            raise ZentenceError(f"{path} exists: choose another --out, or pass --overwrite")


class _Drawing:
    """Calls drawing functions, keeps their pictures, and counts."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self.pictures: list[Any] = []

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        found = function(*arguments)
        picture = found[0] if isinstance(found, tuple) else found
        if picture is not None:
            self.pictures.append(picture)
        self.done = min(self.done + 1, self.total - 1)
        if self.progress is not None:
            self.progress("drawing", self.done, self.total)
        return found

    def finish(self) -> None:
        if self.progress is not None:
            self.progress("drawing", self.total, self.total)


def _page(records: Sequence[Record], gathered: Sequence[Examples | None], draw: _Drawing) -> str:
    """Return the HTML; every text goes through the template's escaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from zentence import __version__

    environment = Environment(
        loader=PackageLoader("zentence.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_clean,
    )
    environment.globals["marked"] = sections.marked
    style = Markup(environment.loader.get_source(environment, "style.css")[0])  # type: ignore[union-attr]  # ours
    shared = [
        sections.training_section(records, draw),
        sections.plane_section(records, draw),
        sections.bound_section(records, draw),
    ]
    runs = [
        _run(record, examples, number, draw)
        for number, (record, examples) in enumerate(zip(records, gathered, strict=True))
    ]
    return environment.get_template("page.html").render(
        runs=runs,
        title=records[0].name if len(records) == 1 else f"{len(records)} runs",
        tables=sections.figure_tables(records),
        shared=[section for section in shared if section.pictures or section.gaps],
        style=style,
        svg=Markup,
        version=__version__,
    )


def _run(record: Record, examples: Examples | None, number: int, draw: _Drawing) -> dict[str, Any]:
    """Return what the page says of one run alone."""
    return {
        "name": record.name,
        "number": number + 1,
        "color": number % len(SERIES) + 1,
        "folder": str(record.folder),
        "split": record.split,
        "sentences": f"{record.sentences(record.split):,}",
        "verdict": (judged := _judged(record)).text,
        "doubt": sections.doubt(record) if judged.state == "unknown" else None,
        "tiles": list(_tiles(record)),
        "code": sections.code_section(record, examples, number, draw),
        "examples": examples,
        "maps": sections.map_pictures(examples, number, draw),
        "gaps": list(sections.example_gaps(record, examples)),
        "facts": list(_facts(record)),
        "warnings": [str(event.get("message", "")) for event in record.events if event.get("event") == "warning"],
        "settings": tomli_w.dumps(plain(record.settings)),
        "provenance": _provenance(record.measurements),
    }


def _tiles(record: Record) -> list[dict[str, str]]:
    """Return the four figures that a newcomer should see first, each with a line of explanation."""
    likelihood = record.figure("nll") or record.figure("iw_nll") or record.figure("elbo_nll")
    wanted = [
        (likelihood, "nats a sentence", "how surprised the model is by new text; less is better"),
        (record.figure("mutual_information"), "nats of information", "how much a code tells about its sentence"),
        (record.figure("active_units"), "units active", "dimensions of the code that are in use"),
        (record.figure("shuffled_code_gap"), "nats lost without the code", "how much the decoder needs its code"),
    ]
    tiles = []
    for m, unit, meaning in wanted:
        if m is None:
            continue
        value = f"{m.value:.0f} of {m.details.get('of', '?')}" if m.name == "active_units" else f"{m.value:.1f}"
        sign = {"upper_bound": "≤ "}.get(m.kind, "≥ " if m.details.get("saturated") else "")
        tiles.append({"value": f"{sign}{value}", "unit": unit, "meaning": meaning, "name": m.name})
    return tiles


def _facts(record: Record) -> list[tuple[str, str]]:
    """Return what a run was made of, as far as its log and settings say."""
    start: dict[str, Any] = next((e for e in record.events if e.get("event") == "start"), {})
    end: dict[str, Any] = next((e for e in reversed(record.events) if e.get("event") == "end"), {})
    settings = record.settings
    facts = [("model directory", str(record.folder))]
    if is_number(start.get("parameters")):
        facts.append(("parameters", f"{start['parameters']:,}"))
    facts.append(("decoder", settings.decoder.name))
    if settings.has_code:
        facts += [(family, getattr(settings, family).name) for family in ("encoder", "posterior", "prior")]
    for stage in settings.stages:
        rule = getattr(stage.objective, "rate_rule", None)
        more = f", {rule['name']}" if isinstance(rule, dict) and "name" in rule else ""
        facts.append((f"stage {stage.name}", f"{stage.objective.name}{more}, {stage.update.name}"))
    corpus = start.get("corpus")
    splits = corpus.get("splits") if isinstance(corpus, dict) else None
    for name, ledger in splits.items() if isinstance(splits, dict) else ():
        if isinstance(ledger, dict) and is_number(ledger.get("sentences")) and is_number(ledger.get("words")):
            facts.append((f"text, {name}", f"{ledger['sentences']:,} sentences, {ledger['words']:,} words"))
    if is_number(end.get("seconds")):
        facts.append(("trained for", f"{end['seconds'] / 60:.1f} minutes, {end.get('tick', '?')} updates"))
    return facts


def _provenance(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the different provenances of a run's figures, each with the figures it belongs to."""
    found: list[dict[str, Any]] = []
    for m in measurements:
        known = {**m.provenance, "evaluation seed": m.seed}
        row = next((row for row in found if row["known"] == known), None)
        if row is None:
            found.append(row := {"known": known, "names": []})
        row["names"].append(f"{m.name} ({m.split})")
    return found


def _clean(value: Any) -> Any:
    """Return text without characters that no page may hold or that could reorder it; anything else as it is."""
    if type(value) is not str or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c in "\n\t" or c in _JOINERS else "\N{REPLACEMENT CHARACTER}" for c in value)

"""`zentence compare`, `zentence convert` and `zentence verify`."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zentence.cli.output import Device, Json, Model, Seed, Threads, print_json, print_lines
from zentence.errors import ZentenceError, suggestion

if TYPE_CHECKING:
    from zentence.evaluation.convert import Conversion
    from zentence.evaluation.verify import Check

Metrics = Annotated[str | None, typer.Option("--metrics", metavar="A,B", help="Only these metrics.")]


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Model directories with results.")],
    split: Annotated[
        str | None, typer.Option("--split", metavar="NAME", help="Only figures on the split of this name.")
    ] = None,
    metrics: Metrics = None,
    paper: Annotated[
        str | None, typer.Option("--paper", metavar="NAME", help="Put a paper's figures beside them; or a TOML file.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="table, markdown, latex, csv or json.")] = "table",
    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Resamples of the paired bootstrap.")] = 10_000,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Put runs side by side. Figures of different kinds, and on different texts, are never ranked against each other.

    Runs that differ only in their seed become one row, mean ± standard deviation. Where the runs have per-sentence
    figures, each is compared with the first by a paired bootstrap over sentences.
    """
    from zentence.evaluation.compare import compare as put_together
    from zentence.evaluation.papers import read_paper
    from zentence.evaluation.runs import load_runs
    from zentence.evaluation.tables import FORMATS, to_csv, to_json, to_latex, to_markdown, to_text
    from zentence.training.progress import progress_bar

    if format_ not in FORMATS:
        raise ZentenceError(f"Unknown --format '{format_}'.{suggestion(format_, FORMATS)}")
    published = None if paper is None else read_paper(paper)
    loaded = load_runs(runs)
    with progress_bar("resampling", None, unit="comparisons") as update:
        found = put_together(
            loaded,
            split=split,
            metrics=_names(metrics),
            paper=published,
            resamples=resamples,
            seed=seed,
            progress=lambda done, _total: update(done),
        )
    if json or format_ == "json":
        print_json(to_json(found))
    elif format_ == "table":
        sys.stdout.write(to_text(found, shutil.get_terminal_size((120, 24)).columns))
    else:
        sys.stdout.write({"markdown": to_markdown, "latex": to_latex, "csv": to_csv}[format_](found))


def _names(text: str | None) -> list[str] | None:
    """Return the names in `a,b`."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ZentenceError("--metrics is empty: name at least one metric")
    return names


def convert(
    value: Annotated[float, typer.Argument(help="The published figure.", show_default=False)],
    per: Annotated[str, typer.Option("--per", help="What it is per: bpe (or token), word, sentence, byte.")],
    unit: Annotated[
        str | None, typer.Option("--unit", help="ppl, nats or bits; default: ppl, per sentence nats, per byte bits.")
    ] = None,
    counts: Annotated[
        str, typer.Option("--counts", help="Special tokens that the publication counts: eos, bos,eos, bos or none.")
    ] = "eos",
    tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="Tokens, without <bos> and <eos>.")] = None,
    sentences: Annotated[int | None, typer.Option("--sentences", min=1, help="Sentences.")] = None,
    words: Annotated[int | None, typer.Option("--words", min=1, help="Words, without <eos>.")] = None,
    bytes_: Annotated[
        int | None, typer.Option("--bytes", min=1, help="UTF-8 bytes, one for each line end included.")
    ] = None,
    text: Annotated[Path | None, typer.Option("--text", help="A text to count instead.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="With --text: the publication's tokenizer.json.")
    ] = None,
    eos_nats: Annotated[
        float | None, typer.Option("--eos-nats", min=0.0, help="Nats that an <eos> costs, if known.")
    ] = None,
    json: Json = False,
) -> None:
    """Turn a published perplexity (or nats, or bits) into nats per sentence, perplexity per word, and bits per byte.

    For example, a perplexity of 23.58 per BPE whose count includes <bos> and <eos>:
    zentence convert 23.58 --per bpe --counts bos,eos --text ptb.test.txt --tokenizer tokenizer.json
    """
    from zentence.evaluation.convert import Counts, convert, count_text, parse_per, parse_specials
    from zentence.training.progress import progress_bar

    kind, specials = parse_per(per), parse_specials(counts)
    units = ("ppl", "nats", "bits")
    if unit is not None and unit not in units:
        raise ZentenceError(f"Unknown --unit '{unit}'.{suggestion(unit, units)}")
    given = Counts(sentences, words, tokens, bytes_)
    if text is not None:
        if given != Counts():
            raise ZentenceError("Give counts, or a --text to count, not both")
        with progress_bar(f"counting {text.name}", None, unit="bytes") as update:
            given = count_text(text, tokenizer, progress=lambda done, _total: update(done))
    elif tokenizer is not None:
        raise ZentenceError("--tokenizer counts the tokens of a text: give --text FILE")
    found = convert(value, kind, given, unit=unit, specials=specials, eos_nats=eos_nats)  # type: ignore[arg-type]
    if json:
        print_json(found.to_dict())
    else:
        print_lines(_conversion_lines(found))


def _conversion_lines(found: "Conversion") -> list[str]:
    """Return each figure with its denominator; what the counts do not allow is left out."""
    counts = found.counts
    told = [f"{getattr(counts, name):,} {name}" for name in ("sentences", "words", "tokens", "bytes")
            if getattr(counts, name) is not None]  # fmt: skip
    figures = {
        "nats_per_sentence": "",
        "ppl": "per word and <eos>",
        "ppl_words_only": "nats of <eos> included, <eos> not counted",
        "ppl_without_eos": "per word, without <eos> in nats and count",
        "ppl_per_token": "per token and <eos>",
        "bits_per_byte": "",
    }
    rows = [(name, getattr(found, name), meaning) for name, meaning in figures.items()]
    lines = [f"{name:<18}{value:>12,.4f}  {meaning}".rstrip() for name, value, meaning in rows if value is not None]
    head = f"{', '.join(told)}; published per {found.counted:,}: {found.total_nats:,.0f} nats in all"
    if found.ppl_without_eos is None:
        lines.append("ppl_without_eos    needs --eos-nats: no perplexity tells what <eos> costs")
    return [head, *lines]


def verify(
    model: Model,
    metrics: Metrics = None,
    split: Annotated[
        Path | None, typer.Option("--split", help="The text of figures on a file that is not part of the training.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=2, help="Only the first N sentences: quicker, and less strict.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**31 - 1, help="Another seed than the recorded one.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compute a run's recorded figures again, and say which do not hold and which cannot be checked.

    The exit code is 0 if all that can be checked hold, 1 if one does not. --json: {"holds": N, "differs": N,
    "unchecked": N, "checks": [{"metric", "split", "status", "recorded", "recomputed", "allowed", "reason"}]}.
    """
    from zentence.cli.output import load_space
    from zentence.evaluation.runs import load_runs
    from zentence.evaluation.verify import Texts, by_suite
    from zentence.evaluation.verify import verify as check
    from zentence.training.progress import progress_bar

    (run,) = load_runs([model])
    space = load_space(model, device, threads)
    texts = Texts(space.settings.corpus, space.vocabulary, split)
    with progress_bar("computing again", None, unit="sentences") as update:
        recompute = by_suite(space.model, space.vocabulary, space.settings, lambda _what, done, _total: update(done))
        checks = check(run, texts, recompute, metrics=_names(metrics), limit=limit, seed=seed)
    counts = {status: sum(found.status == status for found in checks) for status in ("holds", "differs", "unchecked")}
    if counts["unchecked"] == len(checks):
        raise ZentenceError(f"None of {len(checks)} figures of {model} can be checked: {checks[0].reason}")
    if json:
        print_json({**counts, "checks": [found.__dict__ for found in checks]})
    else:
        print_lines(_check_lines(checks, counts))
    if counts["differs"]:
        raise typer.Exit(1)


def _check_lines(checks: "Sequence[Check]", counts: dict[str, int]) -> list[str]:
    lines, width = [], max(len(found.metric) for found in checks)
    for split in dict.fromkeys(found.split for found in checks):
        lines.append(split)
        for found in (found for found in checks if found.split == split):
            now = "" if found.recomputed is None else f"now {found.recomputed:.4f}"
            reason = f"  ({found.reason})" if found.reason else ""
            lines.append(
                f"  {found.status:<10}{found.metric:<{width}}{found.recorded:>12.4f}  {now:<16}{reason}".rstrip()
            )
    told = f"{counts['holds']} of {len(checks)} figures hold, {counts['differs']} do not"
    return [*lines, told + (f", {counts['unchecked']} cannot be checked" if counts["unchecked"] else "")]

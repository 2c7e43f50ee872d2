"""The model card: what a model is, what it learnt and how it is loaded, from its settings and its figures alone."""

import json
from collections.abc import Sequence
from pathlib import Path

from zentence.evaluation.measurement import Measurement
from zentence.evaluation.verdict import verdict
from zentence.settings import Settings

KINDS = {
    "exact": "computed without approximation",
    "upper_bound": "the true figure is this or lower, in expectation over the samples K",
    "estimate": "from samples or from this text alone; it may err on either side",
    "not_a_bound": "neither exact nor a bound: compare it with nothing but its own kind",
}


def model_card(
    name: str, settings: Settings, measurements: Sequence[Measurement], vocabulary: int, weights: int
) -> str:
    """Return a README.md for a model of `weights` parameters and `vocabulary` words; `name` is how it is loaded."""
    head = ["---", "library_name: zentence", "tags:", "- sentence-vae", "- latent-variable-model", "---", ""]
    title = Path(name).name or name
    lines = [*head, f"# {plain_text(title)}", "", _kind_of_model(settings), ""]
    lines += ["## What it learnt", "", *in_words(settings, measurements), ""]
    lines += ["## Figures", "", *_figures(measurements), ""]
    lines += ["## Use", "", *_use(name, settings), ""]
    lines += ["## Making", "", *_making(settings, vocabulary, weights), ""]
    return "\n".join(lines)


def plain_text(text: str) -> str:
    """Return text on one line with everything escaped that Markdown or a table would read as more than text."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in " ".join(text.split()))


def in_words(settings: Settings, measurements: Sequence[Measurement]) -> list[str]:
    """Say in words what the split measured first tells of the model; no word without its figure."""
    if not measurements:
        return ["No figures are stored with this model: nothing is known of what it learnt."]
    split = measurements[0].split
    found = {m.name: m for m in measurements if m.split == split}
    judged = verdict(found.values())
    said = [f"On {plain_text(split)}: {judged.text}"]
    if settings.has_code and judged.state in ("collapsed", "ignored"):
        said.append("It writes as a language model would: **do not rely on its codes.**")
    likelihood = found.get("nll") or found.get("iw_nll") or found.get("elbo_nll")
    source = found.get("source_nll")
    if likelihood is not None and source is not None and likelihood.kind != "not_a_bound":
        most = "at most " if likelihood.kind == "upper_bound" else ""
        gap = likelihood.value - source.value
        said.append(f"It stands {most}{gap:.2f} nats per sentence above the text's true source.")
    return said


def _kind_of_model(settings: Settings) -> str:
    if not settings.has_code:
        return "A language model of single sentences, trained with zentence."
    return (
        "A latent-variable model of single sentences, trained with zentence: it turns a sentence into a code "
        "(a short vector) and codes into sentences."
    )


def _figures(measurements: Sequence[Measurement]) -> list[str]:
    if not measurements:
        return ["None."]
    lines = ["| split | figure | value | ± | unit | kind | sentences | K |", "|" + " --- |" * 8]
    for m in measurements:
        error = "" if m.standard_error is None else f"{m.standard_error:.2f}"
        value = (
            f"{m.value:.0f} of {m.details['of']}"
            if m.name == "active_units" and "of" in m.details
            else f"{m.value:.2f}"
        )
        cells = [m.split, m.name, value, error, m.unit, m.kind.replace("_", " "), f"{m.count:,}", str(m.samples or "")]
        lines.append("| " + " | ".join(plain_text(cell) for cell in cells) + " |")
    kinds = [kind for kind in KINDS if kind in {m.kind for m in measurements}]
    lines += ["", *(f"- *{kind.replace('_', ' ')}*: {KINDS[kind]}." for kind in kinds)]
    return [*lines, "- ±: standard error over sentences. K: samples a sentence."]


def _use(name: str, settings: Settings) -> list[str]:
    lines = ["```python", "from zentence import LatentSpace", ""]
    lines.append(f"space = LatentSpace.from_pretrained({json.dumps(name, ensure_ascii=False)})")
    if settings.has_code:
        lines += ['codes = space.encode(["a sentence of the kind it was trained on"])', "space.decode(codes)"]
    return [*lines, "space.sample(5)", "```"]


def _making(settings: Settings, vocabulary: int, weights: int) -> list[str]:
    names = [Path(file).name for file in settings.corpus.train]
    text = ", ".join(plain_text(name) for name in names) if names else "the files' names are not stored"
    lines = [f"- Training text: {text}. The text is not included."]
    lines.append(f"- Vocabulary: {vocabulary:,} entries. Parameters: {weights:,}.")
    if settings.has_code:
        size = settings.posterior.options.get("size")
        parts = [
            f"encoder {settings.encoder.name}",
            f"posterior {settings.posterior.name}",
            f"prior {settings.prior.name}",
        ]
        shown = ", ".join([*parts, f"decoder {settings.decoder.name}"])
        lines.append(f"- Parts: {plain_text(shown)}; codes of {size} dimensions.")
    else:
        lines.append(f"- Parts: {plain_text(f'decoder {settings.decoder.name}')}.")
    stages = ", ".join(
        f"{stage.name} ({stage.objective.name}, up to {stage.epochs:g} epochs)" for stage in settings.stages
    )
    lines.append(f"- Stages: {plain_text(stages)}. All settings: settings.toml.")
    if settings.corpus.max_words is not None:
        lines.append(f"- Sentences of more than {settings.corpus.max_words} words are cut before they are encoded.")
    if settings.init_from is not None:
        lines.append(f"- Its weights started from another model: {plain_text(Path(settings.init_from).name)}.")
    return [*lines, "- What it writes repeats the errors and leanings of the text that it was trained on."]

"""`zentence demo`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zentence.cli.output import Json, Seed, print_json, print_lines

if TYPE_CHECKING:
    from zentence.evaluation.measurement import Measurement

SENTENCES = 20_000
MODELS = {  # name in the table: recipe
    "language model": "language-model",
    "plain VAE": "vae",
    "default recipe": "default",
}
SMALLER = [  # the recipes' shape, small enough for two minutes on two cores
    "decoder.embedding_size=128",
    "decoder.hidden_size=192",
    "decoder.input_dropout=0.1",
    "decoder.output_dropout=0.1",
    "training.batch_tokens=512",
    "training.max_steps=1500",
    "training.validate_every=2.0",
    "training.tensorboard=no",
    "optimizer.learning_rate=6e-3",
]
SMALLER_ENCODER = ["encoder.embedding_size=128", "encoder.hidden_size=128", "posterior.size=16"]


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for corpus and models.")] = Path("runs/demo"),
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what the folder holds.")] = False,
    json: Json = False,
) -> None:
    """Train three models on a corpus of known entropy, compare them, and walk a latent space. Takes a few minutes."""
    import sys

    from zentence.corpora.captions import make_corpus
    from zentence.errors import ZentenceError
    from zentence.evaluation.measurement import Measurement
    from zentence.settings import load_settings
    from zentence.training.directory import check_directory
    from zentence.training.progress import Display
    from zentence.training.run import train

    corpus = out / "captions"
    check_directory(out, resume=False, overwrite=True)
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise ZentenceError(f"{out} exists: pass --overwrite, or choose another --out")
    print(f"Making {SENTENCES:,} sentences of known entropy in {corpus} …", file=sys.stderr)
    make_corpus(corpus, SENTENCES, seed, overwrite=overwrite)
    results: dict[str, list[Measurement]] = {}
    for name, recipe in MODELS.items():
        print(f"\nTraining: {name}", file=sys.stderr)
        changes = [*SMALLER, *([] if recipe == "language-model" else SMALLER_ENCODER), f"training.seed={seed}"]
        with Display() as display:
            results[name] = train(
                load_settings(recipe, changes),
                corpus / "train.txt",
                valid=[corpus / "valid.txt"],
                test=[corpus / "test.txt"],
                out=out / recipe,
                overwrite=overwrite,
                callbacks=[display],
            ).measurements
    shown = _examples(out / "default", corpus / "valid.txt", seed)
    if json:
        print_json({"table": _rows(results), **shown})
        return
    print_lines(["", *_table(_rows(results)), "", *_tell(shown), "", *_next_commands(out)])


def _rows(results: "dict[str, list[Measurement]]") -> list[dict[str, Any]]:
    """Return the rows of the table: the source first, then each model with its likelihood's kind."""
    first = {m.name: m for m in next(iter(results.values()))}
    source = first["source_nll"]
    rows: list[dict[str, Any]] = [{"name": "the source itself", "nll": source.value, "kind": source.kind}]
    for name, measurements in results.items():
        found = {m.name: m for m in measurements}
        likelihood = found.get("nll") or found["iw_nll"]
        row = {"name": name, "nll": likelihood.value, "kind": likelihood.kind, "ppl": found["ppl"].value}
        for figure in ("rate", "mutual_information", "active_units"):
            if figure in found:
                row[figure] = found[figure].value
        if "active_units" in found:
            row["units"] = found["active_units"].details["of"]
        rows.append(row)
    return rows


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"{'':<18}  {'nats/sentence':>13}  {'kind':<11}  {'rate':>5}  {'information':>11}  {'active units':>12}"]
    for row in rows:
        rate = f"{row['rate']:.2f}" if "rate" in row else ""
        information = f"{row['mutual_information']:.2f}" if "mutual_information" in row else ""
        units = f"{row['active_units']:.0f} of {row['units']}" if "units" in row else ""
        kind = row["kind"].replace("_", " ")
        lines.append(f"{row['name']:<18}  {row['nll']:>13.2f}  {kind:<11}  {rate:>5}  {information:>11}  {units:>12}")
    return lines


def _examples(model: Path, file: Path, seed: int) -> dict[str, Any]:
    from zentence.corpora.readers import read_sentences
    from zentence.latent.space import LatentSpace

    space = LatentSpace.load(model)
    texts = [line.text for line, _ in zip(read_sentences(file, "no"), range(5), strict=False)]
    return {
        "samples": space.sample(5, seed=seed),
        "reconstructions": [[a, b] for a, b in zip(texts[:3], space.reconstruct(texts[:3]), strict=True)],
        "interpolation": {"from": texts[3], "to": texts[4], "steps": space.interpolate(texts[3], texts[4], steps=6)},
    }


def _tell(shown: dict[str, Any]) -> list[str]:
    lines = ["New sentences, from random codes:", *(f"  {text}" for text in shown["samples"])]
    lines += ["", "Sentences, and what their codes keep of them:"]
    lines += [line for a, b in shown["reconstructions"] for line in (f"  {a}", f"    -> {b}")]
    path = shown["interpolation"]
    lines += ["", f"A walk from '{path['from']}' to '{path['to']}':", *(f"  {text}" for text in path["steps"])]
    return lines


def _next_commands(out: Path) -> list[str]:
    return [
        "Next:",
        "  zentence train my.txt                       your own text, one sentence a line",
        f"  zentence evaluate {out}/default --split {out}/captions/test.txt",
        f"  zentence sample {out}/default -n 10",
        f'  zentence interpolate {out}/default "a man is sitting on a bench ." "the food was great !"',
    ]

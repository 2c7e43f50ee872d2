"""Every command by its real entry point, on a tiny corpus with tiny models."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zentence.cli.priors import KINDS as PRIORS
from zentence.evaluation.priors import PRIOR_KINDS

COMMANDS = [
    "",
    "demo",
    "train",
    "corpus",
    "corpus make",
    "corpus stats",
    "corpus split-sentences",
    "evaluate",
    "sample",
    "reconstruct",
    "interpolate",
    "encode",
    "score",
    "parts",
    "analogy",
    "edit",
    "traverse",
    "decode",
    "index",
    "neighbours",
    "map",
    "classify",
    "rank",
    "answer",
    "export",
    "publish",
    "report",
    "compare",
    "convert",
    "verify",
]
KINDS = {"exact", "upper_bound", "estimate", "not_a_bound"}
FIELDS = {
    *("name", "value", "unit", "kind", "standard_error", "count", "samples", "split", "seed", "provenance", "details"),
    *("direction", "version"),
}
LATENT = {
    *("elbo_nll", "iw_nll", "ppl", "rate", "distortion", "mutual_information", "active_units", "source_nll"),
    *("ppl_without_eos", "bits_per_byte", "marginal_kl", "shuffled_code_gap"),
}
EXACT = {"nll", "ppl", "ppl_without_eos", "bits_per_byte", "source_nll"}


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def source_mean(folder: Path, split: str, limit: int | None = None) -> float:
    """Return the mean of −log p that the grammar itself wrote down for a split."""
    rows = [json.loads(line) for line in lines_of(folder / "attributes.jsonl")]
    return float(np.mean([-row["log_prob"] for row in rows if row["split"] == split][:limit]))


def check_results(rows: list[dict[str, Any]], names: set[str], split: str) -> dict[str, dict[str, Any]]:
    """Check what every list of measurements must be; return those of a split by name."""
    assert isinstance(rows, list)
    assert len({(row["name"], row["split"]) for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == FIELDS
        assert row["kind"] in KINDS
        assert np.isfinite(row["value"])
        assert row["count"] > 0
    found = {row["name"]: row for row in rows if row["split"] == split}
    assert set(found) == names
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_help(zentence: Any, command: str) -> None:
    shown = zentence(*command.split(), "--help")
    assert shown.out.startswith(f"Usage: zentence {command}".rstrip())
    assert shown.err == ""
    if command not in ("", "corpus"):
        assert "--json" in shown.out


def test_no_arguments_show_the_help(zentence: Any) -> None:
    assert zentence() == zentence("--help")
    assert zentence("--version").out.startswith("zentence ")


def test_help_imports_nothing_heavy() -> None:
    code = """
import contextlib, io, sys
sys.argv = ["zentence", "--help"]
from zentence.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
heavy = {"torch", "transformers", "numpy", "tokenizers", "tensorboard", "matplotlib"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("recipe", ["default", "vae", "language-model", "autoencoder"])
def test_train(trained: Any, captions: Path, recipe: str) -> None:
    folder, shown = trained(recipe)
    found = check_results(shown.json, EXACT if recipe == "language-model" else LATENT, "valid")
    assert found["source_nll"]["value"] == pytest.approx(source_mean(captions, "valid"), abs=1e-6)
    assert found["source_nll"]["kind"] == "exact"
    assert all(row["count"] == 20 for row in found.values())
    if recipe == "language-model":
        assert found["nll"]["kind"] == "exact"
        assert found["source_nll"]["value"] < found["nll"]["value"]
    else:
        assert found["iw_nll"]["kind"] == found["elbo_nll"]["kind"] == "upper_bound"
        assert found["iw_nll"]["samples"] == 5
        assert found["active_units"]["details"]["of"] == 4
        assert found["elbo_nll"]["value"] == pytest.approx(found["rate"]["value"] + found["distortion"]["value"], 1e-6)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("settings.toml", "tokenizer.json", "model.safetensors", "results.json", "log.jsonl", "checkpoints"),
        "sentences",
    }
    chosen = "nll" if recipe == "language-model" else "iw_nll"
    with np.load(folder / "sentences" / "valid.npz", allow_pickle=False) as sentences:
        assert sentences[chosen].mean() == pytest.approx(found[chosen]["value"], abs=1e-9)
    events = [json.loads(line) for line in lines_of(folder / "log.jsonl")]
    assert [event["event"] for event in events][:: len(events) - 1] == ["start", "end"]
    assert {"stage", "step", "validation"} <= {event["event"] for event in events}
    assert "validation" in shown.err


def test_train_without_options_takes_the_default_directory(
    zentence: Any, tiny: Any, captions: Path, tmp_path: Path
) -> None:
    text = "\n".join(lines_of(captions / "train.txt"))
    shown = zentence("train", "-", *tiny(), "--quiet", stdin=text, cwd=tmp_path)
    assert (tmp_path / "runs" / "stdin" / "model.safetensors").is_file()
    assert "runs/stdin" in shown.out
    assert "source_nll" not in shown.out
    assert all(line.startswith("warning: ") for line in shown.err.splitlines())


def test_evaluate_and_score_of_a_language_model_agree(
    zentence: Any, preloaded: Any, language_model: Path, captions: Path
) -> None:
    test = captions / "test.txt"
    rows = preloaded("evaluate", language_model, "--split", test, "--metrics", ",".join(EXACT), "--json").json
    nll = check_results(rows, EXACT, "test.txt")["nll"]
    scores = zentence("score", language_model, "--file", test, "--json").json
    assert scores["kind"] == "exact"
    assert scores["samples"] is None
    assert len(scores["nll"]) == nll["count"] == 20
    assert sum(scores["nll"]) == pytest.approx(nll["value"] * nll["count"], rel=1e-5)
    shown = preloaded("score", language_model, "--file", "-", stdin=test.read_text(encoding="utf-8"))
    columns = [line.split("\t") for line in shown.out.splitlines()]
    assert [text for _, text in columns] == lines_of(test)
    assert [float(value) for value, _ in columns] == pytest.approx(scores["nll"], abs=1e-4)


def test_score_of_a_latent_model_is_a_bound(preloaded: Any, model: Path, captions: Path) -> None:
    scores = preloaded("score", model, "--file", captions / "test.txt", "--samples", 4, "--json").json
    assert (scores["kind"], scores["samples"], scores["unit"]) == ("upper_bound", 4, "nats")
    assert len(scores["nll"]) == 20
    assert min(scores["nll"]) > 0.0


def test_sample(zentence: Any, preloaded: Any, model: Path, language_model: Path) -> None:
    shown = zentence("sample", model, "-n", 3, "--max-words", 6)
    assert len(shown.out.splitlines()) == 3
    assert shown.err == ""
    document = preloaded("sample", model, "-n", 3, "--max-words", 6, "--json").json
    assert document["sentences"] == shown.out.splitlines()
    assert all(len(sentence.split()) <= 6 for sentence in document["sentences"])
    drawn = [preloaded("sample", language_model, "-n", 4, "--seed", seed, "--json").json for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0]["sentences"] != drawn[2]["sentences"]
    assert drawn[0]["method"] == "sample"


def test_sample_from_a_prior_of_training_sentences(preloaded: Any, model: Path, language_model: Path) -> None:
    by_kind = {
        kind: preloaded("sample", model, "-n", 4, "--prior", kind, "--prior-sentences", 20, "--components", 2, "--json")
        for kind in ("aggregate", "mixture")
    }
    own = preloaded("sample", model, "-n", 4, "--json").json
    assert own["prior"] == "model"
    for kind, shown in by_kind.items():
        assert shown.json["prior"] == kind
        assert len(shown.json["sentences"]) == 4
    assert preloaded("sample", model, "--prior", "agregate", expect=2).err.strip().endswith("Did you mean 'aggregate'?")
    assert PRIORS == PRIOR_KINDS
    assert "no prior to swap" in preloaded("sample", language_model, "--prior", "mixture", expect=2).err


@pytest.mark.parametrize("method", ["sample", "beam"])
def test_sample_by_other_methods(preloaded: Any, model: Path, method: str) -> None:
    options = ["--top-k", 5, "--top-p", 0.9, "--temperature", 0.7] if method == "sample" else ["--beam", 3]
    document = preloaded("sample", model, "-n", 2, "--max-words", 5, "--method", method, *options, "--json").json
    assert len(document["sentences"]) == 2


def test_reconstruct(zentence: Any, preloaded: Any, model: Path, captions: Path, tmp_path: Path) -> None:
    first, second = lines_of(captions / "test.txt")[:2]
    pairs = zentence("reconstruct", model, first, second, "--json").json
    assert [pair["sentence"] for pair in pairs] == [first, second]
    written = [pair["reconstruction"] for pair in pairs]
    shown = preloaded("reconstruct", model, first, second)
    assert shown.out.splitlines() == [first, f"  -> {written[0]}", second, f"  -> {written[1]}"]
    file = tmp_path / "two.txt"
    file.write_text(f"{first}\n{second}\n", encoding="utf-8")
    assert preloaded("reconstruct", model, "--file", file).out.splitlines() == written
    assert zentence("reconstruct", model, "--file", "-", stdin=f"{first}\n{second}\n").out.splitlines() == written


def test_interpolate(zentence: Any, preloaded: Any, model: Path, captions: Path) -> None:
    a, b = lines_of(captions / "test.txt")[2:4]
    document = zentence("interpolate", model, a, b, "--steps", 4, "--json").json
    assert (document["a"], document["b"]) == (a, b)
    assert len(document["sentences"]) == 4
    ends = preloaded("reconstruct", model, a, b, "--json").json
    assert [document["sentences"][0], document["sentences"][-1]] == [pair["reconstruction"] for pair in ends]
    assert preloaded("interpolate", model, a, b, "--steps", 4).out.splitlines() == document["sentences"]


def test_encode(zentence: Any, preloaded: Any, model: Path, captions: Path, tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    document = zentence("encode", model, "--file", captions / "test.txt", "--out", out, "--json").json
    assert document == {"sentences": 20, "size": 4, "out": str(out)}
    codes = np.load(out, allow_pickle=False)
    assert codes.shape == (20, 4)
    assert codes.dtype == np.float32
    assert np.isfinite(codes).all()
    assert len(np.unique(codes, axis=0)) > 10
    assert [path.name for path in tmp_path.iterdir()] == ["codes.npy"]
    drawn = tmp_path / "drawn.npy"
    shown = preloaded("encode", model, "--file", captions / "test.txt", "--out", drawn, "--sample")
    assert "20 codes of 4 dimensions" in shown.out
    assert not np.allclose(np.load(drawn), codes)


def test_parts(zentence: Any, preloaded: Any) -> None:
    rows = preloaded("parts", "--json").json
    lines = zentence("parts", env={"COLUMNS": "40"}).out.splitlines()
    assert len(lines) == len(rows)  # one unwrapped line a part, however narrow
    for line, row in zip(lines, rows, strict=True):
        assert line.startswith(f"{row['family']} {row['name']}: ")
        assert all(f"{option}=" in line for option in row["options"])
        assert row["description"]
    families = {row["family"] for row in rows}
    assert families >= {
        *("encoder", "posterior", "prior", "decoder", "objective", "rate_rule", "update", "schedule", "corruption"),
    }


def test_corpus_make(zentence: Any, preloaded: Any, captions: Path, tmp_path: Path) -> None:
    names = {"train.txt", "valid.txt", "test.txt", "attributes.jsonl", "source.json"}
    assert {path.name for path in captions.iterdir()} == names
    summary = zentence("corpus", "make", "captions", "--sentences", 400, "--out", tmp_path / "again", "--json").json
    assert (summary["train"], summary["valid"], summary["test"]) == (360, 20, 20)
    assert summary["test_nll_nats"] == pytest.approx(source_mean(captions, "test"), abs=1e-6)
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (captions / name).read_bytes()
    preloaded("corpus", "make", "captions", "--sentences", 400, "--seed", 1, "--out", tmp_path / "other")
    assert (tmp_path / "other" / "train.txt").read_bytes() != (captions / "train.txt").read_bytes()


def test_corpus_stats(zentence: Any, captions: Path) -> None:
    text = (captions / "test.txt").read_text(encoding="utf-8")
    document = zentence("corpus", "stats", captions / "test.txt", "--json").json
    assert document["ledger"]["sentences"] == 20
    assert document["ledger"]["words"] == len(text.split())
    assert document["distinct_words"] == len(set(text.split()))
    shown = zentence("corpus", "stats", "-", stdin=text)
    assert f"20 sentences, {len(text.split())} words" in shown.out
    assert shown.out.count("\n") > 5  # the histogram


def test_corpus_split_sentences(zentence: Any, tmp_path: Path) -> None:
    documents = tmp_path / "documents.txt"
    documents.write_text("It rains. It pours! Nobody knows why that is so.\nDr. Who left.\n", encoding="utf-8")
    shown = zentence("corpus", "split-sentences", documents, "--max-words", 5)
    assert len(shown.out.splitlines()) == 3
    assert "4 sentences found, 3 kept (75.0%" in shown.err
    out = tmp_path / "sentences.txt"
    summary = zentence("corpus", "split-sentences", documents, "--max-words", 5, "--out", out, "--json").json
    assert (summary["documents"], summary["kept"], summary["share_kept"]) == (2, 3, 0.75)
    assert out.read_text(encoding="utf-8") == shown.out


@pytest.mark.parametrize("command", ["parts", "corpus split-sentences", "sample"])
def test_a_reader_that_leaves_is_no_error(zentence: Any, model: Path, tmp_path: Path, command: str) -> None:
    arguments: list[object] = command.split()
    if command == "sample":
        arguments += [model, "-n", 300, "--max-words", 80]
    elif command != "parts":
        documents = tmp_path / "documents.txt"
        documents.write_text("One sentence here.\n" * 20_000, encoding="utf-8")
        arguments.append(documents)
    with zentence.start(*arguments) as process:
        assert process.stdout.readline()
        process.stdout.close()  # as `head -1` does
        _, err = process.communicate(timeout=60)
    assert err == ""


def test_broken_pipe_in_a_shell(zentence: Any) -> None:
    command = f"{zentence.path} parts | head -1"
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True, env=os.environ)
    assert shown.stdout.count("\n") == 1
    assert shown.stderr == ""

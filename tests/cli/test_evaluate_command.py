"""`zentence evaluate`: the whole suite and parts of it, by the real command."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zentence.evaluation.metrics import METRICS


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """A model of one's own, with the figures of its training only."""
    for name in ("settings.toml", "tokenizer.json", "model.safetensors", "results.json"):
        (tmp_path / "model").mkdir(exist_ok=True)
        shutil.copy(model / name, tmp_path / "model" / name)
    return tmp_path / "model"


def results(folder: Path, split: str) -> dict[str, dict[str, Any]]:
    rows = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return {row["name"]: row for row in rows if row["split"] == split}


def source_mean(folder: Path, split: str, limit: int | None = None) -> float:
    """Return the mean of −log p that the grammar itself wrote down for a split."""
    rows = [json.loads(line) for line in (folder / "attributes.jsonl").read_text(encoding="utf-8").splitlines()]
    return float(np.mean([-row["log_prob"] for row in rows if row["split"] == split][:limit]))


def test_the_whole_suite(preloaded: Any, copy: Path, captions: Path) -> None:
    shown = preloaded("evaluate", copy, "--split", captions / "test.txt", "--json")
    found = {row["name"]: row for row in shown.json}
    without = {"nll", "forward_ppl", "interpolation_smoothness"}  # no language model, no reference, one greedy sentence
    assert {name for name in METRICS if "bpe" not in name} - set(found) <= without  # its tokens are words
    assert "this model's tokens are words: see ppl" in shown.err
    assert "not available: nll" in shown.err
    assert found["source_nll"]["value"] == pytest.approx(source_mean(captions, "test"), abs=1e-6)
    for name, row in found.items():
        metric = METRICS[name]
        assert (row["unit"], row["direction"], row["version"]) == (metric.unit, metric.direction, metric.version)
        assert row["split"] == "test.txt" and row["count"] > 0 and np.isfinite(row["value"])
        assert row["provenance"]["evaluation"] == {"samples": None, "tolerance": 0.25, "limit": None}
    assert found["iw_nll"]["details"]["policy"] == "auto"
    assert found["iw_nll"]["details"]["samples_mean"] == pytest.approx(found["iw_nll"]["samples"], abs=0.5)
    assert results(copy, "test.txt") == found
    assert set(results(copy, "valid")) > {"iw_nll", "shuffled_code_gap"}  # of its training: kept
    with np.load(copy / "sentences" / "test.txt.npz", allow_pickle=False) as arrays:
        assert arrays["iw_nll"].mean() == pytest.approx(found["iw_nll"]["value"])
        assert arrays["store"] == found["iw_nll"]["provenance"]["store"]
    assert not (copy / ".evaluation").exists()


def test_a_part_of_the_suite_as_text(preloaded: Any, copy: Path, captions: Path) -> None:
    names = "iw_nll,ppl,active_units,mutual_information,shuffled_code_gap"
    shown = preloaded("evaluate", copy, "--metrics", names, "--samples", 7, "--limit", 6)
    assert "20 sentences, " in shown.out and "<eos>" in shown.out  # the ledger of the validation text
    assert "valid (6 sentences)" in shown.out
    assert "(upper bound, K = 7)" in shown.out and " of 4  units" in shown.out
    assert "units active" in shown.out.splitlines()[-1]  # the verdict
    found = results(copy, "valid")
    assert found["iw_nll"]["count"] == 6 and found["iw_nll"]["samples"] == 7
    assert found["elbo_nll"]["count"] == 20  # of its training


def test_metrics_are_listed_without_a_model(zentence: Any) -> None:
    shown = zentence("evaluate", "--list")
    assert all(f"  {name} " in shown.out for name in METRICS)
    rows = zentence("evaluate", "--list", "--json").json
    assert [row["name"] for row in rows] == list(METRICS)
    assert {"unit", "direction", "meaning", "group", "version"} <= set(rows[0])


def test_two_texts_of_one_name_keep_their_figures_apart(preloaded: Any, copy: Path, captions: Path) -> None:
    folder = copy.parent / "other"
    folder.mkdir()
    lines = (captions / "test.txt").read_text(encoding="utf-8").splitlines()
    (folder / "test.txt").write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")
    options = ("--metrics", "elbo_nll", "--samples", 3, "--json")
    first = preloaded("evaluate", copy, "--split", captions / "test.txt", *options).json[0]
    second = preloaded("evaluate", copy, "--split", folder / "test.txt", *options).json[0]
    again = preloaded("evaluate", copy, "--split", captions / "test.txt", *options).json[0]
    assert first["split"] == again["split"] == "test.txt"
    assert second["split"] == f"test.txt-{second['provenance']['store'][:8]}"
    assert results(copy, "test.txt")["elbo_nll"] == first and results(copy, second["split"])["elbo_nll"] == second


@pytest.mark.parametrize("kind", ["aggregate", "mixture"])
def test_figures_under_a_swapped_prior_stand_apart(preloaded: Any, copy: Path, kind: str) -> None:
    options = ("--prior-sentences", 50, "--components", 3, "--metrics", f"iw_nll,{kind}_prior_nll", "--json")
    plain = {row["name"]: row for row in preloaded("evaluate", copy, *options).json}
    swapped = preloaded("evaluate", copy, "--prior", kind, *options).json[0]
    assert swapped["split"] == f"valid ({kind} prior)"
    assert swapped["provenance"]["evaluation"]["prior"] == f"{kind} of 50 training sentences"
    under = plain[f"{kind}_prior_nll"]
    assert swapped["kind"] == under["kind"] == "upper_bound"
    assert swapped["value"] - 0.2 < under["value"] < swapped["value"] + 1.5  # codes adapted to another prior: looser


def test_melbo_beside_an_auto_encoder(preloaded: Any, copy: Path, trained: Any) -> None:
    other = trained("autoencoder")[0]
    options = ("--metrics", "melbo_nll", "--autoencoder", other, "--rival-nll", 90, "--json")
    details = preloaded("evaluate", copy, *options).json[0]["details"]
    assert details["autoencoder"] > details["floor"] == pytest.approx(np.log(20))
    assert details["meets"]["nll"] == 90.0 and details["meets"]["n"] > 0.0


def test_mistakes_are_one_line(preloaded: Any, copy: Path, language_model: Path, captions: Path) -> None:
    def refused(*arguments: object) -> str:
        shown = preloaded("evaluate", *arguments, expect=2)
        assert shown.out == "" and shown.err.count("\n") == 1
        return str(shown.err)

    assert "Unknown metric 'iw_nl'. Did you mean 'iw_nll'?" in refused(copy, "--metrics", "ppl,iw_nl")
    assert "give auto or a number" in refused(copy, "--samples", "many")
    assert "Unknown prior 'agregate'. Did you mean 'aggregate'?" in refused(copy, "--prior", "agregate")
    assert "Give a model directory" in refused()
    assert "iw_nll: this is a language model: it has no code" in refused(language_model, "--metrics", "iw_nll")
    assert "is no language model" in refused(copy, "--reference", copy)
    assert "is a language model" in refused(copy, "--autoencoder", language_model)
    assert "no prior to swap" in refused(language_model, "--prior", "mixture")
    empty = copy.parent / "empty.txt"
    empty.write_text("\n\n", encoding="utf-8")
    assert "no sentence" in refused(copy, "--split", empty)


def test_words_never_seen_are_counted(preloaded: Any, copy: Path) -> None:
    strange = copy.parent / "strange.txt"
    strange.write_text("qwrt zxcv the\nqwrt\n", encoding="utf-8")
    shown = preloaded("evaluate", copy, "--split", strange, "--metrics", "elbo_nll,ppl_without_eos", "--samples", 2)
    assert "3 of 4 words of strange.txt were never seen in training" in shown.err
    assert "3 unknown (75.0%)" in shown.out
    assert results(copy, "strange.txt")["ppl_without_eos"]["details"]["unknown"] == 3


def test_an_evaluation_that_was_killed_goes_on(preloaded: Any, copy: Path, captions: Path, tmp_path: Path) -> None:
    """A read-only results file stops the command at its end: all is computed, nothing is lost."""
    options = ("--split", captions / "test.txt", "--metrics", "iw_nll,shuffled_code_gap,smoothness", "--json")
    (copy / "sentences").write_text("in the way", encoding="utf-8")
    preloaded("evaluate", copy, *options, expect=2)
    assert any((copy / ".evaluation").iterdir())
    (copy / "sentences").unlink()
    shown = preloaded("evaluate", copy, *options)
    assert "going on with an interrupted evaluation" in shown.err
    assert not (copy / ".evaluation").exists()
    fresh = preloaded("evaluate", copy, *options)
    assert fresh.json == shown.json and "going on" not in fresh.err

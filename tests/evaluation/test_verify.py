"""Recorded figures computed again: what holds, what does not, and what cannot be said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zentence.checkpoint import save_model, save_settings
from zentence.corpora.prepare import prepare
from zentence.errors import ZentenceError
from zentence.evaluation.measurement import Measurement, read_results
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.runs import Run, load_runs
from zentence.evaluation.verify import Check, Options, Task, Text, Texts, by_suite, judge, plan, verify
from zentence.latent.space import LatentSpace
from zentence.settings import CorpusSettings
from zentence.testing import tiny_model, tiny_settings


def figure(name: str = "iw_nll", value: float = 100.0, **other: Any) -> Measurement:
    kind = other.pop("kind", "upper_bound")
    return replace(Measurement(name, value, "nats per sentence", kind, 0.5, 50, None, "valid", 0), **other)


@pytest.mark.parametrize(
    ("recorded", "fresh", "options", "status"),
    [
        (figure(), figure(value=100.009), {}, "holds"),
        (figure(), figure(value=100.011), {}, "differs"),
        (figure(value=0.0), figure(value=5e-7), {}, "holds"),
        (figure(), figure(value=101.9, seed=1), {}, "holds"),  # 4 standard errors are 2.0
        (figure(), figure(value=102.1, seed=1), {}, "differs"),
        (figure(kind="exact"), figure(value=101.0, kind="exact", seed=1), {}, "differs"),  # nothing random in it
        (figure(standard_error=None), figure(value=101.0, seed=1, standard_error=None), {}, "unchecked"),
        (figure(), figure(count=49), {}, "differs"),
        (figure(), figure(kind="exact"), {}, "differs"),
        (figure(), figure(value=101.5, count=10), {"partial": True}, "holds"),
        (figure(), figure(value=102.5, count=10), {"partial": True}, "differs"),
        (figure(), figure(value=102.5, count=10, standard_error=1.0), {"partial": True}, "holds"),
        (figure(), figure(value=90.0, count=10), {"partial": True, "expected": 90.001}, "holds"),
        (figure(), figure(value=101.5, count=10), {"partial": True, "expected": 101.0}, "differs"),
        (figure(standard_error=None), figure(standard_error=None), {"partial": True}, "holds"),
        (figure(details={"signature": "1"}), figure(value=50.0, details={"signature": "2"}), {}, "unchecked"),
    ],
)
def test_judgements(recorded: Measurement, fresh: Measurement, options: dict[str, Any], status: str) -> None:
    assert judge(recorded, fresh, **options).status == status


def test_a_difference_names_other_software() -> None:
    old, new = figure(provenance={"torch": "2.0"}), figure(value=50.0, provenance={"torch": "2.9"})
    assert judge(old, new).reason == "recorded with torch 2.0, now 2.9"


def as_run(*figures: Measurement) -> Run:
    return Run(Path("run"), "run", figures, None, None)


def test_figures_are_computed_again_as_they_were() -> None:
    def made(samples: int | None, limit: int | None) -> dict[str, Any]:
        return {"provenance": {"evaluation": {"samples": samples, "tolerance": 0.05, "limit": limit}}}

    run = as_run(
        figure("iw_nll", **made(50, None)), figure("rate", **made(50, None)), figure("ppl", **made(None, 7)),
        figure("iw_nll", split="test", samples=20, count=9), figure("bleu4", split="test", count=5),
        figure("bleu1", split="test", seed=4),
    )  # fmt: skip
    assert [(t.split, t.seed, t.options, [m.name for m in t.figures]) for t in plan(run)] == [
        ("valid", 0, Options(SamplePolicy(50, 0.05), None), ["iw_nll", "rate"]),
        ("valid", 0, Options(SamplePolicy(None, 0.05), 7), ["ppl"]),
        ("test", 0, Options(SamplePolicy(20), 9), ["iw_nll", "bleu4"]),  # not recorded: told by the likelihood
        ("test", 4, Options(SamplePolicy(None), None), ["bleu1"]),
    ]
    assert [[m.name for m in task.figures] for task in plan(run, ["rate"])] == [["rate"]]
    with pytest.raises(ZentenceError, match=r"run has no rat\. Did you mean 'rate'"):
        plan(run, ["rat"])


@pytest.fixture(scope="module")
def trained(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of the captions corpus, measured on its validation text."""
    folder = tmp_path_factory.mktemp("verify") / "model"
    folder.mkdir()
    texts = tmp_path_factory.mktemp("texts")
    for name in ("train.txt", "valid.txt", "test.txt"):
        shutil.copy(captions / name, texts / name)
    corpus = prepare(CorpusSettings(), [texts / "train.txt"], [texts / "valid.txt"])
    files = [f"corpus.train=['{texts}/train.txt']", f"corpus.valid=['{texts}/valid.txt']"]
    settings = tiny_settings([*files, "evaluation.samples=3"])
    save_settings(folder, settings)
    corpus.vocabulary.save(folder / "tokenizer.json")
    save_model(folder, tiny_model(vocabulary=len(corpus.vocabulary), spread=0.3).float())
    return folder


def record(space: LatentSpace, *names: str, samples: int | None = 3, limit: int | None = None) -> str:
    """Measure a model as `evaluate` does, and return the content of results.json."""
    text = Texts(space.settings.corpus, space.vocabulary).find("valid", None)
    assert isinstance(text, Text)
    options = Options(SamplePolicy(samples), limit)
    task = Task("valid", 0, options, tuple(figure(name) for name in names))
    found = by_suite(space.model, space.vocabulary, space.settings)(task, text)
    assert {m.provenance["store"] for m in found.figures.values()} == {text.store.folder.name}
    return json.dumps([vars(m) for m in found.figures.values()])


@pytest.fixture
def measured(trained: Path, tmp_path: Path) -> tuple[Path, LatentSpace]:
    """A copy of the model with results, and the model."""
    folder = Path(shutil.copytree(trained, tmp_path / "model"))
    space = LatentSpace.load(folder, "cpu")
    names = ("iw_nll", "ppl", "elbo_nll", "rate", "active_units", "mutual_information")
    (folder / "results.json").write_text(record(space, *names), encoding="utf-8")
    return folder, space


def check(measured: tuple[Path, LatentSpace], given: Path | None = None, **options: Any) -> dict[str, Check]:
    folder, space = measured
    texts = Texts(space.settings.corpus, space.vocabulary, given)
    recompute = by_suite(space.model, space.vocabulary, space.settings)
    return {found.metric: found for found in verify(load_runs([folder])[0], texts, recompute, **options)}


def change(folder: Path, name: str, /, **fields: Any) -> None:
    rows = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for row in rows:
        if row["name"] == name:
            row.update(fields)
    (folder / "results.json").write_text(json.dumps(rows), encoding="utf-8")


def test_what_was_measured_holds(measured: tuple[Path, LatentSpace]) -> None:
    found = check(measured)
    assert {"iw_nll", "elbo_nll", "ppl", "rate", "active_units"} <= set(found)
    assert {c.status for c in found.values()} == {"holds"}, found


def test_a_figure_tampered_with_is_found(measured: tuple[Path, LatentSpace]) -> None:
    value = next(m.value for m in read_results(measured[0] / "results.json") if m.name == "iw_nll")
    change(measured[0], "iw_nll", value=value * 0.999)
    found = check(measured)
    assert [name for name, c in found.items() if c.status == "differs"] == ["iw_nll"]
    assert found["iw_nll"].recomputed == pytest.approx(value) and found["iw_nll"].recorded == value * 0.999
    assert "iw_nll" not in check(measured, metrics=["rate", "ppl"])


def test_weights_that_are_not_the_measured_ones_are_found(measured: tuple[Path, LatentSpace]) -> None:
    for parameter in measured[1].model.decoder.parameters():
        parameter.data.mul_(1.05)
    assert check(measured)["elbo_nll"].status == "differs"


def test_another_seed_is_within_the_error_and_not_the_same(measured: tuple[Path, LatentSpace]) -> None:
    found = check(measured, seed=9)
    assert found["iw_nll"].status == "holds" and found["iw_nll"].recomputed != found["iw_nll"].recorded
    assert "standard errors" in found["iw_nll"].reason


def test_the_first_sentences_only(measured: tuple[Path, LatentSpace]) -> None:
    found = check(measured, limit=5, metrics=["iw_nll", "rate"])
    assert {c.status for c in found.values()} == {"holds"}
    change(measured[0], "iw_nll", value=1000.0)
    assert check(measured, limit=5, metrics=["iw_nll"])["iw_nll"].status == "differs"


@pytest.mark.parametrize("samples", [2, None])
def test_the_recorded_options_are_used(measured: tuple[Path, LatentSpace], samples: int | None) -> None:
    folder, space = measured
    names = ("iw_nll", "ppl", "elbo_nll", "bleu4", "melbo_nll")
    (folder / "results.json").write_text(record(space, *names, samples=samples, limit=7), encoding="utf-8")
    found = check(measured)
    assert set(found) == set(names) and {c.status for c in found.values()} == {"holds"}, found


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"version": 99}, "it is of version 99 of its metric"),
        ({"name": "vanished_metric"}, "no such metric"),
        ({"split": "elsewhere.txt"}, "'elsewhere.txt' is not among the files of its training"),
        ({"provenance": {"store": "0123"}, "split": "valid.txt"}, "its text has changed"),
    ],
)
def test_what_cannot_be_checked(measured: tuple[Path, LatentSpace], fields: dict[str, Any], reason: str) -> None:
    change(measured[0], "rate", **fields)
    found = check(measured)
    unchecked = [c for c in found.values() if c.status == "unchecked"]
    assert [c.recorded for c in unchecked] == [found[fields.get("name", "rate")].recorded]
    assert reason in unchecked[0].reason and unchecked[0].recomputed is None
    assert found["iw_nll"].status == "holds"


def test_a_missing_text_may_be_given(measured: tuple[Path, LatentSpace], tmp_path: Path) -> None:
    space = measured[1]
    valid = Path(space.settings.corpus.valid[0])
    moved = shutil.copy(valid, tmp_path / "moved.txt")
    files = space.settings.corpus.model_copy(update={"train": (str(tmp_path / "gone.txt"),)})
    space.settings = space.settings.model_copy(update={"corpus": files})
    missing = check(measured)
    assert {c.status for c in missing.values()} == {"unchecked"} and "gone.txt is not there" in missing["rate"].reason
    assert {c.status for c in check(measured, Path(moved)).values()} == {"holds"}
    other = valid.with_name("test.txt")
    assert check(measured, other)["rate"].reason == "test.txt is another text"

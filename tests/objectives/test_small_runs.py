"""Small real runs: a targeted rate is reached, a restart changes nothing, and figures that cannot be are left out."""

from pathlib import Path
from typing import Any

import pytest

from zentence.checkpoint import load_settings_of
from zentence.errors import ZentenceError
from zentence.evaluation.measurement import read_results
from zentence.settings import Settings, settings_from
from zentence.training.run import train

WORDS = [
    "ant",
    "bee",
    "cat",
    "dog",
    "elk",
    "fox",
    "gnu",
    "hen",
    "jay",
    "kite",
    "lynx",
    "mole",
    "newt",
    "owl",
    "pig",
    "ray",
]
LINES = [f"{first} {second}" for first in WORDS for second in (first, first, "sits", "runs softly")]
AUTOENCODER = {"name": "first", "epochs": 60.0, "objective": {"name": "autoencoder"}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("animals")
    (folder / "train.txt").write_text("\n".join(LINES * 2), encoding="utf-8")
    (folder / "valid.txt").write_text("\n".join(LINES), encoding="utf-8")
    return folder


def settings(*stages: dict[str, Any], training: dict[str, Any] | None = None, **parts: Any) -> Settings:
    sizes = {"embedding_size": 16, "hidden_size": 16}
    content = {
        "encoder": {"name": "recurrent", **sizes},
        "posterior": {"name": "gaussian", "size": 4},
        "decoder": {"name": "recurrent", **sizes},
        "optimizer": {"name": "adam", "learning_rate": 0.02},
        "evaluation": {"samples": 2},
        "stages": list(stages),
        **parts,
    }
    defaults = {"batch_sentences": 32, "tensorboard": "no", "threads": 1, "log_every": 1, "validate_every": 30.0}
    return settings_from({**content, "training": {**defaults, **(training or {})}})


def run(chosen: Settings, corpus: Path, out: Path, **options: Any) -> list[dict[str, Any]]:
    """Train and return all events."""
    events: list[dict[str, Any]] = []
    extra = options.pop("callbacks", [])
    files = {"valid": [corpus / "valid.txt"], "out": out}
    train(chosen, corpus / "train.txt", callbacks=[events.append, *extra], **files, **options)
    return events


def test_minimum_rate_reaches_its_target(corpus: Path, tmp_path: Path) -> None:
    """1.5 of the 2.8 nats that tell the animals apart, after the code has learnt to tell them."""
    rule = {"name": "minimum_rate", "target": 1.5, "optimizer": "sgd", "learning_rate": 0.02}
    second = {"name": "second", "epochs": 120.0, "objective": {"name": "elbo", "rate_rule": rule}}
    steps = [e for e in run(settings(AUTOENCODER, second), corpus, tmp_path / "run") if e["event"] == "step"]
    last = steps[-120:]
    assert sum(step["rate"] for step in last) / len(last) == pytest.approx(1.5, abs=0.2)
    assert all(0.0 < step["multiplier"] < 1.0 for step in last)
    assert all(step["slack"] == pytest.approx(1.5 - step["rate"], abs=1e-4) for step in last)


class StoppedError(Exception):
    pass


UPDATE = {"name": "aggressive", "max_inner": 4, "judge_every": 2}
RULES = {
    "minimum rate": {"name": "minimum_rate", "target": 1.0},
    "soft free bits": {"name": "soft_free_bits", "target": 1.0, "form": "multiplicative"},
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_a_restart_changes_no_weight_multiplier_or_decision(rule: Any, corpus: Path, tmp_path: Path) -> None:
    stage = {"epochs": 6.0, "objective": {"name": "elbo", "rate_rule": rule}, "update": UPDATE}
    chosen = settings(
        stage,
        training={"validate_every": 1.0, "checkpoint_seconds": 0.0},
        prior={"name": "vamp", "components": 3},
        decoder={"name": "recurrent", "embedding_size": 16, "hidden_size": 16, "output_dropout": 0.3},
    )
    whole = run(chosen, corpus, tmp_path / "whole")

    def stop(at: int) -> Any:
        def callback(event: dict[str, Any]) -> None:
            if event["event"] == "step" and event["tick"] == at:
                raise StoppedError

        return callback

    for resume, at in ((False, 6), (True, 15)):
        with pytest.raises(StoppedError):
            run(chosen, corpus, tmp_path / "parts", resume=resume, callbacks=[stop(at)])
    parts = run(chosen, corpus, tmp_path / "parts", resume=True)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]

    def figures(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        kept = ("rate", "distortion", "multiplier", "beta", "slack", "inner_steps", "charge")
        return {e["tick"]: {name: e.get(name) for name in kept} for e in events if e["event"] == "step"}

    after = figures(parts)
    assert min(after) == 15 and after == {tick: row for tick, row in figures(whole).items() if tick >= 15}
    validations = [event for event in whole if event["event"] == "validation"]
    asked = ["mutual_information" in event for event in validations]
    inner = [row["inner_steps"] for row in figures(whole).values()]
    assert asked == sorted(asked, reverse=True) and inner[0] > 0.0
    assert [step > 0.0 for step in inner] == sorted((step > 0.0 for step in inner), reverse=True)


def test_lengths_of_pseudo_inputs_come_from_the_training_text(corpus: Path, tmp_path: Path) -> None:
    chosen = settings({"epochs": 1.0}, prior={"name": "vamp", "components": 3}, training={"max_steps": 2})
    run(chosen, corpus, tmp_path / "run")
    prior = load_settings_of(tmp_path / "run").prior.options
    assert prior["length_mean"] == pytest.approx(2.25) and prior["length_spread"] == pytest.approx(0.1875**0.5)
    run(chosen, corpus, tmp_path / "run", resume=True)
    changed = settings({"epochs": 1.0}, prior={"name": "vamp", "components": 3, "length_mean": 7.0})
    with pytest.raises(ZentenceError, match=r"prior\.length_mean"):
        run(changed, corpus, tmp_path / "run", resume=True)


def test_figures_that_a_posterior_cannot_give_are_left_out(corpus: Path, tmp_path: Path) -> None:
    chosen = settings({"epochs": 1.0}, posterior={"name": "planar", "size": 4}, training={"max_steps": 2})
    events = run(chosen, corpus, tmp_path / "run")
    names = {measurement.name for measurement in read_results(tmp_path / "run" / "results.json")}
    assert {"iw_nll", "rate", "active_units"} <= names and "mutual_information" not in names
    assert all("mutual_information" not in event for event in events)


def test_averaged_codes_train_and_are_measured(corpus: Path, tmp_path: Path) -> None:
    chosen = settings({"epochs": 1.0}, averaged_codes=3, training={"max_steps": 2})
    run(chosen, corpus, tmp_path / "run")
    kinds = {m.name: m.kind for m in read_results(tmp_path / "run" / "results.json")}
    assert kinds["elbo_nll"] == "not_a_bound" and kinds["iw_nll"] == "upper_bound"
    assert load_settings_of(tmp_path / "run").averaged_codes == 3


@pytest.mark.parametrize("name", ["mim", "iwae", "info_vae"])
def test_objectives_train_from_settings(name: str, corpus: Path, tmp_path: Path) -> None:
    events = run(settings({"epochs": 1.0, "objective": {"name": name}}), corpus, tmp_path / "run")
    selection = {"mim": "loss", "iwae": "iw_nll", "info_vae": "elbo_nll"}[name]
    validation = next(event for event in events if event["event"] == "validation")
    assert validation["selection"] == selection and selection in validation

"""The loop: selection, plateaus, stages, weights of batches, events."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import zentence
from zentence.checkpoint import load_model, tensors_of
from zentence.corpora import Batches
from zentence.corpora.prepare import prepare
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings, Settings
from zentence.testing import tiny_settings


def settings(*overrides: str, language_model: bool = False) -> Settings:
    return tiny_settings(["training.batch_sentences=20", *overrides], language_model=language_model)


def run(captions: Path, out: Path, chosen: Settings, **options: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    files = {"valid": [captions / "valid.txt"], "out": out, **options}
    zentence.train(chosen, captions / "train.txt", callbacks=[events.append], **files)
    return events


def test_a_run_tells_what_it_does_and_writes_a_model_directory(captions: Path, tmp_path: Path) -> None:
    events = run(captions, tmp_path / "run", settings("training.log_every=5"))
    kinds = [event["event"] for event in events]
    assert kinds[0] == "reading" and kinds[-1] == "end"
    assert kinds.count("stage") == 1 and kinds.count("validation") == 2
    steps = [event for event in events if event["event"] == "step"]
    assert [event["tick"] for event in steps] == [*range(5, 37, 5), 36]
    assert {"distortion", "rate", "active_units", "learning_rate", "tokens", "beta"} <= set(steps[0])
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in logged] == [k for k in kinds if k not in ("reading", "evaluating")]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    files = {"settings.toml", "tokenizer.json", "model.safetensors", "results.json", "log.jsonl"}
    assert names == {*files, "checkpoints", "sentences"}


def test_the_same_seed_gives_the_same_weights_and_another_does_not(captions: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(captions, tmp_path / name, settings(f"training.seed={seed}"))
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_the_best_weights_are_kept_not_the_last(captions: Path, tmp_path: Path) -> None:
    """With a learning rate that explodes late, the model in the directory is the one of the best validation."""
    late = '{name="staged",values=[1.0,300.0],from_share=[0.0,0.7]}'
    chosen = settings("stages.0.epochs=6", "optimizer.name=sgd", "optimizer.learning_rate=0.1",
                      f"optimizer.schedule={late}", language_model=True)  # fmt: skip
    events = run(captions, tmp_path / "run", chosen)
    values = [event["nll"] for event in events if event["event"] == "validation"]
    assert min(values) < values[-1] - 1.0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert next(m["value"] for m in results if m["name"] == "nll") == pytest.approx(min(values), rel=1e-6)


def test_plateaus_decay_the_rate_and_end_the_stage(captions: Path, tmp_path: Path) -> None:
    chosen = settings(
        "stages.0.epochs=40", "optimizer.name=sgd", "optimizer.learning_rate=1e-12", "optimizer.plateau.patience=1",
        "optimizer.plateau.factor=0.5", "optimizer.plateau.stop_after=3", "optimizer.plateau.not_before_epoch=2",
        language_model=True,
    )  # fmt: skip
    events = run(captions, tmp_path / "run", chosen)
    decays = [event for event in events if event["event"] == "decay"]
    assert [event["factor"] for event in decays] == [0.5, 0.25, 0.125]
    assert all(event["epoch"] >= 2 for event in decays)
    last = [event for event in events if event["event"] == "step"][-1]
    assert last["epoch"] < 40


def test_early_stopping(captions: Path, tmp_path: Path) -> None:
    chosen = settings("stages.0.epochs=40", "stages.0.early_stopping=2", "optimizer.learning_rate=1e-12",
                      language_model=True)  # fmt: skip
    events = run(captions, tmp_path / "run", chosen)
    assert len([event for event in events if event["event"] == "validation"]) < 12


def test_stages_reset_parts_and_keep_the_others(captions: Path, tmp_path: Path) -> None:
    """A second stage with a learning rate of nothing shows what it started from."""
    stages = (
        '[{name="first",epochs=1.0,objective={name="autoencoder"}},'
        '{name="second",epochs=1.0,reset=["decoder"],objective={name="elbo"},'
        'optimizer={name="sgd",learning_rate=1e-30}}]'
    )
    run(captions, tmp_path / "two", settings(f"stages={stages}"))
    one = '[{name="first",epochs=1.0,objective={name="autoencoder"}}]'
    run(captions, tmp_path / "one", settings(f"stages={one}"))
    two, first = (tensors_of(load_model(tmp_path / name)[0]) for name in ("two", "one"))
    for name, tensor in two.items():
        same = torch.equal(tensor, first[name])
        assert same == name.startswith(("encoder", "posterior")), name


def test_every_sentence_counts_alike_whatever_its_batch(captions: Path) -> None:
    store = prepare(CorpusSettings(), [captions / "train.txt"], [captions / "valid.txt"]).splits["train"]
    for options in ({"tokens": 100}, {"sentences": 7}):
        batches = Batches(store, **options)  # type: ignore[arg-type]
        weights = {}
        for batch in batches.epoch(0):
            for number in batch.index.tolist():
                weights[number] = batch.weight / batch.global_size
        assert len(weights) == len(store)
        assert list(weights.values()) == pytest.approx([len(batches) / len(store)] * len(store))


def test_a_collapsing_posterior_is_said_so(captions: Path, tmp_path: Path) -> None:
    chosen = settings(
        "stages.0.epochs=12", "training.log_every=2", 'stages.0.objective.rate_rule={name="plain",weight=50.0}'
    )
    warnings = [event["message"] for event in run(captions, tmp_path / "run", chosen) if event["event"] == "warning"]
    collapse = [message for message in warnings if "the code is being ignored" in message]
    assert len(collapse) == 1 and "of 2 units active" in collapse[0] and "free_bits" in collapse[0]


def test_l2_moves_only_its_part(captions: Path, tmp_path: Path) -> None:
    small = ["stages.0.epochs=1", "optimizer.name=sgd", "optimizer.learning_rate=1e-3", "optimizer.clip=1e9"]
    run(captions, tmp_path / "plain", settings(*small))
    run(captions, tmp_path / "decayed", settings(*small, "optimizer.l2.posterior=100.0"))
    plain, decayed = (tensors_of(load_model(tmp_path / name)[0]) for name in ("plain", "decayed"))
    norm = {name: float(decayed[name].norm() / plain[name].norm()) for name in plain}
    assert norm["posterior.to_mean.weight"] < 0.5
    assert norm["decoder.output.weight"] == pytest.approx(1.0, abs=0.05)


def test_python_and_files_in_settings(captions: Path, tmp_path: Path) -> None:
    chosen = settings(f'corpus.train=["{captions}/train.txt"]', f'corpus.valid=["{captions}/valid.txt"]',
                      f"out={tmp_path}/run", "stages.0.epochs=0.2")  # fmt: skip
    result = zentence.train(chosen)
    assert result.folder == tmp_path / "run" and {m.name for m in result.measurements} >= {"iw_nll", "source_nll"}
    with pytest.raises(ZentenceError, match="No training text"):
        zentence.train(settings())


def test_a_run_ends_when_its_time_is_up_and_goes_on_with_more(captions: Path, tmp_path: Path) -> None:
    """The stage to come, which would draw the decoder anew, is not begun; with more time nothing is lost."""
    two = '[{name="a",epochs=1},{name="b",epochs=1,reset=["decoder"]}]'
    undisturbed, limited = (settings(f"stages={two}", f"training.max_minutes={m}") for m in (10.0, 1e-9))
    run(captions, tmp_path / "whole", undisturbed)
    events = run(captions, tmp_path / "run", limited)
    kinds = [event["event"] for event in events]
    assert kinds.count("stage") == 1 and kinds.count("validation") == 1 and kinds[-1] == "end"
    assert events[-1]["tick"] == 1 and (tmp_path / "run" / "results.json").is_file()
    run(captions, tmp_path / "run", undisturbed, resume=True)
    whole, resumed = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert resumed == whole

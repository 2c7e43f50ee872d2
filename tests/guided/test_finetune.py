"""Fine-tuning: what moves and what does not, batches, what is held out, runs that are interrupted."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zentence.checkpoint import tensors_of
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.guided.finetune import (
    ExampleBatches,
    TokenExamples,
    TunedReader,
    TuneSettings,
    TuneTrainable,
    hold_out,
    once,
    tokens_of,
    tune,
)
from zentence.guided.understanding import learning_rates, score_tuned, tuned_curve
from zentence.latent import LatentSpace
from zentence.noise import Noise
from zentence.settings import CorpusSettings
from zentence.tasks.classify import LabelledText
from zentence.tasks.glue import TASKS, Examples
from zentence.tasks.glue_scores import GlueData
from zentence.tasks.subjects import Kind, Subject
from zentence.tasks.understand import plan_low_resource
from zentence.testing import tiny_model, tiny_settings
from zentence.training.loop import InterruptedTraining

WORDS = "a the cat dog sat ran to and ."
FEW = TuneSettings(learning_rate=0.03, epochs=4, batch=4)


def subject(kind: Kind = "code", *overrides: str) -> Subject:
    vocabulary = build_vocabulary(Counter(WORDS.split()), CorpusSettings())
    model = tiny_model(overrides, vocabulary=len(vocabulary), spread=0.5).float()
    return Subject(kind, LatentSpace(model, vocabulary, tiny_settings(overrides)), kind)


def made(count: int, seed: int = 0, longest: int = 6) -> tuple[list[str], np.ndarray]:
    """Return sentences of two words or more, and whether each has a cat in it."""
    random = np.random.default_rng(seed)
    texts = [" ".join(random.choice(WORDS.split(), size=random.integers(2, longest + 1))) for _ in range(count)]
    return texts, np.array(["cat" in text for text in texts], dtype=np.int64)


def examples(one: Subject, count: int = 24, pairs: bool = False) -> TokenExamples:
    texts, y = made(count)
    return TokenExamples(tokens_of(one, texts), tokens_of(one, texts[::-1]) if pairs else None, y)


@pytest.mark.parametrize("kind", ["code", "encoder"])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("overrides", [(), ("encoder.embedding=decoder",)])
def test_the_loss_moves_encoder_and_head_only(kind: Kind, pairs: bool, overrides: tuple[str, ...]) -> None:
    one = subject(kind, *overrides)
    before = {name: tensor.clone() for name, tensor in tensors_of(one.space.model).items()}
    found = examples(one, pairs=pairs)
    reader = TunedReader(one, 2, found.targets, pairs, 0)
    batch = found.batch(np.arange(8))
    terms = TuneTrainable(reader)(batch, 0, Noise(0, batch.index))
    terms.loss.backward()
    moved = {name for name, parameter in reader.named_parameters() if parameter.grad is not None}
    assert {"head.weight", "head.bias", "encoder.embedding.weight"} <= moved
    assert all(float(dict(reader.named_parameters())[name].grad.abs().sum()) > 0 for name in moved)  # type: ignore[union-attr]
    expected = {"encoder", "head"} | ({"posterior"} if kind == "code" else set())
    assert {name.partition(".")[0] for name in moved} == expected
    assert not any("to_scale" in name for name in moved)
    assert all(parameter.grad is None for parameter in one.space.model.parameters())
    torch.optim.SGD(reader.parameters(), lr=1.0).step()
    after = tensors_of(one.space.model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_loss_by_hand() -> None:
    one = subject("encoder")
    found = examples(one, 6)
    reader = TunedReader(one, 2, found.targets, False, 0)
    batch = found.batch(np.arange(6))
    logits = reader.head(one.space.model.encoder(batch.source)).detach().double()
    expected = torch.logsumexp(logits, 1) - logits[torch.arange(6), torch.from_numpy(found.targets)]
    assert reader.losses(batch).detach().double() == pytest.approx(expected, abs=1e-6)
    assert reader.mean_loss(found, 2) == pytest.approx(float(expected.mean()), abs=1e-6)
    assert reader.predict(found, 4).tolist() == logits.argmax(1).tolist()
    values = TokenExamples(found.first, None, np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]))
    reader = TunedReader(one, 0, values.targets, False, 0)
    raw = reader(values.batch(np.arange(6)))[:, 0].detach().double().numpy()
    mean, spread = values.targets.mean(), values.targets.std()
    assert reader.predict(values) == pytest.approx(raw * spread + mean, abs=1e-5)
    wanted = 0.5 * (raw - (values.targets - mean) / spread) ** 2
    assert reader.mean_loss(values) == pytest.approx(wanted.mean(), abs=1e-5)


def test_a_pass_has_every_example_once_and_can_begin_anywhere() -> None:
    found = examples(subject(), 23)
    batches = ExampleBatches(found, 4, seed=1)
    assert len(batches) == 6
    seen = [batches.batch(2, position) for position in range(6)]
    assert sorted(int(i) for batch in seen for i in batch.index) == list(range(23))
    assert sum(batch.weight for batch in seen) == pytest.approx(6.0)
    assert torch.equal(ExampleBatches(found, 4, seed=1).batch(2, 3).index, seen[3].index)
    assert [batches.batch(3, at).index.tolist() for at in range(6)] != [batch.index.tolist() for batch in seen]
    for batch in seen:
        assert batch.labels is not None
        assert batch.labels.tolist() == found.targets[batch.index].tolist()


def test_what_is_held_out_is_a_share_of_each_class() -> None:
    y = np.array([0] * 40 + [1] * 10)
    kept, held = hold_out(y, 0.2, 50, 0)
    assert np.bincount(y[held]).tolist() == [8, 2] and sorted([*kept, *held]) == list(range(50))
    assert np.bincount(y[hold_out(y, 0.2, 5, 0)[1]]).tolist() == [4, 1]
    assert len(hold_out(np.array([0] * 9 + [1] * 4), 0.2, 50, 0)[1]) == 0
    assert len(hold_out(np.linspace(0, 5, 30), 0.1, 50, 0)[1]) == 3


def test_training_learns_what_it_is_told(tmp_path: Path) -> None:
    one = subject("encoder")
    found = examples(one, 60)
    told: list[tuple[int, int]] = []
    settings = TuneSettings(learning_rate=0.03, epochs=100, batch=12, max_steps=150)
    reader = tune(
        one,
        found,
        None,
        classes=2,
        settings=settings,
        folder=tmp_path / "run",
        fingerprint={},
        told=lambda done, total: told.append((done, total)),
    )
    assert float((reader.predict(found) == found.targets).mean()) > 0.95
    assert told[-1] == (150, 150)


def test_an_interrupted_run_goes_on_bit_by_bit(tmp_path: Path) -> None:
    one = subject("code")
    found = examples(one)
    options: dict[str, Any] = {"classes": 2, "settings": FEW, "fingerprint": {"a": 1}}
    whole = tune(one, found, None, folder=tmp_path / "whole", **options)

    def interrupt(done: int, _total: int) -> None:
        if done == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedTraining):
        tune(one, found, None, folder=tmp_path / "parts", told=interrupt, **options)
    with pytest.raises(ZentenceError, match=r"parts exists: go on with --resume"):
        tune(one, found, None, folder=tmp_path / "parts", **options)
    with pytest.raises(ZentenceError, match="--resume with changed fingerprint: a"):
        tune(one, found, None, folder=tmp_path / "parts", resume=True, **{**options, "fingerprint": {"a": 2}})
    parts = tune(one, found, None, folder=tmp_path / "parts", resume=True, **options)
    left, right = tensors_of(whole), tensors_of(parts)
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_result_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def work() -> dict[str, Any]:
        made.append(1)
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "model.safetensors").touch()
        return {"accuracy": 0.5}

    assert once(tmp_path, {"a": (1,)}, True, False, work) == {"accuracy": 0.5}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert once(tmp_path, {"a": [1]}, True, False, work) == {"accuracy": 0.5} and made == [1]
    with pytest.raises(ZentenceError, match="is the result of another run"):
        once(tmp_path, {"a": [2]}, True, False, work)
    once(tmp_path, {"a": [2]}, False, True, work)
    assert made == [1, 1] and json.loads((tmp_path / "result.json").read_text())["fingerprint"] == {"a": [2]}
    (tmp_path / "result.json").write_text("{", encoding="utf-8")
    with pytest.raises(ZentenceError, match="is damaged"):
        once(tmp_path, {}, True, False, work)


def labelled(name: str, count: int, seed: int) -> LabelledText:
    texts, y = made(count, seed, longest=2)
    return LabelledText(name, texts, [("no", "yes")[label] for label in y])


def test_a_curve_of_fine_tuned_runs_and_its_resumption(tmp_path: Path) -> None:
    one = subject("encoder")
    study = plan_low_resource(labelled("train", 200, 1), labelled("test", 60, 2), per_class=[1, 30], repeats=2)
    settings = TuneSettings(learning_rate=0.03, epochs=100, max_steps=120, batch=8)
    curve = tuned_curve(study, one, settings, tmp_path)
    assert {labels: len(accuracy.runs) for labels, accuracy in curve.values.items()} == {1: 2, 30: 2}
    assert np.mean(curve.values[30].runs) > 0.9
    assert sorted(path.name for path in (tmp_path / "encoder").iterdir()) == [
        *(f"1-labels-run-{run}" for run in range(2)),
        *(f"30-labels-run-{run}" for run in range(2)),
    ]
    (tmp_path / "encoder" / "30-labels-run-1" / "result.json").unlink()
    again: list[str] = []
    resumed = tuned_curve(study, one, settings, tmp_path, resume=True, progress=lambda what, *_: again.append(what))
    assert resumed == curve and set(again) == {"encoder, 30 labels a class, run 2"}


def test_the_learning_rate_is_chosen_without_dev(tmp_path: Path) -> None:
    """Dev's targets are inverted: a choice by dev would take the useless rate."""
    one = subject("encoder")
    texts, y = made(150)
    train = Examples("train", texts, None, y, 150)
    dev_texts, dev_y = made(60, 5)
    data = GlueData(TASKS["SST-2"], train, {"dev": Examples("dev", dev_texts, None, 1 - dev_y, 60)})
    settings = TuneSettings(epochs=12, batch=8)
    (row,) = score_tuned(data, one, settings, [1e-9, 0.02], tmp_path)
    assert row.chosen["learning_rate"] == 0.02 and row.scheme == "fine-tuned"
    assert row.chosen["held_out"]["0.02"] > row.chosen["held_out"]["1e-09"]
    assert row.main.value < 0.2
    (again,) = score_tuned(data, one, settings, [1e-9, 0.02], tmp_path, resume=True)
    assert again.scores == row.scores


def test_a_transformer_is_tuned_with_the_papers_rates(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")
    one = subject("encoder", "encoder={name='transformer', layers=1, hidden_size=16, heads=2}")
    assert learning_rates(one) == (2e-5, 3e-5, 4e-5, 5e-5) and learning_rates(subject()) == (5e-4, 1e-3, 2e-3)
    texts, y = made(30)
    found = TokenExamples(tokens_of(one, texts), None, y)
    settings = TuneSettings(learning_rate=5e-3, epochs=80, batch=10)
    reader = tune(one, found, None, classes=2, settings=settings, folder=tmp_path, fingerprint={})
    assert float((reader.predict(found) == y).mean()) > 0.9
    assert reader.predict(found, 4).tolist() == reader.predict(found, 30).tolist()

"""Runs of transformer parts through the one loop, on sub-words: training, resuming, loading, pre-trained weights."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zentence
from zentence.latent import LatentSpace

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

STEPS = 16
CHANGES = [
    "corpus.bpe_size=400",
    "encoder.layers=2",
    "encoder.hidden_size=32",
    "decoder.layers=2",
    "decoder.hidden_size=32",
    "posterior.size=4",
    "optimizer.learning_rate=0.003",
    "training.batch_tokens=512",
    "training.tensorboard=no",
    "training.threads=1",
    "training.log_every=1",
    f"training.max_steps={STEPS}",
    "training.checkpoint_seconds=0",
    "evaluation.samples=5",
]


def trained(captions: Path, out: Path, *changes: str, **options: Any) -> Any:
    settings = zentence.load_settings("optimus-small", [*CHANGES, *changes])
    return zentence.train(settings, captions / "train.txt", valid=[captions / "valid.txt"], out=out, **options)


class Run:
    """A finished run, and a copy of its folder from the middle."""

    def __init__(self, captions: Path, folder: Path) -> None:
        self.folder, self.middle = folder / "whole", folder / "middle"
        self.losses: list[float] = []
        self.beta: list[float] = []
        result = trained(captions, self.folder, callbacks=[self._follow])
        self.figures = {m.name: m.value for m in result.measurements}

    def _follow(self, event: Any) -> None:
        if event["event"] == "step":
            self.losses.append(event["loss"])
            self.beta.append(event["beta"])
            if event["tick"] == STEPS // 2:
                shutil.copytree(self.folder, self.middle)


@pytest.fixture(scope="module")
def run(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(captions, tmp_path_factory.mktemp("optimus"))


def test_it_learns_and_beta_runs_in_cycles(run: Run, captions: Path) -> None:
    assert len(run.losses) == STEPS
    vocabulary = LatentSpace.load(run.folder).vocabulary
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()
    tokens = sum(len(row) + 1 for row in vocabulary.encode_batch(lines)) / len(lines)
    assert run.figures["distortion"] < 0.9 * tokens * math.log(len(vocabulary))  # all tokens alike: 1 ×
    assert min(run.beta) == 0.0 and max(run.beta) == 1.0
    assert sum(a > b for a, b in zip(run.beta, run.beta[1:], strict=False)) > 5  # falls: one a cycle


def test_resuming_gives_the_same_weights(run: Run, captions: Path) -> None:
    trained(captions, run.middle, resume=True)
    assert (run.middle / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()


def test_perplexity_is_per_word_and_bits_are_per_byte(run: Run, captions: Path) -> None:
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()
    nats = run.figures["iw_nll"] * len(lines)
    words = sum(len(line.split()) for line in lines)
    assert run.figures["ppl"] == pytest.approx(math.exp(nats / (words + len(lines))), rel=1e-6)
    size = sum(len(line.encode()) + 1 for line in lines)
    assert run.figures["bits_per_byte"] == pytest.approx(nats / size / math.log(2.0), rel=1e-6)


def test_a_model_directory_is_the_model(run: Run, captions: Path) -> None:
    space = LatentSpace.load(run.folder)
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()[:7]
    codes = space.encode(lines)
    assert codes.shape == (7, 4)
    assert np.allclose(codes, np.concatenate([space.encode([line]) for line in lines]), atol=1e-5)
    together = space.decode(codes)
    assert together == [space.decode(codes[i : i + 1])[0] for i in range(7)]
    assert all("Ġ" not in text and "<bos>" not in text for text in together)


def test_pretrained_parts_start_from_their_weights(run: Run, captions: Path, tmp_path: Path) -> None:
    """The decoder of one model, saved as the library saves it, is where another begins; then it is needed no more."""
    space = LatentSpace.load(run.folder)
    space.model.decoder.network.save_pretrained(tmp_path / "weights")
    shutil.copy(run.folder / "tokenizer.json", tmp_path / "weights" / "tokenizer.json")
    still = [f"{where}optimizer.learning_rate=1e-12" for where in ("", "stages.0.")]
    still += ["training.max_steps=1", f"decoder.weights={tmp_path / 'weights'}"]
    trained(captions, tmp_path / "run", *still)
    shutil.rmtree(tmp_path / "weights")
    ours, theirs = (LatentSpace.load(folder).model.decoder.network for folder in (tmp_path / "run", run.folder))
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if "wte" in name:  # <pad>, <bos> and <eos> have no spelling in the weights' tokeniser that we know of
            one, other = one[3:], other[3:]
        assert torch.allclose(one, other, atol=1e-6), name

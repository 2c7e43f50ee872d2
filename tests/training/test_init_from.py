"""Starting from an existing model: the encoder of an auto-encoder, a new decoder."""

from pathlib import Path
from typing import Any

import torch

from zentence.checkpoint import read_tensors


def train(preloaded: Any, files: list[str], options: list[str], out: Path, *more: object, expect: int = 0) -> Any:
    return preloaded("train", *files, *options, "--out", out, "--quiet", *more, expect=expect)


def test_the_encoder_is_kept_and_the_decoder_starts_anew(
    preloaded: Any, files: list[str], tiny: Any, tmp_path: Path
) -> None:
    train(preloaded, files, tiny("autoencoder"), tmp_path / "ae")
    still = tiny("vae", optimizer__name="sgd", optimizer__learning_rate=1e-30)
    train(preloaded, files, still, tmp_path / "kept", "--init-from", tmp_path / "ae", "--reset", "decoder")
    train(preloaded, files, still, tmp_path / "whole", "--init-from", tmp_path / "ae")
    ae, kept, whole = (read_tensors(tmp_path / name / "model.safetensors") for name in ("ae", "kept", "whole"))
    for name, tensor in ae.items():
        assert torch.equal(tensor, whole[name]), name
        moved = not torch.equal(tensor, kept[name])
        assert moved == (name.startswith("decoder") and bool(tensor.abs().max() > 0)), name


def test_another_tokeniser_or_shape_is_refused_in_one_line(
    preloaded: Any, files: list[str], tiny: Any, tmp_path: Path
) -> None:
    train(preloaded, files, tiny("autoencoder"), tmp_path / "ae")
    cases = {
        "another tokeniser": tiny("vae", corpus__min_count=3),
        "posterior.to_mean.bias is [4] there and [5] here": tiny("vae", posterior__size=5),
        "encoder.embedding.weight": tiny("vae", encoder__embedding_size=9),
    }
    for message, options in cases.items():
        failed = train(
            preloaded, files, options, tmp_path / "new", "--init-from", tmp_path / "ae", "--reset", "decoder", expect=2
        )
        assert message in failed.err and failed.err.count("\n") == 1, failed.err
        assert not (tmp_path / "new").exists()
    missing = train(preloaded, files, tiny("vae"), tmp_path / "new", "--init-from", tmp_path / "nothing", expect=2)
    assert "not a model directory" in missing.err and missing.err.count("\n") == 1

"""Thirty steps of every recipe on a small corpus give the figures they gave before.

The tolerance holds across CPUs: rounding differs between them, the mathematics does not. After a change that is meant
to move figures, write new ones with `ZENTENCE_GOLDEN=write pytest tests/golden`, and say so in the commit.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import zentence
from zentence.parts import plain
from zentence.settings import load_settings, override, recipe_names, settings_from

FIGURES = Path(__file__).parent / "figures.json"
SMALL = {
    "encoder": ["embedding_size=12", "hidden_size=16"],
    "decoder": ["embedding_size=12", "hidden_size=16"],
    "posterior": ["size=4"],
    "training": [
        "batch_sentences=16",
        "max_steps=30",
        "log_every=10",
        "tensorboard=no",
        "threads=1",
        "precision=float32",  # the same on every machine
    ],
    "evaluation": ["samples=5"],
    "optimizer": ["learning_rate=0.02"],
}
FROM_ELSEWHERE = {"optimus-finetune", "optimus-small-pretrained"}  # they start from directories made before


def small(recipe: str) -> list[str]:
    plain = load_settings(recipe)
    families = [name for name in SMALL if plain.has_code or name not in ("encoder", "posterior")]
    changes = [f"{family}.{change}" for family in families for change in SMALL[family]]
    if plain.decoder.name == "transformer":  # its embedding is as wide as its states
        pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")
        return [change for change in changes if "embedding_size" not in change]
    return changes


@pytest.mark.parametrize("recipe", sorted(set(recipe_names()) - FROM_ELSEWHERE))
def test_thirty_steps(recipe: str, captions: Path, tmp_path: Path) -> None:
    content = plain(load_settings(recipe))
    content["training"]["batch_tokens"] = "none"
    settings = settings_from(override(content, small(recipe)))
    steps: list[dict[str, Any]] = []
    result = zentence.train(
        settings,
        captions / "train.txt",
        valid=[captions / "valid.txt"],
        out=tmp_path / "run",
        callbacks=[lambda event: steps.append(event) if event["event"] == "step" else None],
    )
    found = {f"loss at {event['tick']}": event["loss"] for event in steps}
    found |= {m.name: m.value for m in result.measurements if m.name in ("nll", "elbo_nll", "rate", "distortion")}
    recorded = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if os.environ.get("ZENTENCE_GOLDEN") == "write":
        recorded[recipe] = {name: round(value, 6) for name, value in found.items()}
        FIGURES.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    assert found == pytest.approx(recorded[recipe], rel=0.005, abs=0.005)

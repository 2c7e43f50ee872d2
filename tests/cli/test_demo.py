"""The demo, as it runs for a newcomer: minutes, so behind `make test-slow`."""

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_demo_shows_collapse_and_its_cure(zentence: Any, tmp_path: Path) -> None:
    shown = zentence("demo", "--out", tmp_path / "demo", "--json", timeout=1500).json
    source, language_model, plain, default = shown["table"]
    assert source["kind"] == language_model["kind"] == "exact"
    assert plain["kind"] == default["kind"] == "upper_bound"
    assert all(source["nll"] < row["nll"] for row in (language_model, plain, default))
    assert plain["active_units"] == 0 and plain["rate"] < 0.1
    assert default["active_units"] >= 0.9 * default["units"] and default["mutual_information"] > 2.0
    assert default["nll"] < language_model["nll"] + 1.5
    assert len(shown["samples"]) == 5 and len(set(shown["samples"])) > 1

"""The notebook runs from top to bottom and shows what its text says."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "collapse.ipynb"


def test_the_notebook_collapses_a_vae_and_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mpl.use("Agg")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    plain, free = ({name: m.value for name, m in names[which].items()} for which in ("plain", "free"))
    assert plain["rate"] < 0.2 and plain["active_units"] == 0 and abs(plain["shuffled_code_gap"]) < 0.2
    assert free["rate"] > 3.5 and free["active_units"] >= 15 and free["mutual_information"] > 2.0
    assert free["shuffled_code_gap"] > 1.0
    assert plain["source_nll"] < min(plain["iw_nll"], free["iw_nll"])
    mpl.pyplot.close("all")
    lines = capsys.readouterr().out.split("five samples")
    dead, alive = (set(" ".join(part.splitlines()[1:6]).split()) for part in lines[1:3])
    assert len(dead) < len(alive)  # different words in five greedy samples

from pathlib import Path
from typing import Any

import pytest

from zentence.settings import load_settings, settings_from


def test_list_names_papers_rows_and_minutes(preloaded: Any) -> None:
    text = preloaded("reproduce", "--list").out
    for word in ("sentence-mim", "effective-estimation", "better-exploiting", "fix-4", "estimates", "quick 7"):
        assert word in text
    found = preloaded("reproduce", "surprisingly-effective-fix", "--list", "--json").json
    assert [entry["paper"] for entry in found] == ["surprisingly-effective-fix"]
    rows = {row["row"]: row for row in found[0]["rows"]}
    assert rows["fix-4"]["corpora"] == ["ptb"]
    assert rows["iwae"]["minutes"]["quick"] > rows["vae"]["minutes"]["quick"]


def test_show_prints_complete_settings(preloaded: Any) -> None:
    name = "surprisingly-effective-fix/fix-4"
    found = preloaded("reproduce", name, "--show", "--variant", "faithful", "--json").json
    settings = settings_from(found)
    assert settings.optimizer == load_settings(name).optimizer
    text = preloaded("reproduce", name, "--show").out
    assert "total_target = 4.0" in text and "[optimizer]" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give a paper, or --list"),
        (["surprisingly-effective"], "Did you mean 'surprisingly-effective-fix'"),
        (["sentence-mim", "--rows", "smim-17"], "has no row 'smim-17'. Did you mean"),
        (["sentence-mim", "--data", "/nowhere"], "There is no data folder /nowhere"),
        (["sentence-mim", "--split", "train"], "choose valid or test"),
        (["sentence-mim", "--show"], "--show needs paper/row"),
        (["sentence-mim/smim-16", "--show", "--variant", "slow"], "has no variant 'slow'"),
    ],
)
def test_mistakes_are_one_line(preloaded: Any, arguments: list[str], message: str) -> None:
    found = preloaded("reproduce", *arguments, expect=2)
    assert message in found.err
    assert found.err.count("\n") == 1 and "Traceback" not in found.err


def test_missing_data_is_one_line(preloaded: Any, tmp_path: Path) -> None:
    found = preloaded("reproduce", "sentence-mim", "--rows", "smim-16", "--data", tmp_path, cwd=tmp_path, expect=2)
    assert "Missing data" in found.err and found.err.count("\n") == 1
    assert not list(tmp_path.iterdir())

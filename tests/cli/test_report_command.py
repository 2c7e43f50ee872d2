"""`zentence report` by its entry point."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest


def test_report(preloaded: Any, model: Path, language_model: Path, tmp_path: Path) -> None:
    before = (model / "results.json").read_bytes()
    done = preloaded("report", model, language_model, "--json", cwd=tmp_path)
    assert set(done.json) == {"report", "images", "verdict"}
    assert done.json["report"] == "report.html"
    assert set(done.json["verdict"]) == {model.name, language_model.name}
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all((tmp_path / image).is_file() for image in done.json["images"])
    assert html.count("<svg") == len(done.json["images"]) > 10
    assert "New sentences" in html
    assert "zentence evaluate" in html or "To fill this in" not in html
    assert (model / "results.json").read_bytes() == before


def test_text_for_people(zentence: Any, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "my page.html"
    done = zentence("report", model, "--out", out, "--no-examples")
    assert done.out.startswith(f"{model.name}: ")
    assert str(out) in done.out
    again = zentence("report", model, "--out", out, "--no-examples", expect=2)
    assert again.err == f"zentence: {out} exists: choose another --out, or pass --overwrite\n"
    zentence("report", model, "--out", out, "--no-examples", "--overwrite")


def test_figures_without_a_picture(preloaded: Any, model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(model, run)
    (run / "log.jsonl").unlink()
    rows = [row for row in json.loads((run / "results.json").read_text(encoding="utf-8")) if row["name"] == "elbo_nll"]
    (run / "results.json").write_text(json.dumps([{**row, "details": {}} for row in rows]), encoding="utf-8")
    shutil.rmtree(run / "sentences", ignore_errors=True)
    done = preloaded("report", run, "--no-examples", cwd=tmp_path)
    assert done.out.endswith("The report is in report.html.\n")
    assert not (tmp_path / "report-images").exists()


def test_labelled_text(preloaded: Any, model: Path, captions: Path, tmp_path: Path) -> None:
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()
    text = tmp_path / "labelled.txt"
    text.write_text("".join(f"kind{n % 2}\t{line}\n" for n, line in enumerate(lines)), encoding="utf-8")
    preloaded("report", model, "--text", text, "--labels", "yes", "--out", tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "coloured by its label" in html
    assert ">kind0</text>" in html and ">kind1</text>" in html
    options = ["--text", captions / "valid.txt", "--labels", "yes", "--out", tmp_path / "b.html"]
    plain = preloaded("report", model, *options, expect=2)
    assert "no label" in plain.err
    assert not (tmp_path / "b.html").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("nothing", "No such model directory"),
        ("settings", "not a model directory"),
        ("results", "zentence evaluate"),
        ("damaged", "results.json"),
        ("empty", "zentence evaluate"),
        ("labels", "--labels maybe: choose one of auto, yes, no"),
        ("text", "No such file"),
        ("folder", "No such folder"),
        ("directory", "is a directory"),
    ],
)
def test_bad_input_is_one_line(preloaded: Any, model: Path, tmp_path: Path, change: str, words: str) -> None:
    run = tmp_path / "run"
    options: list[object] = ["--out", tmp_path / "page.html"]
    if change != "nothing":
        shutil.copytree(model, run)
    if change in ("settings", "results"):
        (run / {"settings": "settings.toml", "results": "results.json"}[change]).unlink()
    elif change in ("damaged", "empty"):
        (run / "results.json").write_text("{" if change == "damaged" else json.dumps([]))
    elif change == "labels":
        options += ["--labels", "maybe"]
    elif change == "text":
        options += ["--text", tmp_path / "absent.txt"]
    elif change == "folder":
        options = ["--out", tmp_path / "absent" / "page.html"]
    elif change == "directory":
        options = ["--out", tmp_path]
    done = preloaded("report", run, *options, expect=2)
    assert done.out == ""
    assert done.err.startswith("zentence: ")
    assert done.err.count("\n") == 1
    assert words in done.err
    assert not (tmp_path / "page.html").exists()


def test_help(zentence: Any) -> None:
    shown = zentence("report", "--help")
    assert shown.out.startswith("Usage: zentence report")
    for option in ("--out", "--text", "--labels", "--no-examples", "--overwrite", "--seed", "--json"):
        assert option in shown.out

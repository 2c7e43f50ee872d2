"""`understand`, `glue` and maps side by side, by their entry point."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def labelled(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sentences labelled by whether they are among the longer half, plainly and as GLUE tasks."""
    folder = tmp_path_factory.mktemp("understanding")
    sentences = (captions / "train.txt").read_text(encoding="utf-8").splitlines()
    middle = sorted(len(text.split()) for text in sentences)[len(sentences) // 2]
    is_long = [len(text.split()) > middle for text in sentences]
    rows = [f"{'long' if long else 'short'}\t{text}\n" for text, long in zip(sentences, is_long, strict=True)]
    (folder / "train.tsv").write_text("".join(rows[:300]), encoding="utf-8")
    (folder / "test.tsv").write_text("".join(rows[300:]), encoding="utf-8")
    (folder / "one.tsv").write_text("".join(row for row in rows if row.startswith("long")), encoding="utf-8")
    sst = [f"{text}\t{int(long)}\n" for text, long in zip(sentences, is_long, strict=True)]
    rte = [
        f"{i}\t{text}\t{sentences[i - 1]}\t{'' if long else 'not_'}entailment\n"
        for i, (text, long) in enumerate(zip(sentences, is_long, strict=True))
    ]
    for task, header, lines in (
        ("SST-2", "sentence\tlabel\n", sst),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n", rte),
    ):
        (folder / "glue" / task).mkdir(parents=True)
        (folder / "glue" / task / "train.tsv").write_text(header + "".join(lines[:300]), encoding="utf-8")
        (folder / "glue" / task / "dev.tsv").write_text(header + "".join(lines[300:]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def wider(zentence: Any, tiny: Any, files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with features enough to tell how long a sentence is."""
    folder = tmp_path_factory.mktemp("wider") / "model"
    options = tiny("default", decoder__tied="false", optimizer__learning_rate=0.02, encoder__hidden_size=48)
    zentence("train", *files, *options, "--out", folder, "--json")
    return folder


def refusal(shown: Any) -> str:
    assert shown.out == ""
    assert shown.err.startswith("zentence: ") and shown.err.count("\n") == 1
    return str(shown.err)


@pytest.mark.parametrize("command", ["understand", "glue"])
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded(command, "--help")
    assert shown.out.startswith(f"Usage: zentence {command}") and "--json" in shown.out and "--beside" in shown.out


def test_understand(preloaded: Any, model: Path, labelled: Path, tmp_path: Path) -> None:
    files = ["--train", labelled / "train.tsv", "--test", labelled / "test.tsv", "--per-class", "1,40", "--repeats", 2]
    options = ["--beside", "random", "--plot", tmp_path / "curve.png"]
    found = preloaded("understand", model, *files, *options, "--json").json
    assert (found["task"], found["classes"]) == ("understand", ["long", "short"])
    assert (found["train_sentences"], found["test_sentences"]) == (300, 60)
    rows = [(row["subject"], row["labels_per_class"], row["size"]) for row in found["results"]]
    sizes = {"code": 4, "encoder": rows[2][2], "random: code": 4, "random: encoder": rows[2][2]}
    assert rows == [(name, labels, size) for name, size in sizes.items() for labels in (1, 40)] and rows[2][2] > 4
    assert all(len(row["accuracy"]["runs"]) == 2 and row["scheme"] == "feature-based" for row in found["results"])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    text = preloaded("understand", model, *files, "--features", "code").out.splitlines()
    assert text[2].split()[:2] == ["code", "feature-based"] and text[3].startswith("TF-IDF of words")
    shown = preloaded("understand", model, *files, *options, expect=2)
    assert "curve.png exists: choose another --plot" in refusal(shown)


def test_understand_with_fine_tuning(preloaded: Any, model: Path, labelled: Path, tmp_path: Path) -> None:
    files = ["--train", labelled / "train.tsv", "--test", labelled / "test.tsv", "--per-class", "20", "--repeats", 2]
    options = ["--features", "encoder", "--finetune", "--out", tmp_path / "runs", "--max-steps", 200, "--json"]
    options += ["--learning-rate", 0.01]
    shown = preloaded("understand", model, *files, *options)
    frozen, tuned = shown.json["results"]
    assert (frozen["scheme"], tuned["scheme"]) == ("feature-based", "fine-tuned")
    assert len(tuned["accuracy"]["runs"]) == 2 and tuned["accuracy"]["mean"] > 0.6
    assert "exists: go on with --resume" in refusal(preloaded("understand", model, *files, *options, expect=2))
    assert preloaded("understand", model, *files, *options, "--resume").json == shown.json
    other = preloaded("understand", model, *files, *options, "--resume", "--batch", 7, expect=2)
    assert (
        other.out == "" and "is the result of another run" in other.err.splitlines()[-1]
    )  # after a bar, on slow machines


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ("gone.tsv", [], "No such file"),
        ("one.tsv", [], "has one class only ('long')"),
        ("train.tsv", ["--per-class", 299], "299 labels a class were asked for; the smallest class has"),
        ("train.tsv", ["--per-class", "few"], "--per-class few: write numbers with commas"),
        ("train.tsv", ["--per-class", 0], "at least 1 label a class"),
        ("train.tsv", ["--features", "cls"], "--features cls: choose one of code, encoder, both"),
        ("train.tsv", ["--beside", "gone"], "No such model directory: gone"),
        ("train.tsv", ["--beside", "pretrained"], "began without pre-trained weights"),
        ("train.tsv", ["--finetune"], "--finetune needs --out DIR"),
        ("train.tsv", ["--resume"], "--resume is of use with --finetune only"),
        ("train.tsv", ["--finetune", "--out", "runs", "--learning-rate", -1], "greater than 0"),
    ],
)
def test_bad_use(
    preloaded: Any, model: Path, labelled: Path, tmp_path: Path, train: str, options: list[object], message: str
) -> None:
    files = ["--train", labelled / train, "--test", labelled / "test.tsv", "--repeats", 1]
    shown = preloaded("understand", model, *files, *options, cwd=tmp_path, expect=2)
    assert message in refusal(shown)


def test_glue(preloaded: Any, model: Path, wider: Path, labelled: Path, tmp_path: Path) -> None:
    found = preloaded("glue", wider, "--data", labelled / "glue", "--features", "encoder", "--json").json
    rows = found["results"]
    assert [(row["task"], row["split"], row["subject"]) for row in rows] == [
        ("SST-2", "dev", "encoder"),
        ("RTE", "dev", "encoder"),
    ]
    assert all(row["trained"] == 300 and row["tested"] == 60 for row in rows)
    assert rows[0]["scores"]["accuracy"]["value"] > 0.8 > found["baselines"][0]["scores"]["accuracy"]
    assert found["averages"][0]["mean"] == pytest.approx(sum(row["scores"]["accuracy"]["value"] for row in rows) / 2)
    tuned = ["--finetune", "--out", tmp_path / "runs", "--learning-rates", "0.01,0.001", "--epochs", 2]
    command = ["glue", model, "--data", labelled / "glue", "--tasks", "sst2", "--features", "code", *tuned]
    text = preloaded(*command).out.splitlines()
    assert text[0].startswith("SST-2 dev: 300 training and 60 dev examples")
    assert [line.split()[:2] for line in text[2:4]] == [["code", "feature-based"], ["code", "fine-tuned"]]
    again = preloaded(*command, "--resume", "--json").json["results"][1]
    assert set(again["chosen"]["held_out"]) == {"0.01", "0.001"}
    assert f"{again['scores']['accuracy']['value']:.3f}" in text[3]


def test_bad_use_of_glue(preloaded: Any, model: Path, language_model: Path, labelled: Path, tmp_path: Path) -> None:
    def refused(*words: object, which: Path = model) -> str:
        return refusal(preloaded("glue", which, *words, cwd=tmp_path, expect=2))

    data = ["--data", labelled / "glue"]
    assert "lacks CoLA/train.tsv, CoLA/dev.tsv: download them" in refused(*data, "--tasks", "CoLA,RTE")
    assert "Unknown GLUE task 'RTT'. Did you mean 'RTE'?" in refused(*data, "--tasks", "RTT")
    assert "There is no GLUE folder nowhere" in refused("--data", "nowhere")
    assert "--learning-rates fast: write numbers above 0" in refused(*data, "--learning-rates", "fast")
    assert "the model is a language model" in refused(*data, which=language_model)
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n")
    (tmp_path / "RTE" / "train.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n")
    assert "train.tsv has one class only" in refused("--data", ".")


def test_maps_side_by_side(preloaded: Any, model: Path, labelled: Path, tmp_path: Path) -> None:
    command = ["map", model, "--file", labelled / "test.tsv", "--out", tmp_path / "map", "--method", "pca"]
    document = preloaded(*command, "--features", "both", "--beside", "random", "--json").json
    assert document["panels"] == ["code", "encoder", "random: code", "random: encoder"]
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert "random: encoder: principal components" in page
    shown = preloaded(*command, "--features", "all", "--overwrite", expect=2)
    assert "--features all: choose one of code, encoder, both" in refusal(shown)

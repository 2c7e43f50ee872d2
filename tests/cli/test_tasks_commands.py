"""`classify`, `rank` and `answer` by their entry point, and the recipe that trains models for the last two."""

from pathlib import Path
from typing import Any

import pytest

from zentence.build import complete
from zentence.settings import load_settings

QUESTIONS = """question\tanswer\tlabel
Is a man walking\ta man is walking .\t1
Is a man walking\ta woman\t0
Who sits\tnobody\t0
Who sits\ttwo dogs .\t0
Is it a dog?\ta dog .\t1
Is it a dog?\tno\t0
"""


@pytest.fixture(scope="module")
def labelled(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv and test.tsv: labelled by whether a sentence is among the longer half."""
    folder = tmp_path_factory.mktemp("labelled")
    sentences = (captions / "train.txt").read_text(encoding="utf-8").splitlines()
    middle = sorted(len(text.split()) for text in sentences)[len(sentences) // 2]
    rows = [f"{'long' if len(text.split()) > middle else 'short'}\t{text}\n" for text in sentences]
    (folder / "train.tsv").write_text("".join(rows[:300]), encoding="utf-8")
    (folder / "test.tsv").write_text("".join(rows[300:]), encoding="utf-8")
    (folder / "qa.tsv").write_text(QUESTIONS, encoding="utf-8")
    (folder / "one.tsv").write_text("".join(row for row in rows if row.startswith("long")), encoding="utf-8")
    return folder


def refusal(shown: Any) -> str:
    assert shown.out == ""
    assert shown.err.startswith("zentence: ") and shown.err.count("\n") == 1
    return str(shown.err)


@pytest.mark.parametrize("command", ["classify", "rank", "answer"])
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded(command, "--help")
    assert shown.out.startswith(f"Usage: zentence {command}") and "--json" in shown.out


def test_classify(preloaded: Any, model: Path, labelled: Path, tmp_path: Path) -> None:
    files = ["--train", labelled / "train.tsv", "--test", labelled / "test.tsv"]
    options = ["--labels", "0,20", "--repeats", 2, "--classifier", "linear,gmm"]
    found = preloaded("classify", model, *files, *options, "--plot", tmp_path / "curve.png", "--json").json
    assert found["task"] == "classify" and found["classes"] == ["long", "short"]
    assert (found["train_sentences"], found["test_sentences"]) == (300, 60)
    rows = [(row["labels"], row["classifier"], row.get("matched_on")) for row in found["results"]]
    assert rows == [(0, "gmm", "test"), (20, "linear", None), (20, "gmm", "labels")]
    for row in found["results"]:
        accuracy = row["accuracy"]
        assert len(accuracy["runs"]) == 2
        assert accuracy["mean"] == pytest.approx(sum(accuracy["runs"]) / 2)
        assert accuracy["std"] == pytest.approx(abs(accuracy["runs"][0] - accuracy["runs"][1]) / 2**0.5)
    assert found["baselines"]["bag_of_words"][0]["labels"] == 20
    lines = (labelled / "test.tsv").read_text(encoding="utf-8").splitlines()
    majority = found["baselines"]["majority"]
    assert majority["accuracy"] == pytest.approx(sum(row.startswith(majority["class"]) for row in lines) / 60)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    again = preloaded("classify", model, *files, *options, "--plot", tmp_path / "curve.png", expect=2)
    assert "curve.png exists: choose another --plot, or pass --overwrite" in refusal(again)
    text = preloaded("classify", model, *files, *options, "--per-class").out.splitlines()
    assert "2 classes, 300 training and 60 test sentences" in text[0]
    assert [line.split()[:2] for line in text[2:5]] == [["0", "gmm"], ["20", "linear"], ["20", "gmm"]]
    assert "best matching with the test labels" in text[5]


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        ("gone.tsv", [], "No such file"),
        ("plain.txt", [], "line 1: no label: expected label<TAB>sentence"),
        ("one.tsv", [], "has one class only ('long')"),
        ("train.tsv", ["--labels", 301], "301 labels were asked for; the training text has 300 sentences"),
        ("train.tsv", ["--labels", 299, "--per-class"], "299 labels a class were asked for; the smallest class has"),
        ("train.tsv", ["--labels", "many"], "--labels many: write numbers with commas"),
        ("train.tsv", ["--plot", "curve.txt"], "--plot curve.txt: the name must end in .png, .svg, .pdf"),
        ("train.tsv", ["--plot", "/nowhere/curve.png"], "there is no folder /nowhere"),
        ("train.tsv", ["--classifier", "liner"], "Unknown classifier 'liner'. Did you mean 'linear'?"),
    ],
)
def test_bad_classification(
    preloaded: Any, model: Path, labelled: Path, captions: Path, train: str, options: list[object], message: str
) -> None:
    file = captions / "train.txt" if train == "plain.txt" else labelled / train
    shown = preloaded("classify", model, "--train", file, "--test", labelled / "test.tsv", *options, expect=2)
    assert message in refusal(shown)


def test_rank(preloaded: Any, model: Path, labelled: Path) -> None:
    shown = preloaded("rank", model, "--file", labelled / "qa.tsv", "--json")
    found = shown.json
    assert found["questions"] == 2 and found["skipped"] == 1
    assert "1 questions have no right answer (label 1) and were skipped" in shown.err
    assert set(found["scores"]) == {"paper", "cosine", "log_q", "tfidf"}
    for figures in found["scores"].values():
        assert set(figures) == {"p_at_1", "mrr"}
        assert 0.0 <= figures["p_at_1"] <= figures["mrr"] <= 1.0
    assert found["scores"]["tfidf"] == {"p_at_1": 1.0, "mrr": 1.0}
    assert found["chance"] == {"p_at_1": 0.5, "mrr": 0.75}
    batched = preloaded("rank", model, "--file", labelled / "qa.tsv", "--batch", 1, "--json").json
    assert batched == found
    text = preloaded("rank", model, "--file", labelled / "qa.tsv", "--repeats", 3).out
    assert "P@1" in text and "MRR" in text and "TF-IDF" in text and "random order" in text


def test_bad_ranking(preloaded: Any, model: Path, language_model: Path, labelled: Path, tmp_path: Path) -> None:
    table = tmp_path / "qa.tsv"
    table.write_text(QUESTIONS.partition("\n")[2], encoding="utf-8")
    assert "has no column 'question'" in refusal(preloaded("rank", model, "--file", table, expect=2))
    table.write_text("question\tanswer\tlabel\nwho\tme\t0\n", encoding="utf-8")
    assert "No question has a right answer" in refusal(preloaded("rank", model, "--file", table, expect=2))
    assert "No such file" in refusal(preloaded("rank", model, "--file", tmp_path / "gone.tsv", expect=2))
    shown = preloaded("rank", language_model, "--file", labelled / "qa.tsv", expect=2)
    assert "language model" in refusal(shown)


def test_answer(preloaded: Any, model: Path, language_model: Path) -> None:
    found = preloaded("answer", model, "Is a man walking?", "--seed", 4, "--json").json
    assert found["question"] == "Is a man walking?" and found["seed"] == 4
    assert list(found["answers"]) == ["short", "medium", "long"]
    text = preloaded("answer", model, "Is a man walking?", "--seed", 4).out.splitlines()
    assert [line.split()[0] for line in text] == ["short", "medium", "long"]
    assert "The question is empty" in refusal(preloaded("answer", model, " ", expect=2))
    assert "language model" in refusal(preloaded("answer", language_model, "who", expect=2))


def test_the_recipe_learns_what_beginnings_tell_of_codes_and_trains(
    preloaded: Any, tiny: Any, files: list[str], tmp_path: Path
) -> None:
    settings = complete(load_settings("question-answering"))
    (stage,) = settings.stages
    assert (stage.objective.name, stage.objective.options["objective"]["name"]) == ("foresight", "mim")
    options = tiny("question-answering", training__max_steps=2)
    rows = preloaded("train", *files, *options, "--out", tmp_path / "model", "--json").json
    assert {"iw_nll", "rate", "distortion"} <= {row["name"] for row in rows}
    assert preloaded("answer", tmp_path / "model", "who", "--json").json["question"] == "who"

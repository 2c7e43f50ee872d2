"""`zentence dialog` by its entry point."""

from pathlib import Path
from typing import Any

import pytest

NAMES = ("anna", "bob", "carl", "dora", "emil")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk")
    lines = [f"hello , i am {name} __eou__ hello {name} ! __eou__ how are you ? __eou__ well __eou__" for name in NAMES]
    (folder / "train.txt").write_text("\n".join(lines * 12), encoding="utf-8")
    (folder / "valid.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "pairs.tsv").write_text("hello __eou__ hello\thow are you ?\nwell\tgood .\n", encoding="utf-8")
    style = [f"pray , good {NAMES[n % 5]} , be number {n}" for n in range(300)]
    (folder / "style.txt").write_text("\n".join(style), encoding="utf-8")
    (folder / "ten.txt").write_text("\n".join(style[:10]), encoding="utf-8")
    (folder / "alone.txt").write_text("hello __eou__\n", encoding="utf-8")
    (folder / "empty.tsv").write_text("\thello\n", encoding="utf-8")
    return folder


def options(texts: Path, **changes: object) -> list[object]:
    settings: dict[str, object] = {
        "encoder.embedding_size": 8,
        "encoder.hidden_size": 12,
        "posterior.size": 4,
        "decoder.embedding_size": 8,
        "decoder.hidden_size": 12,
        "dialog.batch_sentences": 16,
        "fit.log_every": 5,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["--file", texts / "train.txt", "--valid", texts / "valid.txt", "--steps", 10, "--threads", 1, *words]


@pytest.fixture(scope="module")
def models(preloaded: Any, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dialog")
    further: dict[str, list[object]] = {
        "fusion": [],
        "s2s": ["--objective", "s2s"],
        "styled": ["--style", texts / "style.txt", "--set", "dialog.held_apart=0.4"],
    }
    for name, words in further.items():
        shown = preloaded("dialog", "train", *options(texts), *words, "--out", folder / name, "--json")
        assert shown.json["objective"] == ("s2s" if name == "s2s" else "fusion")
        assert shown.json["figures"]["distortion"] > 0.0
        assert ("pull" in shown.json["figures"]) == (name != "s2s")
        assert (shown.json["judges"] is not None) == (name == "styled")
    return {name: folder / name for name in further}


def refusal(shown: Any) -> str:
    assert shown.out == ""
    assert shown.err.startswith("zentence: ") and shown.err.count("\n") == 1
    return str(shown.err)


@pytest.mark.parametrize("command", ["train", "respond", "chat", "evaluate"])
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded("dialog", command, "--help")
    assert shown.out.startswith(f"Usage: zentence dialog {command}") and "--json" in shown.out


def test_train(preloaded: Any, texts: Path, models: dict[str, Path], tmp_path: Path) -> None:
    shown = preloaded("dialog", "train", *options(texts), "--out", tmp_path / "model")
    assert "response from its context, nats" in shown.out and "Next: zentence dialog respond" in shown.out
    same = tmp_path / "model" / "model.safetensors"
    assert same.read_bytes() == (models["fusion"] / "model.safetensors").read_bytes()
    again = preloaded("dialog", "train", *options(texts), "--out", tmp_path / "model", expect=2)
    assert "go on with --resume, start anew with --overwrite" in refusal(again)
    resumed = preloaded("dialog", "train", *options(texts), "--out", tmp_path / "model", "--resume")
    assert "This run is finished" in resumed.err
    start = models["fusion"] / "space"
    words = ["--file", texts / "pairs.tsv", "--valid", texts / "pairs.tsv", "--steps", 2, "--out", tmp_path / "second"]
    found = preloaded("dialog", "train", start, *words, "--json")
    assert found.json["folder"].endswith("second") and "is the same text as" in found.err
    shown = preloaded("dialog", "train", start, *words, "--recipe", "default", expect=2)
    assert "--recipe and settings of a recipe are for new models" in refusal(shown)


def test_respond(preloaded: Any, models: dict[str, Path]) -> None:
    context = "hello , i am bob __eou__ hello bob !"
    found = preloaded(
        "dialog", "respond", models["fusion"], context, "-n", 3, "--radius", 1, "--seed", 2, "--json"
    ).json
    assert found["context"] == ["hello , i am bob", "hello bob !"] and len(found["responses"]) == 3
    assert (found["radius"], found["seed"], found["method"], found["style"]) == (1.0, 2, "sample", None)
    text = preloaded("dialog", "respond", models["fusion"], context, "-n", 3, "--radius", 1, "--seed", 2).out
    assert text.splitlines() == found["responses"]
    found = preloaded("dialog", "respond", models["s2s"], context, "--json").json
    assert (found["radius"], found["method"], len(found["responses"])) == (0.0, "sample", 10)
    found = preloaded("dialog", "respond", models["styled"], context, "-n", 2, "--strength", 0.5, "--json").json
    assert found["strength"] == 0.5 and set(found["style"]) == {"neural", "ngram"}
    assert all(0.0 <= score <= 1.0 for scores in found["style"].values() for score in scores)


@pytest.mark.parametrize("stdin", ["hello\n\nhow are you ?\n", "hello\nhow are you ?"])
def test_chat(preloaded: Any, models: dict[str, Path], stdin: str) -> None:
    lines = preloaded("dialog", "chat", models["fusion"], stdin=stdin).out.splitlines()
    assert len(lines) == 2
    turns = preloaded("dialog", "chat", models["fusion"], "--json", stdin=stdin).json["turns"]
    assert turns[::2] == ["hello", "how are you ?"] and turns[1::2] == lines
    assert preloaded("dialog", "chat", models["fusion"], "--radius", 1, "--json", stdin="").json["turns"] == []


def test_evaluate(preloaded: Any, texts: Path, models: dict[str, Path]) -> None:
    words = ["--file", texts / "valid.txt", "-n", 2, "--limit", 6]
    shown = preloaded("dialog", "evaluate", models["fusion"], *words, "--beside", models["s2s"], "--json").json
    assert [(row["objective"], row["contexts"], row["responses"]) for row in shown["rows"]] == [
        ("fusion", 6, 2),
        ("s2s", 6, 2),
    ]
    assert [(row["method"], row["radius"]) for row in shown["rows"]] == [("sample", 0.5), ("sample", 0.0)]
    for row in shown["rows"]:
        assert row["precision"]["value"] <= row["f1"]["value"] <= row["recall"]["value"]
    expected = shown["rows"][1]["f1"]["value"] - shown["rows"][0]["f1"]["value"]
    assert shown["against_first"][0]["f1"] == pytest.approx(expected)
    assert len(shown["examples"]) == 3 and len(shown["examples"][0]["responses"]) == 2
    text = preloaded("dialog", "evaluate", models["fusion"], *words, "--beside", models["s2s"]).out
    assert "6 contexts, 2 responses each" in text and "F1 of s2s − F1 of fusion" in text and "said: " in text
    text = preloaded("dialog", "evaluate", models["styled"], *words, "--strength", "0,1").out
    assert "styled at 0" in text and "styled at 1" in text and "what was really said" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["respond", "fusion", " "], "The context is empty: give at least one turn"),
        (["respond", "fusion", " __eou__ "], "The context is empty: give at least one turn"),
        (["respond", "fusion", "hello", "--strength", 0.5], "This model has learnt no style"),
        (["respond", "fusion", "hello", "--method", "loud"], "--method loud: choose one of greedy, sample, beam"),
        (["respond", "styled", "hello", "--strength", 0.5, "--towards", "far"], "one of mean, nearest, not 'far'"),
        (["respond", "fusion", "hello", "--around", "corner"], "one of scatter, sphere, not 'corner'"),
        (["respond", "gone", "hello"], "No such directory"),
        (["evaluate", "fusion", "--file", "gone.txt"], "No such file: gone.txt"),
        (["evaluate", "styled", "--file", "valid.txt", "--strength", "much"], "write numbers from 0 to 1"),
        (["evaluate", "fusion", "--file", "valid.txt", "--strength", "0,1"], "This model has learnt no style"),
        (["evaluate", "fusion", "--file", "empty.tsv"], "empty.tsv, line 1: the context is empty"),
        (["train", "--file", "alone.txt"], "alone.txt has no response"),
        (["train", "--file", "gone.txt"], "No such file: gone.txt"),
        (["train", "--file", "train.txt", "--objective", "fuse"], "Setting 'dialog.objective' = 'fuse'"),
        (["train", "--file", "train.txt", "--set", "dialog.push=1"], "Unknown setting 'dialog.push'"),
        (["train", "--file", "train.txt", "--set", "fit.rate=1"], "Unknown setting 'fit.rate'"),
        (["train", "--file", "train.txt", "--recipe", "language-model"], "This recipe is a language model"),
        (["train", "--file", "train.txt", "--style", "style.txt", "--objective", "s2s"], "A style needs the objective"),
    ],
)
def test_bad_input(
    preloaded: Any, texts: Path, models: dict[str, Path], tmp_path: Path, words: list[object], message: str
) -> None:
    named = [words[0], models.get(str(words[1]), words[1]), *words[2:]]  # a model's name becomes its directory
    where = ["--out", tmp_path / "model"] if words[0] == "train" else []
    assert message in refusal(preloaded("dialog", *named, *where, cwd=texts, expect=2))


def test_a_style_of_ten_lines_warns(preloaded: Any, texts: Path, tmp_path: Path) -> None:
    words = [*options(texts), "--style", texts / "ten.txt", "--out", tmp_path / "model", "--json"]
    shown = preloaded("dialog", "train", *words)
    assert "has only 10 sentences: too few to learn a style from" in shown.err
    assert "no classifier of the style" in shown.err and shown.json["judges"] is None
    found = preloaded("dialog", "respond", tmp_path / "model", "hello", "-n", 2, "--strength", 1, "--json").json
    assert len(found["responses"]) == 2 and found["style"] is None

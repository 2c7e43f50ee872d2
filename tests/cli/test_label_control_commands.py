"""`label-control train`, `sample` and `evaluate` by their entry point."""

import json
from pathlib import Path
from typing import Any

import pytest

QUICK = [
    "--set",
    "gan.hidden_size=8",
    "--set",
    "gan.layers=1",
    "--set",
    "fit.validate_every=4",
    "--set",
    "fit.log_every=1",
]


@pytest.fixture(scope="module")
def labelled(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv and test.tsv: labelled by whether a sentence is among the longer half."""
    folder = tmp_path_factory.mktemp("labelled")
    sentences = (captions / "train.txt").read_text(encoding="utf-8").splitlines()
    middle = sorted(len(text.split()) for text in sentences)[len(sentences) // 2]
    rows = [f"{'long' if len(text.split()) > middle else 'short'}\t{text}\n" for text in sentences]
    (folder / "train.tsv").write_text("".join(rows[:300]), encoding="utf-8")
    (folder / "test.tsv").write_text("".join(rows[300:]), encoding="utf-8")
    (folder / "one.tsv").write_text("".join(row for row in rows if row.startswith("long")), encoding="utf-8")
    (folder / "plain.txt").write_text("\n".join(sentences[:20]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def control(preloaded: Any, model: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("controls") / "label-control"
    found = preloaded(
        "label-control",
        "train",
        model,
        "--file",
        labelled / "train.tsv",
        "--out",
        folder,
        "--steps",
        8,
        *QUICK,
        "--json",
    )
    assert found.json["steps"] == 8 and found.json["folder"] == str(folder)
    assert isinstance(found.json["criterion"], float) and not found.json["already_finished"]
    return folder


def refusal(shown: Any) -> str:
    assert shown.out == ""
    assert shown.err.startswith("zentence: ") and shown.err.count("\n") == 1
    return str(shown.err)


@pytest.mark.parametrize("command", ["train", "sample", "evaluate"])
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded("label-control", command, "--help")
    assert shown.out.startswith(f"Usage: zentence label-control {command}") and "--json" in shown.out


def test_what_training_leaves_behind(control: Path, model: Path, labelled: Path) -> None:
    assert {path.name for path in control.iterdir()} == {"fit.json", "checkpoints", "log.jsonl", "model.safetensors"}
    record = json.loads((control / "fit.json").read_text(encoding="utf-8"))
    assert record["name"] == "label-control" and record["fingerprint"]["labels"] == ["long", "short"]
    assert record["about"] == {"model": str(model.resolve()), "file": str((labelled / "train.tsv").resolve())}
    events = [json.loads(line) for line in (control / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert [event["tick"] for event in steps] == list(range(1, 9))
    terms = {"D_adversarial", "D_penalty", "D_classifier", "G_adversarial", "G_label"}
    assert all(terms <= event.keys() and all(event[name] != 0.0 for name in terms) for event in steps)


def test_going_on_and_starting_anew(preloaded: Any, model: Path, labelled: Path, control: Path, tmp_path: Path) -> None:
    command = ["label-control", "train", model, "--file", labelled / "train.tsv", *QUICK]
    again = preloaded(*command, "--out", control, "--steps", 8, expect=2)
    assert "exists: go on with --resume, start anew with --overwrite" in refusal(again)
    finished = preloaded(*command, "--out", control, "--steps", 8, "--resume")
    assert "This run is finished. For more: --resume --steps N" in finished.out
    other = preloaded(*command, "--out", control, "--steps", 8, "--resume", "--on", "features", expect=2)
    assert "--resume with changed fingerprint" in refusal(other)
    occupied = preloaded(*command, "--out", model, "--overwrite", expect=2)
    assert "holds a model of `zentence train`: choose another --out" in refusal(occupied)
    shown = preloaded(*command, "--out", tmp_path / "new", "--steps", 8)
    assert "stage label-control 1/1" in shown.err and "criterion" in shown.err
    assert (tmp_path / "new" / "model.safetensors").read_bytes() == (control / "model.safetensors").read_bytes()
    preloaded(*command, "--out", tmp_path / "new", "--steps", 9, "--resume", "--quiet")


def test_sample(preloaded: Any, control: Path) -> None:
    command = ["label-control", "sample", control, "--label", "long"]
    lines = preloaded(*command, "-n", 5).out.splitlines()
    assert len(lines) == 5
    assert preloaded(*command, "-n", 3).out.splitlines() == lines[:3]
    found = preloaded(*command, "--label", "short", "-n", 2, "--json").json
    assert [row["label"] for row in found["sentences"]] == ["long", "long", "short", "short"]
    assert [row["text"] for row in found["sentences"]][:2] == lines[:2]
    assert found["source"] == "gan" and found["method"] == "sample"
    gaussian = preloaded(*command, "-n", 5, "--gaussian", "--method", "greedy", "--json").json
    assert gaussian["source"] == "gaussian" and len(gaussian["sentences"]) == 5


def test_a_model_directory_stands_for_its_label_control(
    preloaded: Any, model: Path, labelled: Path, tmp_path: Path, trained: Any
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    missing = preloaded("label-control", "sample", copy, "--label", "long", expect=2)
    assert f"{copy} has no label control: zentence label-control train {copy} --file FILE" in refusal(missing)
    preloaded("label-control", "train", copy, "--file", labelled / "train.tsv", "--steps", 2, *QUICK)
    assert len(preloaded("label-control", "sample", copy, "--label", "long", "-n", 2).out.splitlines()) == 2
    moved = tmp_path / "moved"
    copy.rename(moved)
    gone = preloaded("label-control", "sample", moved / "label-control", "--label", "long", expect=2)
    assert "which is not there: say where with --model" in refusal(gone)
    preloaded("label-control", "sample", moved / "label-control", "--label", "long", "--model", moved)
    language_model = trained("language-model")[0]
    other = preloaded(
        "label-control", "sample", moved / "label-control", "--label", "long", "--model", language_model, expect=2
    )
    assert "was trained with other weights" in refusal(other)


def test_evaluate(preloaded: Any, model: Path, labelled: Path, control: Path, tmp_path: Path) -> None:
    features = tmp_path / "features"
    train = ["label-control", "train", model, "--file", labelled / "train.tsv", "--steps", 2, *QUICK]
    preloaded(*train, "--on", "features", "--out", features)
    command = ["label-control", "evaluate", control, "--file", labelled / "test.tsv", "-n", 20]
    found = preloaded(*command, "--beside", features, "--json").json
    besides = [f"{kind} on features of {model.name}" for kind in ("GAN", "Gaussians")]
    assert list(found["rows"]) == ["real text", "real text, decoded", "GAN on codes", "Gaussians on codes", *besides]
    assert (found["each"], found["references"], found["seed"]) == (20, 60, 0)
    for row in found["rows"].values():
        assert 0.0 <= row["accuracy"] <= 1.0 and 0.0 < row["bleu"] <= 1.0 and 0.0 < row["self_bleu"] <= 1.0
        assert row["g_score"] == pytest.approx((row["accuracy"] * row["bleu"]) ** 0.5)
        assert {label: len(texts) for label, texts in row["sentences"].items()} == {"long": 10, "short": 10}
    lines = preloaded(*command).out.splitlines()
    assert lines[0].startswith("oracle: ") and lines[1].startswith("20 sentences of each label (long, short)")
    assert lines[2].split() == ["accuracy", "BLEU", "G-score", "self-BLEU", "distinct"]
    assert [line.split("  ")[0] for line in lines[3:]] == list(found["rows"])[:4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "MODEL", "--file", "one.tsv"], "one class only ('long'): label control needs two labels"),
        (["train", "MODEL", "--file", "gone.tsv"], "No such file"),
        (["train", "MODEL", "--file", "plain.txt"], "line 1: no label: expected label<TAB>sentence"),
        (["train", "LM", "--file", "train.tsv"], "This model is a language model: it has no codes"),
        (["train", "MODEL", "--file", "train.tsv", "--on", "words"], "--on words: choose one of codes, features"),
        (["train", "MODEL", "--file", "train.tsv", "--set", "gan.loss=x"], "Setting 'gan.loss' = 'x'"),
        (["sample", "CONTROL", "--label", "lang"], "Label 'lang' was never seen in training. Did you mean 'long'?"),
        (["sample", "CONTROL", "--label", "long", "--method", "x"], "--method x: choose one of"),
        (["sample", "nowhere", "--label", "long"], "No such directory: nowhere"),
        (["sample", "CORPUS", "--label", "long"], "holds no label-control: train one with"),
        (["evaluate", "CONTROL", "--file", "gone.tsv"], "No such file"),
        (["evaluate", "CONTROL", "--file", "plain.txt"], "no label: expected label<TAB>sentence"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    preloaded: Any,
    model: Path,
    language_model: Path,
    control: Path,
    labelled: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    places = {"MODEL": model, "LM": language_model, "CONTROL": control, "CORPUS": labelled}
    given = [places.get(word, labelled / word if word.endswith((".tsv", ".txt")) else word) for word in arguments]
    out = ["--out", tmp_path / "out", *QUICK] if arguments[0] == "train" else []
    assert message in refusal(preloaded("label-control", *given, *out, expect=2))
    assert not (tmp_path / "out").exists()

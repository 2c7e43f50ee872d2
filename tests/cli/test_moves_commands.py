"""The commands that move in a model's space, by their entry point: text, JSON, and mistakes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ["reconstruct", "interpolate", "analogy", "edit", "traverse", "export", "publish"]
WRITING = ["sample", *COMMANDS[:5]]
WORDS = ["--method", "--temperature", "--top-k", "--top-p", "--beam", "--max-words", "--forbid-unk", "--seed"]


@pytest.fixture(scope="module")
def lines(captions: Path) -> list[str]:
    return (captions / "test.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def happy_and_sad(captions: Path, lines: list[str], tmp_path: Path) -> list[object]:
    """Options of `edit`: the corpus's first sentences, less its last ones."""
    for name, part in (("happy", lines[:8]), ("sad", lines[8:])):
        (tmp_path / f"{name}.txt").write_text("\n".join(part), encoding="utf-8")
    return ["--add", tmp_path / "happy.txt", "--subtract", tmp_path / "sad.txt"]


def refused(command: Any, *arguments: object) -> str:
    shown = command(*arguments, expect=2)
    assert shown.out == ""
    assert shown.err.startswith("zentence: ") and shown.err.count("\n") == 1
    return str(shown.err)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(preloaded: Any, command: str) -> None:
    shown = preloaded(command, "--help")
    assert shown.out.startswith(f"Usage: zentence {command} ") and "--json" in shown.out


@pytest.mark.parametrize("command", WRITING)
def test_every_writing_command_has_the_same_options(preloaded: Any, command: str) -> None:
    shown = preloaded(command, "--help").out
    assert [option for option in WORDS if f"  {option} " not in shown] == []


def test_one_of_each_kind_in_a_process_of_its_own(zentence: Any, preloaded: Any, model: Path, lines: list[str]) -> None:
    command = ["analogy", model, *lines[:3], "--json"]
    assert zentence(*command).json == preloaded(*command).json
    assert "empty" in refused(zentence, "analogy", model, *lines[:2], " ")


def test_reconstruct_side_by_side(preloaded: Any, model: Path, lines: list[str], tmp_path: Path) -> None:
    a, b = lines[:2]
    options = ["--side-by-side", "--perturb", 4, "--seed", 3]
    rows = preloaded("reconstruct", model, a, b, *options, "--json").json
    assert [set(row) for row in rows] == [{"sentence", "reconstruction", "mean", "sample", "perturbed"}] * 2
    for name, way in (("mean", []), ("sample", ["--sample"]), ("perturbed", ["--perturb", 4])):
        alone = preloaded("reconstruct", model, a, b, *way, "--seed", 3, "--json").json
        assert [row["reconstruction"] for row in alone] == [row[name] for row in rows]
    shown = preloaded("reconstruct", model, a, b, *options).out.splitlines()
    assert [shown[0], shown[4]] == [a, b]
    assert [line.split("->")[1].strip() for line in shown[1:4]] == [rows[0][n] for n in ("mean", "sample", "perturbed")]
    assert "perturbed × 4" in shown[3]
    text = tmp_path / "two.txt"
    text.write_text(f"{a}\n{b}\n", encoding="utf-8")
    assert preloaded("reconstruct", model, "--file", text, *options).out.splitlines() == shown
    default = preloaded("reconstruct", model, a, "--side-by-side")
    assert "perturbed × 10" in default.out


def test_reconstruct_a_long_file_is_as_its_parts(preloaded: Any, model: Path, lines: list[str], tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("\n".join([*lines] * 60) + "\nxqzzy blorf\n", encoding="utf-8")  # more than are read at once
    shown = preloaded("reconstruct", model, "--file", text, "--max-words", 5)
    assert shown.err == "warning: no word of 'xqzzy blorf' is in this model's vocabulary\n"
    written = shown.out.splitlines()
    assert len(written) == 1201
    assert (
        written[:20]
        == written[1180:1200]
        == preloaded("reconstruct", model, "--file", "-", "--max-words", 5, stdin="\n".join(lines)).out.splitlines()
    )
    rows = preloaded("reconstruct", model, "--file", text, "--max-words", 5, "--json").json
    assert [row["reconstruction"] for row in rows] == written


@pytest.mark.parametrize("path", ["linear", "spherical"])
def test_interpolate_between_samples(preloaded: Any, model: Path, lines: list[str], path: str) -> None:
    command = ["interpolate", model, *lines[:2], "--sample", "--path", path, "--steps", 5, "--seed", 2]
    found = preloaded(*command, "--json").json
    ends = preloaded("reconstruct", model, *lines[:2], "--sample", "--seed", 2, "--json").json
    assert found["reconstructions"] == [row["reconstruction"] for row in ends]
    assert (found["between"], found["path"], found["at"]) == ("samples", path, [0.0, 0.25, 0.5, 0.75, 1.0])
    assert [found["sentences"][0], found["sentences"][-1]] == found["reconstructions"]
    assert preloaded(*command).out.splitlines() == found["sentences"]


def test_interpolate_between_prior_codes_without_repeats(preloaded: Any, model: Path) -> None:
    command = ["interpolate", model, "--prior", "--scale", 3, "--steps", 40, "--seed", 1, "--max-words", 6]
    whole = preloaded(*command, "--json").json
    assert (whole["a"], whole["b"], whole["between"], whole["scale"]) == (None, None, "prior", 3.0)
    assert (
        whole["reconstructions"]
        == preloaded("sample", model, "-n", 2, "--scale", 3, "--seed", 1, "--max-words", 6, "--json").json["sentences"]
    )
    short = preloaded(*command, "--drop-repeats", "--json").json
    distinct = [b for a, b in zip([None, *whole["sentences"]], whole["sentences"], strict=False) if a != b]
    assert short["sentences"] == distinct and len(distinct) < 40
    assert len(short["at"]) == len(distinct)
    assert short["reconstructions"] == whole["reconstructions"]


def test_analogy(preloaded: Any, model: Path, lines: list[str]) -> None:
    a, b, c = lines[:3]
    found = preloaded("analogy", model, a, b, c, "--strength", 2, "--json").json
    assert (found["a"], found["b"], found["c"], found["strength"]) == (a, b, c, 2.0)
    assert preloaded("analogy", model, a, b, c, "--strength", 2).out == found["sentence"] + "\n"
    ends = [row["reconstruction"] for row in preloaded("reconstruct", model, a, b, c, "--json").json]
    assert found["reconstructions"] == ends
    for command, expected in (([a, a, c], ends[2]), ([a, b, a], ends[1]), ([a, b, c, "--strength", 0], ends[2])):
        assert preloaded("analogy", model, *command, "--json").json["sentence"] == expected


def test_edit(preloaded: Any, model: Path, lines: list[str], happy_and_sad: list[object], tmp_path: Path) -> None:
    a, b = lines[:2]
    found = preloaded("edit", model, *happy_and_sad, "--strength", 20, a, b, "--json").json
    assert (found["direction"]["add"], found["direction"]["subtract"]) == (8, 12)
    assert found["direction"]["norm"] > 0
    assert [set(row) for row in found["edits"]] == [{"sentence", "reconstruction", "edited"}] * 2
    edited = [row["edited"] for row in found["edits"]]
    shown = preloaded("edit", model, *happy_and_sad, "--strength", 20, a, b)
    assert shown.out.splitlines() == [a, f"  -> {edited[0]}", b, f"  -> {edited[1]}"]
    text = tmp_path / "two.txt"
    text.write_text(f"{a}\n{b}\n", encoding="utf-8")
    from_file = preloaded("edit", model, *happy_and_sad, "--strength", 20, "--file", text)
    assert from_file.out.splitlines() == edited
    idle = preloaded("edit", model, *happy_and_sad, "--strength", 0, a, "--json").json["edits"]
    assert idle[0]["edited"] == idle[0]["reconstruction"] == found["edits"][0]["reconstruction"]


def test_traverse(preloaded: Any, model: Path, captions: Path, lines: list[str], tmp_path: Path) -> None:
    command = ["traverse", model, lines[0], "--dimensions", 3, "--steps", 5, "--span", 2]
    found = preloaded(*command, "--json").json
    assert (found["rates_of"], found["rates_sentences"], found["rates_kind"]) == ("the validation text", 20, "exact")
    rates = [row["rate"] for row in found["dimensions"]]
    assert len(rates) == 3 and rates == sorted(rates, reverse=True)
    assert all(row["at"] == [-2.0, -1.0, 0.0, 1.0, 2.0] and len(row["sentences"]) == 5 for row in found["dimensions"])
    shown = preloaded(*command).out.splitlines()
    assert "the validation text (20 sentences)" in shown[0]
    assert len(shown) == 1 + 3 * 6
    assert [line.split("  ", 2)[2] for line in shown[2:7]] == found["dimensions"][0]["sentences"]
    named = preloaded(*command, "--rates", captions / "valid.txt", "--json").json
    assert named["dimensions"] == found["dimensions"] and named["rates_of"].endswith("valid.txt")
    every = preloaded("traverse", model, lines[0], "--dimensions", 99, "--steps", 2, "--json").json
    assert sorted(row["dimension"] for row in every["dimensions"]) == [0, 1, 2, 3]
    moved = shutil.copytree(model, tmp_path / "moved")
    settings = moved / "settings.toml"
    settings.write_text(settings.read_text(encoding="utf-8").replace(str(captions), "/gone"), encoding="utf-8")
    alone = preloaded("traverse", moved, lines[0], "--json")
    assert (alone.json["rates_of"], alone.json["rates_sentences"]) == ("the given sentence", 1)
    assert alone.err.startswith("warning: this model's validation text is not here")


def test_export(preloaded: Any, model: Path, lines: list[str], tmp_path: Path) -> None:
    found = preloaded("export", model, "--out", tmp_path / "shared", "--json").json
    assert set(found["files"]) == {"settings.toml", "tokenizer.json", "model.safetensors", "results.json", "README.md"}
    card = (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")
    results = json.loads((model / "results.json").read_text(encoding="utf-8"))
    assert all(f"| {row['name'].replace('_', chr(92) + '_')} |" in card for row in results)
    command = ["reconstruct", lines[0], "--json"]
    assert (
        preloaded(command[0], tmp_path / "shared", *command[1:]).json == preloaded(command[0], model, *command[1:]).json
    )
    assert "exists" in refused(preloaded, "export", model, "--out", tmp_path / "shared")
    again = preloaded("export", model, "--out", tmp_path / "shared", "--overwrite")
    assert "shared" in again.out
    assert "give a file with --split" in refused(preloaded, "evaluate", tmp_path / "shared")


def test_publish_refuses_what_is_no_name(preloaded: Any, model: Path) -> None:
    assert "write owner/name" in refused(preloaded, "publish", model, "no name")
    assert "write owner/name" in refused(preloaded, "publish", model, "a/b/c")


def test_long_sentences_are_cut_and_named(preloaded: Any, model: Path, lines: list[str], tmp_path: Path) -> None:
    limited = shutil.copytree(model, tmp_path / "limited")
    settings = limited / "settings.toml"
    whole = settings.read_text(encoding="utf-8")
    assert whole.count('max_words = "none"') == 1
    settings.write_text(whole.replace('max_words = "none"', "max_words = 4"), encoding="utf-8")
    first = " ".join(lines[0].split()[:4])
    shown = preloaded("reconstruct", limited, first, lines[0], lines[1], "--json")
    assert shown.err.startswith(f"warning: sentence 2 ({lines[0][:60]!r}) has {len(lines[0].split())} words: cut to 4")
    assert shown.err.count("\n") == 1
    assert shown.json[1]["reconstruction"] == shown.json[0]["reconstruction"]


def test_mistakes(
    preloaded: Any, model: Path, language_model: Path, lines: list[str], happy_and_sad: list[object], tmp_path: Path
) -> None:
    a, b, c = lines[:3]
    empty = tmp_path / "empty.txt"
    empty.write_text("\n", encoding="utf-8")
    cases: list[tuple[list[object], str]] = [
        (["reconstruct", model, a, "--sample", "--perturb", 2], "give one way"),
        (["reconstruct", model, a, "--perturb", -1], "Invalid value for '--perturb'"),
        (["reconstruct", model, a, "--perturb", "inf"], "finite number"),
        (["reconstruct", model, a, " "], "A sentence is empty"),
        (["reconstruct", model, a, "--file", empty], "one of the two"),
        (["interpolate", model, a], "Give two sentences, or --prior"),
        (["interpolate", model, a, b, "--prior"], "--prior draws both ends"),
        (["interpolate", model, a, b, "--path", "sperical"], "Did you mean 'spherical'?"),
        (["interpolate", model, a, b, "--steps", 1], "Invalid value for '--steps'"),
        (["interpolate", language_model, a, b], "it has no codes"),
        (["interpolate", language_model, "--prior"], "it has no codes"),
        (["analogy", model, a, b], "Missing argument"),
        (["analogy", model, a, b, c, "--strength", "nan"], "finite"),
        (["analogy", language_model, a, b, c], "it has no codes"),
        (["edit", model, a, "--add", tmp_path / "happy.txt"], "Missing option '--subtract'"),
        (["edit", model, *happy_and_sad], "Give sentences or --file"),
        (["edit", model, *happy_and_sad, a, "--strength", "inf"], "finite"),
        (["edit", model, "--add", empty, "--subtract", empty, a], "empty.txt is empty"),
        (["edit", model, "--add", tmp_path / "gone.txt", "--subtract", empty, a], "No such file"),
        (["edit", language_model, *happy_and_sad, a], "it has no codes"),
        (["traverse", model, ""], "A sentence is empty"),
        (["traverse", model, a, "--rates", tmp_path / "gone.txt"], "No such file"),
        (["traverse", language_model, a], "it has no codes"),
        (["traverse", model, a, "--method", "gredy"], "choose one of greedy, sample, beam"),
        (["export", tmp_path / "gone", "--out", tmp_path / "out"], "No such model directory"),
        (["export", model, "--out", model], "where this model was read from"),
    ]
    for command, message in cases:
        assert message in refused(preloaded, *command), command


def test_words_that_are_all_unknown_are_warned_of(preloaded: Any, model: Path, happy_and_sad: list[object]) -> None:
    for command in (
        ["analogy", model, "a man", "xqzzy", "a dog"],
        ["traverse", model, "xqzzy", "--steps", 2],
        ["edit", model, *happy_and_sad, "xqzzy"],
    ):
        assert preloaded(*command).err == "warning: no word of 'xqzzy' is in this model's vocabulary\n"


def test_forbidden_and_sampled_words(preloaded: Any, model: Path, lines: list[str]) -> None:
    common = ["--method", "sample", "--temperature", 50, "--max-words", 80]  # nearly uniform
    free = preloaded("sample", model, "-n", 200, *common, "--json").json
    assert free["scale"] == 1.0 and free["method"] == "sample"
    known = preloaded("sample", model, "-n", 200, *common, "--forbid-unk", "--json").json
    assert not any("<unk>" in text for text in known["sentences"])
    assert any("<unk>" in text for text in free["sentences"])
    two = [preloaded("interpolate", model, *lines[:2], *common, "--seed", seed).out for seed in (1, 1, 2)]
    assert two[0] == two[1] != two[2]
    beam = preloaded("reconstruct", model, lines[0], "--method", "beam", "--beam", 1).out
    assert beam == preloaded("reconstruct", model, lines[0]).out

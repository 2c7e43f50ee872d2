"""Mistakes of users: one line on standard error, exit code 2, nothing written and nothing lost."""

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest


def listing(*folders: Path) -> dict[str, Any]:
    """Return every file below some folders with its content."""
    found: dict[str, Any] = {}
    for folder in folders:
        for path in [folder, *sorted(folder.rglob("*"))]:
            found[str(path)] = path.read_bytes() if path.is_file() else None
    return found


class Refusal:
    """Runs a command that must be refused in one line, without a trace in a folder."""

    def __init__(self, command: Any, folder: Path) -> None:
        self.command, self.folder = command, folder

    def __call__(self, *arguments: object) -> str:
        before = listing(self.folder)
        shown = self.command(*arguments, cwd=self.folder, expect=2)
        assert listing(self.folder) == before
        assert shown.out == ""
        assert shown.err.startswith("zentence: ")
        assert shown.err.count("\n") == 1
        return shown.err


@pytest.fixture
def refused(preloaded: Any, tmp_path: Path) -> Refusal:
    return Refusal(preloaded, tmp_path)


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    """A trained model that a test may damage."""
    return Path(shutil.copytree(model, tmp_path / "model"))


BAD_TEXT = {
    "missing": (None, "No such file: bad.txt"),
    "empty": (b"", "bad.txt is empty"),
    "blank": (b" \n\n\t\n", "bad.txt is empty"),
    "binary": (b"a man .\n\x00\x01\x02\n", "bad.txt looks like a binary file (line 2)"),
    "not UTF-8": (b"a man .\na woman .\nfa\xe7ade .\n", "bad.txt, line 3: not UTF-8 (byte 0xe7)"),
    "damaged gzip": (gzip.compress(b"a man .\n" * 500)[:-20], "bad.txt is a damaged gzip file"),
}


@pytest.mark.parametrize("kind", BAD_TEXT)
@pytest.mark.parametrize("command", ["train bad.txt", "corpus stats bad.txt"])
def test_bad_text(refused: Refusal, kind: str, command: str) -> None:
    content, message = BAD_TEXT[kind]
    if content is not None:
        (refused.folder / "bad.txt").write_bytes(content)
    assert message in refused(*command.split())


def test_real_entry_point(zentence: Any, tmp_path: Path, copied: Path, files: list[str], tiny: Any) -> None:
    """One case of each kind in a process of its own; the others share what is imported."""
    refused = Refusal(zentence, tmp_path)
    assert "No such file: gone.txt" in refused("train", "gone.txt")
    assert "Did you mean 'max_words'?" in refused("train", *files, "--set", "corpus.max_word=3")
    assert "Did you mean 'train'?" in refused("trian")
    assert "start anew with --overwrite" in refused("train", *files, *tiny(), "--out", copied)
    (copied / "model.safetensors").unlink()
    assert "model.safetensors is missing" in refused("sample", copied)


def test_bad_text_for_a_model(refused: Refusal, model: Path) -> None:
    (refused.folder / "bad.txt").write_bytes(BAD_TEXT["not UTF-8"][0] or b"")
    for command in ("evaluate --split", "score --file", "reconstruct --file", "encode --out codes.npy --file"):
        name, *options = command.split()
        before = listing(model)
        assert "bad.txt, line 3: not UTF-8" in refused(name, model, *options, "bad.txt")
        assert listing(model) == before


def test_too_little_text(refused: Refusal) -> None:
    text = refused.folder / "text.txt"
    text.write_text("a man is walking .\n", encoding="utf-8")
    assert "Too few sentences to split" in refused("train", text)
    text.write_text("a man is walking .\n" * 50, encoding="utf-8")
    options = ["--set", "corpus.max_words=3", "--set", "corpus.long_sentences=drop"]
    assert "All training sentences are longer than max_words = 3" in refused("train", text, *options)
    assert "is a directory: give a text file" in refused("train", refused.folder)


BAD_SETTINGS = {
    "corpus.max_word=3": "Unknown setting 'corpus.max_word'. Did you mean 'max_words'?",
    "decoder.hiden_size=3": "Unknown setting 'decoder.hiden_size'. Did you mean 'hidden_size'?",
    "decoder.initial.embeding=0.1": "Unknown setting 'decoder.initial.embeding'. Did you mean 'embedding'?",
    "stages.0.epoch=3": "Unknown setting 'stages.0.epoch'. Did you mean 'epochs'?",
    "stages.0.objective.name=elb": "Unknown objective 'elb'. Did you mean 'elbo'?",
    "stages.0.objective.rate_rule.name=free_bit": "Unknown rate rule 'free_bit'. Did you mean 'free_bits'?",
    "stages.0.objective.rate_rule.weight=high": "objective.rate_rule.weight' = 'high': input should be a valid number",
    'stages.0.update={name="jiont"}': "Unknown update rule 'jiont'. Did you mean 'joint'?",
    "decoder.name=recurent": "Unknown decoder 'recurent'. Did you mean 'recurrent'?",
    "optimizer.schedule.name=cosin": "Unknown schedule 'cosin'. Did you mean 'cosine'?",
    "optimizer.learning_rate=-1": "'optimizer.learning_rate' = -1: input should be greater than 0",
    "optimizer.betas=[1.5, 0.9]": "'optimizer.betas.0' = 1.5: input should be less than 1",
    "stages.0.corruption.word_dropout=5": "corruption.word_dropout' = 5: input should be less than or equal to 1",
    "stages.0.epochs=inf": "'stages.0.epochs' = inf: input should be a finite number",
    "decoder.hidden_size=many": "'decoder.hidden_size' = 'many': input should be a valid integer",
    "decoder.cell=lsmt": "'decoder.cell' = 'lsmt': input should be 'lstm' or 'gru'",
    "training.seed=-1": "'training.seed' = -1: input should be greater than or equal to 0",
    "stages.3.epochs=3": "'3' is not the number of one of 1 entries",
    "stages.0.epochs": "write it as name.name=value",
}


@pytest.mark.parametrize("change", BAD_SETTINGS)
def test_bad_setting(refused: Refusal, captions: Path, change: str) -> None:
    assert BAD_SETTINGS[change] in refused("train", captions / "train.txt", "--set", change)


def test_bad_recipe(refused: Refusal, captions: Path) -> None:
    text = captions / "train.txt"
    assert "Unknown recipe 'defalt'. Did you mean 'default'?" in refused("train", text, "--recipe", "defalt")
    (refused.folder / "mine.toml").write_text("[decoder\n", encoding="utf-8")
    assert "mine.toml is not valid TOML" in refused("train", text, "--recipe", "mine.toml")
    (refused.folder / "mine.toml").write_bytes(b"\xff\xfe")
    assert "Cannot read mine.toml" in refused("train", text, "--recipe", "mine.toml")


BAD_USAGE = {
    "trian x": "No such command 'trian'. Did you mean 'train'?",
    "corpus mke": "No such command 'mke'. Did you mean 'make'?",
    "corpus": "Missing command",
    "train": "Missing argument",
    "train x --recip y": "No such option: --recip. Did you mean '--recipe'?",
    "train x --wholly-unknown": "No such option: --wholly-unknown",
    "train x --max-steps many": "Invalid value for '--max-steps'",
    "sample x -n 0": "Invalid value for '-n'",
    "parts x": "unexpected extra argument",
    "corpus make caption --out y": "Unknown corpus 'caption'. Did you mean 'captions'?",
    "corpus make captions --sentences 3 --out y": "at least 20 sentences",
    "corpus stats x --labels maybe": "--labels maybe: choose one of auto, yes, no",
}


@pytest.mark.parametrize("command", BAD_USAGE)
def test_bad_usage(refused: Refusal, command: str) -> None:
    assert BAD_USAGE[command] in refused(*command.split())


@pytest.mark.parametrize("name", ["settings.toml", "tokenizer.json", "model.safetensors"])
def test_incomplete_model(refused: Refusal, copied: Path, name: str) -> None:
    (copied / name).unlink()
    assert f"{name} is missing" in refused("sample", copied)


@pytest.mark.parametrize("name", ["settings.toml", "tokenizer.json", "model.safetensors"])
def test_damaged_model(refused: Refusal, copied: Path, name: str) -> None:
    (copied / name).write_bytes(b"\xff" + (copied / name).read_bytes()[:100])
    assert name in refused("sample", copied)


def test_model_of_another_kind(refused: Refusal, copied: Path, language_model: Path, captions: Path) -> None:
    settings = copied / "settings.toml"
    whole = settings.read_text(encoding="utf-8")
    settings.write_text(whole.replace("format = 1\n", "format = 2\n"), encoding="utf-8")
    assert "has model format 2; this zentence reads up to 1" in refused("sample", copied)
    settings.write_text(whole.replace("hidden_size = 12", "hidden_size = 13"), encoding="utf-8")
    assert "model.safetensors" in refused("sample", copied)
    assert "No such model directory: nowhere" in refused("sample", "nowhere")
    assert "it has no codes" in refused("reconstruct", language_model, "a man .")


def test_bad_use_of_a_model(refused: Refusal, copied: Path, captions: Path) -> None:
    text = captions / "test.txt"
    assert "choose one of greedy, sample, beam" in refused("sample", copied, "--method", "gredy")
    assert "'top_p' = 0.0: input should be greater than 0" in refused("sample", copied, "--top-p", 0)
    assert "Unknown device 'gpu'" in refused("sample", copied, "--device", "gpu")
    assert "A sentence is empty" in refused("interpolate", copied, "a man .", " ")
    assert "Give sentences or --file" in refused("reconstruct", copied)
    (refused.folder / "codes.npy").write_bytes(b"mine")
    assert "codes.npy exists" in refused("encode", copied, "--file", text, "--out", "codes.npy")
    assert "Cannot write codes.npy/codes" in refused("encode", copied, "--file", text, "--out", "codes.npy/codes")
    (copied / "results.json").write_text('{"a": 1}', encoding="utf-8")
    assert "results.json is not a list of results" in refused("evaluate", copied, "--split", text)


def test_existing_output_is_kept(refused: Refusal, copied: Path, files: list[str], tiny: Any) -> None:
    command = ["train", *files, *tiny(), "--out", copied]
    assert "go on with --resume, start anew with --overwrite" in refused(*command)
    assert "give one of the two" in refused(*command, "--resume", "--overwrite")
    broken = [*command, "--overwrite", "--set", "encoder.embedding=decoder", "--set", "encoder.hidden_size=0"]
    assert "encoder.hidden_size" in refused(*broken)
    assert "No such file" in refused("train", "gone.txt", *tiny(), "--out", copied, "--overwrite")
    shutil.rmtree(copied / "checkpoints")
    assert "no checkpoint to go on from" in refused(*command, "--resume")
    (refused.folder / "text.txt").write_text("mine\n", encoding="utf-8")
    assert "not empty" in refused("corpus", "make", "captions", "--out", refused.folder)
    assert "pass --overwrite" in refused("demo", "--out", refused.folder)
    assert "text.txt exists" in refused("corpus", "split-sentences", "text.txt", "--out", "text.txt")


def test_output_that_cannot_be_written(refused: Refusal, files: list[str], tiny: Any) -> None:
    (refused.folder / "file").write_text("mine\n", encoding="utf-8")
    assert "Cannot write to file/below" in refused("train", *files, *tiny(), "--out", "file/below")
    assert "file is not a directory" in refused("train", *files, *tiny(), "--out", "file")
    assert "Cannot write to /proc/nowhere" in refused("train", *files, *tiny(), "--out", "/proc/nowhere")
    assert "file is not a directory" in refused("demo", "--out", "file")
    assert "file/below" in refused("corpus", "make", "captions", "--out", "file/below")
    assert "file/below" in refused("corpus", "split-sentences", "file", "--out", "file/below")


def test_output_without_permission(refused: Refusal, files: list[str], tiny: Any) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    locked = refused.folder / "locked"
    locked.mkdir(mode=0o500)
    assert "permission denied" in refused("train", *files, *tiny(), "--out", locked / "model")


def test_resume_with_changed_settings(
    refused: Refusal, copied: Path, files: list[str], captions: Path, tiny: Any
) -> None:
    go_on = ["train", *files, "--out", copied, "--resume"]
    message = refused(*go_on, "--set", "decoder.hidden_size=13", "--seed", 5)
    assert "decoder.hidden_size (was 12, now 13)" in message
    assert "training.seed (was 0, now 5)" in message
    other = refused(*go_on, "--recipe", "vae", "--set", "decoder.tied=false")
    assert "changed settings" in other
    reordered = refused.folder / "train.txt"
    lines = (captions / "train.txt").read_text(encoding="utf-8").splitlines()
    reordered.write_text("\n".join(reversed(lines)), encoding="utf-8")
    command = ["train", reordered, "--valid", captions / "valid.txt", "--out", copied, "--resume", "--max-steps", 21]
    assert "The training text has changed" in refused(*command)
    command = ["train", captions / "train.txt", "--valid", captions / "test.txt", *command[4:]]
    assert "The validation text has changed" in refused(*command)
    (copied / "settings.toml").write_text("format = 1\n[decoder\n", encoding="utf-8")
    assert "settings.toml is not valid TOML" in refused(*go_on)


def test_unknown_words_are_only_warned_of(preloaded: Any, model: Path, tmp_path: Path) -> None:
    shown = preloaded("reconstruct", model, "xqzzy blorf", "a man", cwd=tmp_path)
    assert shown.err.count("\n") == 1
    assert "warning: no word of 'xqzzy blorf' is in this model's vocabulary" in shown.err
    assert len(shown.out.splitlines()) == 4
    text = tmp_path / "strange.txt"
    text.write_text("xqzzy blorf\nvlonk\n", encoding="utf-8")
    scores = preloaded("score", model, "--file", text, "--samples", 2, "--json", cwd=tmp_path)
    assert len(scores.json["nll"]) == 2
    assert scores.err.count("\n") == 1
    assert "1 more" in scores.err
    assert preloaded("interpolate", model, "xqzzy", "blorf", "--json", cwd=tmp_path).json["a"] == "xqzzy"

"""Runs that are killed, damaged or extended: `--resume` gives what an undisturbed run would have given."""

import json
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

STEPS = 95  # 19 batches in each of 2 + 3 epochs


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def figures(folder: Path) -> dict[str, float]:
    return {row["name"]: row["value"] for row in json.loads((folder / "results.json").read_text(encoding="utf-8"))}


def steps(folder: Path) -> list[tuple[int, float]]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [(event["tick"], event["loss"]) for event in map(json.loads, lines) if event["event"] == "step"]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_same(folder: Path, uninterrupted: Path) -> None:
    assert weights(folder) == weights(uninterrupted)
    assert figures(folder) == figures(uninterrupted)
    assert steps(folder) == steps(uninterrupted)  # none twice, none missing
    assert not list(folder.rglob("*.tmp"))
    assert {path.name for path in folder.iterdir()} == {path.name for path in uninterrupted.iterdir()}


def test_the_run_has_what_a_restart_could_forget(uninterrupted: Path) -> None:
    events = [json.loads(line) for line in (uninterrupted / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["event"] for event in events].count("stage") == 2
    assert "decay" in {event["event"] for event in events}
    assert [tick for tick, _ in steps(uninterrupted)] == list(range(1, STEPS + 1))


@pytest.mark.parametrize(("checkpoint_seconds", "kills"), [(0, 3), (1000, 2)])
def test_killed_at_random_moments(
    run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path, checkpoint_seconds: int, kills: int
) -> None:
    """With 0, every step is saved, so that most kills fall into writing; else steps are computed again."""
    chance = random.Random(checkpoint_seconds)
    folder = tmp_path / "model"
    options = ["--resume", "--set", f"training.checkpoint_seconds={checkpoint_seconds}"]
    codes = []
    for moment in [*sorted(chance.sample(range(STEPS - 30), kills)), STEPS]:
        code, _, err = run.stop(folder, moment, signal.SIGKILL, *options, delay=chance.uniform(0.0, 0.05))
        assert code in (0, -signal.SIGKILL), err  # 0: it was quicker
        codes.append(code)
    assert -signal.SIGKILL in codes
    preloaded(*run.command, "--out", folder, *options)
    check_same(folder, uninterrupted)


def test_killed_while_starting(run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    chance = random.Random(3)
    for _ in range(3):
        code, _, err = run.stop(folder, -1, signal.SIGKILL, "--resume", delay=chance.uniform(0.5, 2.5))
        assert code in (0, -signal.SIGKILL), err
    preloaded(*run.command, "--out", folder, "--resume")
    check_same(folder, uninterrupted)


@pytest.mark.parametrize("existing", [False, True])
def test_resume_without_a_checkpoint_starts_anew(
    run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path, existing: bool
) -> None:
    folder = tmp_path / "model"
    if existing:
        folder.mkdir()
    shown = preloaded(*run.command, "--out", folder, "--resume")
    assert "resumed" not in shown.err
    check_same(folder, uninterrupted)


def test_resume_of_a_finished_run_says_so(run: Any, preloaded: Any, uninterrupted: Path) -> None:
    before = files_below(uninterrupted)
    shown = preloaded(*run.command, "--out", uninterrupted, "--resume")
    assert "This run is finished" in shown.out
    documents = preloaded(*run.command, "--out", uninterrupted, "--resume", "--json")
    assert {row["name"] for row in documents.json} == set(figures(uninterrupted))
    assert "This run is finished" in documents.err
    assert files_below(uninterrupted) == before


def test_resume_of_a_run_from_before_an_option_existed(
    run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(uninterrupted, tmp_path / "model"))
    settings = (folder / "settings.toml").read_text(encoding="utf-8")
    older = settings.replace('scale = "log_variance"\n', "")
    assert older != settings
    (folder / "settings.toml").write_text(older, encoding="utf-8")
    assert "This run is finished" in preloaded(*run.command, "--out", folder, "--resume").out


def test_a_finished_run_goes_on_with_more_epochs(run: Any, preloaded: Any, uninterrupted: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(uninterrupted, tmp_path / "model"))
    rows = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    rows.append({**rows[0], "split": "evaluated-before.txt"})
    (folder / "results.json").write_text(json.dumps(rows), encoding="utf-8")
    shown = preloaded(*run.command, "--out", folder, "--resume", "--set", "stages.1.epochs=4")
    assert f"resumed at step {STEPS}" in shown.err
    assert [tick for tick, _ in steps(folder)] == list(range(1, STEPS + 19 + 1))
    assert weights(folder) != weights(uninterrupted)
    rows = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert {row["split"] for row in rows} == {"valid"}  # nothing that was measured with other weights


def test_a_finished_run_goes_on_with_more_steps(preloaded: Any, files: list[str], tiny: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    command = ["train", *files, "--out", folder]
    preloaded(*command, *tiny(training__max_steps=5, training__log_every=1))
    shown = preloaded(*command, "--resume")  # with the settings of the run
    assert "For more: --resume --max-steps N" in shown.out
    preloaded(*command, "--resume", "--max-steps", 8)
    assert [tick for tick, _ in steps(folder)] == list(range(1, 9))


@pytest.mark.parametrize("damage", ["truncate json", "truncate tensors", "flip a byte", "remove tensors", "empty json"])
def test_damaged_newest_checkpoint(
    run: Any, preloaded: Any, halfway: Path, uninterrupted: Path, tmp_path: Path, damage: str
) -> None:
    folder = Path(shutil.copytree(halfway, tmp_path / "model"))
    newest = max((folder / "checkpoints").glob("step-*.json"))
    tick = int(newest.stem.removeprefix("step-"))
    spoil(newest, damage)
    shown = preloaded(*run.command, "--out", folder, "--resume")
    warnings = [line for line in shown.err.splitlines() if line.startswith("warning: The checkpoint")]
    assert len(warnings) == 1
    assert f"The checkpoint at step {tick} is damaged" in warnings[0]
    assert f"resumed at step {tick - 1}" in shown.err
    check_same(folder, uninterrupted)


def spoil(record: Path, damage: str) -> None:
    tensors = record.with_suffix(".safetensors")
    content = tensors.read_bytes()
    if damage == "truncate json":
        record.write_bytes(record.read_bytes()[:-40])
    elif damage == "empty json":
        record.write_bytes(b"")
    elif damage == "truncate tensors":
        tensors.write_bytes(content[: len(content) // 2])
    elif damage == "remove tensors":
        tensors.unlink()
    else:
        middle = len(content) // 2
        tensors.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def test_damaged_older_checkpoint_does_not_matter(
    run: Any, preloaded: Any, halfway: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(halfway, tmp_path / "model"))
    spoil(min((folder / "checkpoints").glob("step-*.json")), "truncate json")
    preloaded(*run.command, "--out", folder, "--resume")
    check_same(folder, uninterrupted)


def test_all_checkpoints_damaged(run: Any, preloaded: Any, halfway: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(halfway, tmp_path / "model"))
    for record in (folder / "checkpoints").glob("step-*.json"):
        spoil(record, "flip a byte")
    before = files_below(folder)
    shown = preloaded(*run.command, "--out", folder, "--resume", "--quiet", expect=2)
    assert shown.err.count("\n") == 1
    assert f"All checkpoints in {folder}/checkpoints are damaged" in shown.err
    assert files_below(folder) == before


def test_leftovers_of_a_killed_run_are_removed(
    run: Any, preloaded: Any, halfway: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(halfway, tmp_path / "model"))
    for name in (".settings.toml.123.tmp", "checkpoints/.step-000000061.json.123.tmp"):
        (folder / name).write_bytes(b"half")
    (folder / "checkpoints" / "step-000000001.safetensors").write_bytes(b"its other half is gone")
    (folder / "checkpoints" / "best-000000001.safetensors").write_bytes(b"nobody's")
    with (folder / "log.jsonl").open("ab") as log:
        log.write(b'{"event": "step", "tick": 61, "text": "caf\xc3')  # cut within a letter
    preloaded(*run.command, "--out", folder, "--resume")
    check_same(folder, uninterrupted)
    kept = {path.name for path in (folder / "checkpoints").iterdir()}
    assert not kept & {"step-000000001.safetensors", "best-000000001.safetensors"}
    assert len(kept) <= 6  # two checkpoints of two files, and at most two best weights

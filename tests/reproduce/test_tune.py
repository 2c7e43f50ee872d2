import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from zentence.errors import ZentenceError
from zentence.reproduce.space import Choices, Range, default_space, parse_dimension, parse_space
from zentence.settings import load_settings

pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("a.b=0.1:2.5", Range("a.b", 0.1, 2.5)),
        ("a.b=1e-4:1e-2:log", Range("a.b", 1e-4, 1e-2, log=True)),
        ("a.b=16:64", Range("a.b", 16, 64)),
        ("a.b=x,y", Choices("a.b", ("x", "y"))),
        ("a.b=1,2,4", Choices("a.b", (1, 2, 4))),
        ("a.b=true,false", Choices("a.b", (True, False))),
    ],
)
def test_dimensions(text: str, dimension: Range | Choices) -> None:
    found = parse_dimension(text)
    assert found == dimension
    assert not isinstance(found, Range) or found.whole == (text == "a.b=16:64")


@pytest.mark.parametrize("text", ["a.b", "a.b=", "=1:2", "a.b=2:1", "a.b=0:1:log", "a.b=1:2:lin", "a.b=x:y", "a.b=x"])
def test_wrong_dimensions(text: str) -> None:
    with pytest.raises(ZentenceError, match="--space"):
        parse_dimension(text)


def test_the_default_space_has_the_rates_target() -> None:
    keys = [dimension.key for dimension in default_space(load_settings("default"))]
    assert "optimizer.learning_rate" in keys and "stages.-1.objective.rate_rule.total_target" in keys
    mdr = default_space(load_settings("effective-estimation/mdr-5@quick"))
    assert mdr[-1] == Range("stages.-1.objective.rate_rule.target", 2.5, 10.0, log=True)
    with pytest.raises(ZentenceError, match="given twice"):
        parse_space(["a.b=1:2", "a.b=1:3"], load_settings("default"))


def options(captions: Path, folder: Path, tiny: Any, steps: int = 20) -> list[object]:
    small = tiny(training__max_steps=steps, training__validate_every=0.25, training__log_every=1)
    sets = small[2:]  # without --recipe
    space = ["--space", "optimizer.learning_rate=1e-4:1e-1:log", "--space", "decoder.input_dropout=0.0:0.5"]
    where = ["--valid", captions / "valid.txt", "--out", folder, "--quiet"]
    return ["tune", "default", captions / "train.txt", *where, *space, *sets]


def test_three_trials_interrupted_and_resumed(
    zentence: Any, preloaded: Any, captions: Path, tmp_path: Path, tiny: Any
) -> None:
    words = [*options(captions, tmp_path, tiny, 24), "--trials", 3, "--set", "training.checkpoint_seconds=0"]
    run = zentence.start(*words)
    second = tmp_path / "trial-001" / "checkpoints"
    while run.poll() is None and not any(second.glob("step-*.json")):
        time.sleep(0.01)
    assert run.poll() is None, run.communicate()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    went_on = preloaded(*words, "--json")
    assert "trial 1 was interrupted: it goes on" in went_on.err
    found = went_on.json
    assert len(found["trials"]) == 3 and found["objective"] == "iw_nll"
    assert [trial["folder"] for trial in found["trials"]] == ["trial-000", "trial-001", "trial-003"]  # it went on there
    assert {path.name for path in tmp_path.glob("trial-*")} == {trial["folder"] for trial in found["trials"]}
    events = [json.loads(line) for line in (tmp_path / "trial-001" / "log.jsonl").read_text().splitlines()]
    assert [event["resumed"] for event in events if event["event"] == "start"] == [False, True]
    values = [trial["value"] for trial in found["trials"] if trial["value"] is not None]
    assert found["best"]["value"] == min(values)
    results = json.loads((tmp_path / "trial-000" / "results.json").read_text())
    assert values[0] == next(row["value"] for row in results if row["name"] == "iw_nll")
    assert set(found["importance"]) == {"optimizer.learning_rate", "decoder.input_dropout"}
    assert Path(found["plot"]).read_bytes().startswith(b"\x89PNG")
    again = preloaded(*words)  # all is done: nothing is trained
    assert "3 trials" in again.out and "trial 4" not in again.err and "--set optimizer.learning_rate=" in again.out
    other = preloaded(*words, "--space", "posterior.size=2:4", expect=2)
    assert "holds a search with another space" in other.err


def test_a_bad_trial_is_ended_early(preloaded: Any, captions: Path, tmp_path: Path, tiny: Any) -> None:
    words = options(captions, tmp_path, tiny)
    rates = "optimizer.learning_rate=1e-9,2e-2"
    at = [index for index, word in enumerate(words) if word == "--space"]
    words[at[0] + 1 : at[1] + 2] = [rates]
    found = preloaded(*words, "--trials", 7, "--storage", tmp_path / "study.db", "--json").json
    states = {(trial["settings"]["optimizer.learning_rate"], trial["state"]) for trial in found["trials"]}
    assert (1e-9, "pruned") in states and (2e-2, "complete") in states
    assert found["best"]["settings"]["optimizer.learning_rate"] == 2e-2
    assert (tmp_path / "study.db").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--space", "optimiser.learning_rate=1:2"], "Unknown setting 'optimiser'"),
        (["--objective", "rate"], "give a metric with a direction"),
        (["--objective", "bleu4"], "training measures only"),
    ],
)
def test_mistakes(more: list[str], message: str, preloaded: Any, captions: Path, tmp_path: Path, tiny: Any) -> None:
    found = preloaded(*options(captions, tmp_path, tiny, 2), *more, "--trials", 1, expect=2)
    assert message in found.err and "Traceback" not in found.err

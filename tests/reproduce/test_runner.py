"""Rows that are interrupted, finished, missing or wrong."""

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from zentence.errors import ZentenceError
from zentence.reproduce import plots, runner
from zentence.reproduce.documents import write_page
from zentence.reproduce.results import Results, add_result, read_stored, write_stored
from zentence.reproduce.rows import rows_of

PAPER = "surprisingly-effective-fix"


def reproduce(run: Any, data: Path, folder: Path, *more: object, expect: int = 0) -> Any:
    return run(
        *("reproduce", PAPER, "--data", data, "--out", folder / "runs", "--results", folder / "results", "--quiet"),
        *more,
        expect=expect,
    )


def weights(folder: Path, row: str) -> bytes:
    return (folder / "runs" / PAPER / "quick" / row / "seed-0" / "model.safetensors").read_bytes()


def stored(folder: Path, name: str = "quick-changed") -> Results:
    return read_stored(folder / "results" / PAPER / f"{name}.json", PAPER, "quick", "valid")


@pytest.fixture(scope="module")
def finished(preloaded: Any, data: Path, tiny_row: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    reproduce(preloaded, data, folder, "--rows", "vae", *tiny_row, "--set", "training.max_steps=30")
    return folder


def test_a_killed_reproduction_goes_on_and_gives_the_same(
    zentence: Any, preloaded: Any, data: Path, tiny_row: list[str], tmp_path: Path, finished: Path
) -> None:
    options = ["--rows", "vae", *tiny_row, "--set", "training.max_steps=30"]
    at_once = ["--set", "training.checkpoint_seconds=0"]  # a checkpoint each step: changes no figure
    where = ["--data", data, "--out", tmp_path / "runs", "--results", tmp_path / "results", "--quiet"]
    run = zentence.start("reproduce", PAPER, *where, *options, *at_once)
    checkpoints = tmp_path / "runs" / PAPER / "quick" / "vae" / "seed-0" / "checkpoints"
    while run.poll() is None and not any(checkpoints.glob("step-*.json")):
        time.sleep(0.01)
    assert run.poll() is None, run.communicate()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert not (tmp_path / "results").exists()
    refused = reproduce(preloaded, data, tmp_path, *options, *at_once, expect=2)
    assert "holds an unfinished run: go on with --resume" in refused.err
    went_on = reproduce(preloaded, data, tmp_path, *options, *at_once, "--resume", "--json").json
    assert went_on["trained"] == ["vae, seed 0"]
    assert weights(tmp_path, "vae") == weights(finished, "vae")
    assert stored(tmp_path).values() == stored(finished).values()


def test_a_first_stage_in_common_is_trained_once_and_gives_the_same(
    preloaded: Any, data: Path, tiny_row: list[str], tmp_path: Path
) -> None:
    short = [*tiny_row, "--set", "stages.0.max_tokens=3000", "--set", "stages.1.max_tokens=3000", "--json"]
    alone = reproduce(preloaded, data, tmp_path / "alone", "--rows", "fix-4", *short).json
    after = reproduce(preloaded, data, tmp_path / "after", "--rows", "fix-4,fix-8", *short).json
    assert alone["trained"] == ["fix-4, seed 0"] and after["trained"] == ["fix-8, seed 0", "fix-4, seed 0"]
    runs = [tmp_path / where / "runs" / PAPER / "quick" for where in ("alone", "after")]
    assert [len(list(run.glob("first-stages/*"))) for run in runs] == [1, 1]
    logs = [
        [json.loads(line) for line in (folder / "seed-0" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        for folder in (runs[0] / "fix-4", runs[1] / "fix-8", runs[1] / "fix-4")
    ]
    steps = [[event["tick"] for event in log if event["event"] == "step"] for log in logs]
    assert steps[0] == steps[1] == steps[2]
    starts = [[event["resumed"] for event in log if event["event"] == "start"] for log in logs]
    assert starts == [[False], [False], [False, True]]
    assert weights(tmp_path / "alone", "fix-4") == weights(tmp_path / "after", "fix-4")
    curves = [stored(tmp_path / where).rows["fix-4"]["seeds"]["0"]["curve"] for where in ("alone", "after")]
    assert [point["value"] for point in curves[0]] == [point["value"] for point in curves[1]]


def test_what_is_done_is_skipped_and_seeds_are_joined(
    preloaded: Any, data: Path, tiny_row: list[str], tmp_path: Path, finished: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    options = [*tiny_row, "--set", "training.max_steps=30"]
    again = reproduce(preloaded, data, folder, "--rows", "vae,lm", *options, "--seeds", 2, "--json")
    found = again.json
    assert found["skipped"] == ["vae, seed 0"]
    assert found["trained"] == ["lm, seed 0", "lm, seed 1", "vae, seed 1"]
    assert [entry["row"] for entry in found["rows"]] == ["lm", "vae"]
    row = found["rows"][1]
    assert row["seeds"] == [0, 1]
    nll = next(figure for figure in row["figures"] if figure["metric"] == "iw_nll")
    assert nll["seeds"] == 2 and nll["std"] > 0.0 and nll["text"] == "PTB validation"
    assert {line["verdict"] for line in found["beside"]} == {"direction only"}
    page = (folder / "results" / PAPER / "quick-changed.md").read_text(encoding="utf-8")
    assert "| vae | iw_nll | 101.23 (Table 10) |" in page and "settings were changed" in page
    changed = reproduce(preloaded, data, folder, "--rows", "vae", *tiny_row, "--set", "training.seed=3", expect=2)
    assert "holds a run with other settings" in changed.err


def test_results_hold_no_text(finished: Path, data: Path) -> None:
    text = (finished / "results" / PAPER / "quick-changed.json").read_text(encoding="utf-8")
    content = json.loads(text)
    run = content["rows"]["vae"]["seeds"]["0"]
    assert run["seconds"] > 0.0 and run["provenance"]["ptb"]["torch"]
    assert [point["figure"] for point in run["curve"]] and {point["stage"] for point in run["curve"]} == {"train"}
    for line in (data / "ptb" / "ptb.valid.txt").read_text(encoding="utf-8").splitlines():
        assert " ".join(line.split()[:3]) not in text
    assert str(data) not in text and str(finished) not in text


def test_the_test_split_gets_a_numbers_verdict(
    preloaded: Any, data: Path, tiny_row: list[str], tmp_path: Path, finished: Path
) -> None:
    folder, texts = tmp_path / "copy", tmp_path / "data"
    shutil.copytree(finished, folder)
    shutil.copytree(data, texts)
    options = ["--rows", "vae", *tiny_row, "--set", "training.max_steps=30", "--split", "test"]
    missing = reproduce(preloaded, texts, folder, *options, expect=2)
    assert "Missing data" in missing.err and "ptb.test.txt" in missing.err and missing.err.count("\n") == 1
    shutil.copy(texts / "ptb" / "ptb.valid.txt", texts / "ptb" / "ptb.test.txt")
    found = reproduce(preloaded, texts, folder, *options, "--json").json  # it is trained already
    assert (folder / "results" / PAPER / "quick-test-changed.json").exists()
    verdicts = {line["metric"]: line["verdict"] for line in found["beside"]}
    assert verdicts["iw_nll"] == "better"  # another text under that name: the number is judged as it stands
    assert verdicts["rate"] == "reproduced"


@pytest.fixture(scope="module")
def published(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results as if no setting had been changed."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "results" / PAPER).mkdir(parents=True)
    shutil.copy(finished / "results" / PAPER / "quick-changed.json", folder / "results" / PAPER / "quick.json")
    return folder


def test_a_page_is_written_from_results_only(preloaded: Any, tmp_path: Path, finished: Path, published: Path) -> None:
    page = tmp_path / "page.md"
    unchanged = preloaded("reproduce", "--write-docs", page, "--results", finished / "results", expect=2)
    assert "There are no results" in unchanged.err  # those of changed settings do not count
    preloaded("reproduce", "--write-docs", page, "--results", published / "results")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# The papers' tables, again")
    assert "Surprisingly Effective Fix" in text and "SentenceMIM" not in text
    assert "| vae | PTB validation |" in text and "fix-8 |" not in text
    preloaded("reproduce", "--write-docs", page, "--results", published / "results")  # its own page may be replaced
    page.write_text("mine")
    refused = preloaded("reproduce", "--write-docs", page, "--results", published / "results", expect=2)
    assert "was not written by --write-docs" in refused.err
    nothing = preloaded("reproduce", "--write-docs", page, "--results", tmp_path / "none", expect=2)
    assert nothing.err.count("\n") == 1


def test_a_row_that_fails_does_not_keep_the_others(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def pretend(settings: Any, corpus: Any, **options: Any) -> None:
        made.append(options["out"].parent.name)
        if not settings.has_code:
            raise ZentenceError("The loss is not finite")
        options["out"].mkdir(parents=True)

    figure = {"name": "rate", "corpus": "ptb", "text": "PTB validation", "value": 0.1, "kind": "estimate"}
    result = {"figures": [figure], "provenance": {}, "changes": [], "seconds": 1.0, "curve": []}
    monkeypatch.setattr(runner, "train", pretend)
    monkeypatch.setattr(runner, "measure", lambda job, plan, progress: result)
    plan = runner.Plan("quick", data, tmp_path / "runs", tmp_path / "results")
    outcome = runner.reproduce(rows_of(PAPER, ["lm", "vae"]), plan)
    assert made == ["lm", "vae"]
    assert outcome.failed == {"lm, seed 0": "The loss is not finite"}
    assert stored(tmp_path, "quick").values() == outcome.results.values() == {"vae": {"rate": 0.1}}


def test_rows_made_meanwhile_by_another_process_are_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = {"name": "rate", "corpus": "ptb", "text": "PTB validation", "value": 0.1, "kind": "estimate"}
    result = {"figures": [figure], "provenance": {}, "changes": [], "seconds": 1.0, "curve": []}
    monkeypatch.setattr(runner, "train", lambda settings, corpus, **options: options["out"].mkdir(parents=True))

    def plan(folder: str) -> runner.Plan:
        return runner.Plan("quick", data, tmp_path / folder, tmp_path / "results")

    def measure(job: runner.Job, _plan: Any, _progress: Any) -> Any:
        if job.row.name == "lm":  # while it is made, the other process ends
            runner.reproduce(rows_of(PAPER, ["vae"]), plan("other"))
        return result

    monkeypatch.setattr(runner, "measure", measure)
    outcome = runner.reproduce(rows_of(PAPER, ["lm"]), plan("runs"))
    assert set(outcome.results.rows) == set(stored(tmp_path, "quick").rows) == {"lm", "vae"}


def test_seeds_of_other_settings_are_dropped() -> None:
    empty = Results(PAPER, "quick", "valid", {})
    first = add_result(add_result(empty, "vae", 0, "aa", {"figures": []}), "vae", 10, "aa", {"figures": []})
    assert list(first.rows["vae"]["seeds"]) == ["0", "10"]
    assert list(add_result(first, "vae", 2, "aa", {"figures": []}).rows["vae"]["seeds"]) == ["0", "2", "10"]
    assert list(add_result(first, "vae", 2, "bb", {"figures": []}).rows["vae"]["seeds"]) == ["2"]


def test_pictures_from_stored_results(preloaded: Any, tmp_path: Path, published: Path) -> None:
    drawn = preloaded("reproduce", PAPER, "--plots", tmp_path, "--results", published / "results", "--json").json
    assert drawn == [str(tmp_path / "time-vae.png")]
    assert Path(drawn[0]).read_bytes().startswith(b"\x89PNG")
    nothing = preloaded("reproduce", "sentence-mim", "--plots", tmp_path, "--results", published / "results", expect=2)
    assert "There are no results of sentence-mim to draw" in nothing.err


def test_sweeps_are_drawn_from_rows_that_have_results(tmp_path: Path) -> None:
    def run(target: float) -> dict[str, Any]:
        values = {"ppl": 100.0 + target, "rate": target + 0.1, "accuracy_gap": target}
        about = {"corpus": "ptb", "text": "PTB validation", "kind": "estimate"}
        return {"seeds": {"0": {"figures": [{"name": k, "value": v, **about} for k, v in values.items()]}}}

    rows = {"mdr-1": run(1), "mdr-5": run(5), "vamp": run(5), "vamp-10": run(10), "fb-5": run(5)}
    some = Results("effective-estimation", "quick", "valid", rows)
    assert plots.draw_sweep(some, tmp_path / "sweep.png") == tmp_path / "sweep.png"
    few = Results("effective-estimation", "quick", "valid", {"fb-5": run(5)})
    assert plots.draw_sweep(few, tmp_path / "none.png") is None and not (tmp_path / "none.png").exists()


def test_faithful_runs_that_were_ended_early_stand_beside_quick_ones(tmp_path: Path) -> None:
    """They are kept apart from whole runs; one whose settings differ in anything else is no faithful run."""

    def run(values: list[float], *changes: str) -> dict[str, Any]:
        curve = [
            {"seconds": 600.0 * (n + 1), "stage": "train", "figure": "nll", "value": v} for n, v in enumerate(values)
        ]
        figure = {"name": "nll", "corpus": "ptb", "text": "PTB validation", "value": values[-1], "kind": "exact"}
        return {"figures": [figure], "provenance": {}, "changes": list(changes), "seconds": 60.0, "curve": curve}

    def store(variant: str, name: str, content: dict[str, Any]) -> Results:
        results = add_result(Results(PAPER, variant, "valid", {}), "lm", 0, "aa", content)
        write_stored(tmp_path / PAPER / f"{name}.json", results)
        return results

    quick = store("quick", "quick", run([110.0, 105.5]))
    early = store(
        "faithful",
        "faithful-changed",
        run([120.0, 115.0, 111.0, 108.5, 107.0, 106.0, 105.0], "training.max_minutes=70"),
    )
    page, _ = write_page(tmp_path)
    assert "| lm | nll | faithful | 70 | 105.00 | 120.00 | 106.00 |" in page
    assert "| lm | nll | quick | 20 | 105.50 | 110.00 | 105.50 |" in page
    variants = {"faithful, ended early": early, "quick": quick}
    assert plots.draw_time("lm", variants, tmp_path / "time.png") == tmp_path / "time.png"
    other = store(
        "faithful", "faithful-changed", run([120.0], "training.max_minutes=70", "optimizer.learning_rate=1.0")
    )
    assert "| faithful |" not in write_page(tmp_path)[0]
    assert plots.draw_time("lm", {"faithful, ended early": other}, tmp_path / "none.png") is None

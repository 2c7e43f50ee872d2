import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.cells import cell_len

from zentence.training import progress
from zentence.training.progress import Display, progress_bar

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PLACE = {"stage": "warm", "tick": 40, "update": 40, "steps": 400, "epoch": 0.4, "seconds": 61.5}
STEP = {
    "event": "step", **PLACE, "loss": 120.5, "distortion": 99.25, "rate": 8.125, "beta": 0.45, "tokens": 8000,
    "active_units": 31, "code_size": 32, "learning_rate": 0.001,
}  # fmt: skip
VALIDATION = {
    "event": "validation", **PLACE, "distortion": 98.0, "rate": 8.5, "elbo_nll": 106.5, "iw_nll": 104.75,
    "effective_samples": 2.5, "active_units": 30.0, "selection": "iw_nll", "improved": True,
}  # fmt: skip
TRAIN = {"sentences": 42068, "words": 887521, "truncated": 12, "dropped": 0}
START = {
    "event": "start", "folder": "runs/[b]ptb[/b]", "resumed": False, "tick": 0, "parameters": 1234567, "device": "cpu",
    "stages": [{"name": "warm", "steps": 400}, {"name": "main", "steps": 600}],
    "corpus": {"vocabulary": 10000, "splits": {"train": TRAIN, "valid": {"sentences": 3370, "words": 70390}}},
}  # fmt: skip
STAGE = {"event": "stage", "stage": "warm", "number": 1, "of": 2, "steps": 400, "objective": "elbo", "tick": 0}
END = {"event": "end", "folder": "x", "tick": 1000, "seconds": 3700.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        return ESCAPES.sub("", self.getvalue())


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(progress, "monotonic", clock := Clock())
    return clock


@pytest.fixture(params=[60, 120])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.01)
    terminal = Terminal()
    yield terminal
    for line in re.split(r"[\r\n]", terminal.text()):
        assert cell_len(line) <= request.param


def plain(*events: dict[str, Any], quiet: bool = False) -> list[str]:
    stream = io.StringIO()
    with Display(quiet, stream) as display:
        for event in events:
            display(event)
    assert "\x1b" not in stream.getvalue()
    return stream.getvalue().splitlines()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_start_tells_folder_corpus_and_model() -> None:
    assert plain(START) == [
        "folder runs/[b]ptb[/b]",
        "train 42,068 sentences, 887,521 words  (12 truncated)  valid 3,370 sentences, 70,390 words  vocabulary 10,000",
        "model 1,234,567 parameters  device cpu  steps 1,000",
    ]
    assert plain({**START, "resumed": True, "tick": 1200})[0] == "folder runs/[b]ptb[/b]  resumed at step 1,200"


def test_steps_make_a_line_at_once_and_then_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Display(stream=stream) as display:
        display(START)
        display(STAGE)
        for number in range(1, 26):
            clock.now += 1.0
            display({**STEP, "tick": 10 * number, "update": 10 * number, "seconds": number * 0.5, "tokens": 1000})
    lines = stream.getvalue().splitlines()[3:]
    assert lines[0] == "stage warm 1/2  elbo  steps 400"
    assert lines[1].startswith("warm 1/2  2%  1:39 left  epoch 0.40  distortion 99.25  rate 8.12  active 31/32  loss")
    assert lines[1].endswith("lr 0.001  β 0.45")
    assert lines[2].startswith("warm 1/2  27%  1:29 left  epoch 0.40  tokens/s 2,000")
    assert len(lines) == 4


def test_validation_marks_the_best_and_shows_its_selection_first() -> None:
    decay = {"event": "decay", **PLACE, "factor": 0.25, "decays": 2}
    assert plain(STEP, VALIDATION, {**VALIDATION, "improved": False, "selection": "elbo_nll"}, decay)[1:] == [
        "validation  epoch 0.40  iw 104.75 ★  elbo 106.50  distortion 98.00  rate 8.50  active 30/32  1:02",
        "validation  epoch 0.40  elbo 106.50  iw 104.75  distortion 98.00  rate 8.50  active 30/32  1:02",
        "epoch 0.40  learning rate × 0.25  decays 2",
    ]


def test_language_models_and_custom_trainables_show_what_they_have() -> None:
    step = {"event": "step", **PLACE, "loss": 5.0, "distortion": 4.0}
    custom = {"critic": 0.123456, "text": "no", "flag": True, "gap": 2, "margin": 3.5, "fourth": 4}
    bare, unknown = plain(step, {"event": "stage"}, {**step, **custom})[::2]
    assert bare == "warm  10%  0:00 left  epoch 0.40  distortion 4.00  loss 5.00"
    assert unknown.endswith("loss 5.00  critic 0.1235  gap 2  margin 3.5")
    validation = {"event": "validation", "nll": 3.0, "selection": "wasser[b]", "wasser[b]": 1.5, "improved": True}
    assert plain(validation) == ["validation  wasser[b] 1.50 ★  nll 3.00"]


def test_no_event_needs_its_keys_or_their_types() -> None:
    wrong = {"stages": 3, "corpus": "x", "done": "a", "total": 0, "tick": None, "number": [], "loss": {}}
    known = ["reading", "start", "stage", "step", "validation", "decay", "warning", "evaluating", "end"]
    for name in [*known, "other"]:
        plain({}, {"event": name}, {"event": name, **wrong}, {**STEP, **wrong, "event": name})


def test_warnings_are_always_shown_and_cannot_draw_on_the_terminal() -> None:
    warning = {"event": "warning", "message": "[red]a[/red] \x1b[31mb\nc"}
    assert plain(START, STAGE, STEP, warning, VALIDATION, END, quiet=True) == ["warning: [red]a[/red] �[31mb c"]


def test_long_reading_and_evaluating_make_lines(clock: Clock) -> None:
    stream = io.StringIO()
    display = Display(stream=stream)
    for second in range(24):
        clock.now += 1.0
        display({"event": "reading", "done": second * 1e6, "total": 50e6})
    display({"event": "evaluating", "split": "valid", "done": 1, "total": 1})
    clock.now += 5
    display(END)
    assert stream.getvalue().splitlines() == [
        "reading  2%  1.0/50.0 MB  0:49 left",
        "reading  22%  11.0/50.0 MB  0:39 left",
        "reading  42%  21.0/50.0 MB  0:29 left",
        "finished in 0:29  (1:01:40 of training)",
    ]


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Display(stream=stream) as display:
        display(STEP)
    assert "\x1b" not in stream.getvalue()
    assert "distortion 99.25" in stream.getvalue()


def test_the_terminal_shows_a_live_bar_below_the_log(terminal: Terminal) -> None:
    with Display(stream=terminal) as display:
        display(START)
        display(STAGE)
        display(STEP)
        wait_for(lambda: "left" in terminal.text())
        display({"event": "warning", "message": "[bold]careful[/bold]"})
        display(VALIDATION)
        display({**STEP, "distortion": 97.5, "seconds": 63.5})
        wait_for(lambda: "97.50" in terminal.text())
        display(END)
    text = terminal.text()
    assert "folder runs/[b]ptb[/b]" in text
    assert "warning: [bold]careful[/bold]" in text
    assert "\x1b[33mwarning" in terminal.getvalue()
    assert "iw 104.75 ★" in text
    assert re.search(r"warm 1/2 [━╸╺]+ 10%  \d+:\d\d left", text)
    assert "tokens/s 4,000" in text
    assert re.search(r"act(ive)? 31/32", text)
    assert text.rstrip().splitlines()[-1].startswith("finished in 0:0")


def test_bars_of_short_work_do_not_appear(terminal: Terminal) -> None:
    with Display(stream=terminal) as display:
        display({"event": "reading", "done": 1, "total": 2})
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_bars_of_long_work_appear(terminal: Terminal, clock: Clock) -> None:
    with Display(stream=terminal) as display:
        display({"event": "evaluating", "split": "valid", "done": 10, "total": 3370})
        clock.now += 2.0
        wait_for(lambda: "10/3,370 sentences" in terminal.text())
        display({"event": "evaluating", "split": "[b]" * 40, "done": 1_234_567, "total": 9_999_999})
        clock.now += 2.0
        wait_for(lambda: "1,234,567/9,999,999 sentences" in terminal.text())
    assert "evaluating valid ━" in terminal.text()


def test_the_bar_goes_away_when_training_fails(terminal: Terminal) -> None:
    with pytest.raises(KeyError), Display(stream=terminal) as display:
        display(STEP)
        wait_for(lambda: "10%" in terminal.text())
        raise KeyError
    written = terminal.getvalue()
    assert written.endswith("\x1b[2K")
    time.sleep(0.05)
    assert terminal.getvalue() == written


@pytest.mark.parametrize("broken", ["_flow", "ProgressBar"])
def test_without_a_working_rich_there_are_plain_lines(
    broken: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(progress, broken, fail)
    with Display(stream=terminal) as display:
        display(STEP)
        wait_for(lambda: display._out.console is None)
        display({"event": "warning", "message": "still here"})
        display({"event": "step", "update": 3, "steps": 30})
    assert "warning: still here\n" in terminal.text()
    assert "warm  10%" in terminal.text()


@pytest.mark.parametrize("error", [BrokenPipeError, OSError, ValueError])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_lost_stream_stops_nothing(
    error: type[Exception], is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

        def write(self, text: str) -> int:
            raise error

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.01)
    with Display(stream=Lost()) as display:
        display(STEP)
        time.sleep(0.05)
        for event in (START, STAGE, STEP, VALIDATION, {"event": "warning", "message": "x"}, END):
            display(event)


def test_a_closed_standard_error_stops_nothing() -> None:
    script = (
        "import sys; sys.stdin.read(); from zentence.training.progress import Display\n"
        "with Display() as display:\n"
        "    for _ in range(9): display({'event': 'warning', 'message': 'x' * 10000})\n"
        "print('trained')"
    )
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [sys.executable, "-c", script], stderr=writer, stdout=subprocess.PIPE, input=b"", check=False
    )
    os.close(writer)
    assert (found.returncode, found.stdout) == (0, b"trained\n")


def test_progress_bar_counts_in_lines_off_a_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with progress_bar("encode [b]", 2000, unit="sentences") as update:
        update(10)
        clock.now += 4.0
        for done in (1000, 1001):
            update(done)
    with progress_bar("decode", None, unit="sentences") as update:
        clock.now += 4.0
        update(1000)
    assert stream.getvalue().splitlines() == [
        "encode [b]  50%  1,000/2,000 sentences  0:04 left",
        "decode  1,000 sentences",
    ]


def test_progress_bar_is_live_on_a_terminal_and_gives_standard_error_back(
    terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar("encode [b]", 2000, unit="sentences") as update:
        update(500)
        clock.now += 4.0
        wait_for(lambda: "encode [b] ━" in terminal.text())
        print("from elsewhere", file=sys.stderr)
    assert sys.stderr is terminal
    assert "25%  500/2,000 sentences" in terminal.text()
    assert "from elsewhere\n" in terminal.text()

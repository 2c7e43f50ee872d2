"""What a run says while it runs: a dictionary per event, to a log file, TensorBoard, a display, or anybody's callback.

Events: `reading` (done, total bytes), `start`, `stage`, `step`, `validation`, `decay`, `warning`, `evaluating`
(split, done, total sentences), `end`.
"""

import importlib.util
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from zentence.errors import ZentenceError
from zentence.files import write_atomically

Event = dict[str, Any]
Callback = Callable[[Event], None]
_NOT_LOGGED = ("reading", "evaluating")


class LogWriter:
    """Appends events to log.jsonl; on resuming, lines after the checkpoint are dropped first, so none stands twice."""

    def __init__(self, path: Path, tick: int) -> None:
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            kept = [line for line in text.split("\n") if _tick_of(line) <= tick]
            write_atomically(path, "".join(line + "\n" for line in kept))
        try:
            self.file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ZentenceError(f"Cannot write {path}: {error.strerror}") from error

    def __enter__(self) -> "LogWriter":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.file.close()

    def __call__(self, event: Event) -> None:
        """Write one line."""
        if event["event"] in _NOT_LOGGED:
            return
        try:
            self.file.write(json.dumps(event, ensure_ascii=False) + "\n")
            self.file.flush()
        except OSError as error:
            raise ZentenceError(f"Cannot write {self.file.name}: {error.strerror}") from error


def _tick_of(line: str) -> float:
    """Return the step a log line belongs to; a line cut short by a crash belongs to none."""
    try:
        tick = json.loads(line).get("tick", float("inf"))
    except (ValueError, AttributeError):
        return float("inf")
    return float(tick)


class _TensorBoard:
    """Writes the numbers of step and validation events."""

    def __init__(self, folder: Path, tick: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self.hook = folder, threading.excepthook
        with self._one_line():
            self.writer = SummaryWriter(str(folder), purge_step=tick or None)

    def __enter__(self) -> "_TensorBoard":
        threading.excepthook = self._on_thread_error
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.writer.close()
        threading.excepthook = self.hook

    def __call__(self, event: Event) -> None:
        if event["event"] not in ("step", "validation"):
            return
        with self._one_line():
            for name, value in event.items():
                if isinstance(value, (int, float)) and name not in ("tick", "update", "steps"):
                    self.writer.add_scalar(f"{event['event']}/{name}", value, event["tick"])

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ZentenceError(f"Cannot write {self.folder}: {error.strerror}") from error

    def _on_thread_error(self, error: threading.ExceptHookArgs) -> None:
        if not issubclass(error.exc_type, OSError):  # of the writer's thread; the next event reports it
            self.hook(error)


def tensorboard_writer(folder: Path, tick: int, wanted: str) -> _TensorBoard | None:
    """Return a TensorBoard callback, or none if it is not wanted or not installed."""
    if wanted == "no":
        return None
    if importlib.util.find_spec("tensorboard") is None:
        if wanted == "yes":
            raise ZentenceError("TensorBoard is not installed: pip install 'zentence[tensorboard]'")
        return None
    return _TensorBoard(folder, tick)


def open_logs(
    stack: ExitStack, folder: Path, tick: int, tensorboard: str, callbacks: Sequence[Callback]
) -> list[Callback]:
    """Return callbacks with the log before them and TensorBoard after them, both closed with the stack."""
    result: list[Callback] = [stack.enter_context(LogWriter(folder / "log.jsonl", tick)), *callbacks]
    if (board := tensorboard_writer(folder / "tensorboard", tick, tensorboard)) is not None:
        result.append(stack.enter_context(board))
    return result


@contextmanager
def catch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C (or SIGTERM) was received; a second one ends at once."""
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return

    def remember(number: int, _frame: FrameType | None) -> None:
        if received.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        received.set()

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

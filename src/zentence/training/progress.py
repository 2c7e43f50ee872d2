"""What people see of a run, on standard error: a live bar on a terminal, plain lines elsewhere. It never fails."""

import atexit
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from numbers import Real
from time import monotonic
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from zentence.training.events import Event

Fields = list[tuple[str, str]]  # label, value; either may be empty
REDRAW_SECONDS, LINE_SECONDS = 0.25, 10.0  # between drawings, between plain lines
NARROW = 100  # columns; below, labels are shortened
_SHORT = {"distortion": "dist", "active": "act"}
_COMMON = {"distortion": "distortion", "rate": "rate", "active_units": "active", "loss": "loss"}
_STEP = {"epoch": "epoch", "speed": "tokens/s", **_COMMON, "learning_rate": "lr", "beta": "β"}
_VALIDATION = {"iw_nll": "iw", "elbo_nll": "elbo", "nll": "nll", **_COMMON}
_FORMATS = {"speed": ",.0f", "active_units": ".0f", "learning_rate": ".3g", "beta": ".3g", "factor": ".3g"}
_NOT_FIGURES = {"tick", "update", "steps", "seconds", "tokens", "code_size", "effective_samples"}


class Display(AbstractContextManager["Display"]):
    """Shows a run's events to people; a callback and a context manager. `quiet` shows warnings only."""

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet, self._out, self._began = quiet, _Output(stream), monotonic()
        self._view: _View | None = None
        self._steps: list[int] = []  # of each stage
        self._stage, self._origin = 1, (self._began, 0.0)  # number; time and tick at which it began or was resumed
        self._last: Event = {}  # step
        self._speed: float | None = None  # tokens a second, smoothed

    def __exit__(self, *_: object) -> None:
        self._out.close()

    def __call__(self, event: Event) -> None:
        """Show an event; what cannot be shown is passed over."""
        with suppress(Exception):
            if event["event"] == "warning":
                self._out.say([("warning:", _clean(event.get("message", "")))], "yellow")
            elif not self._quiet and (handle := getattr(self, f"_on_{event['event']}", None)) is not None:
                handle(event)

    def _on_reading(self, event: Event, title: str = "reading", unit: str = "bytes") -> None:
        if self._view is None or self._view.title != title:
            self._view = _View(title, monotonic() + 1.0)
        self._view.advance(_number(event, "done") or 0.0, _number(event, "total"), unit)
        self._out.show(self._view)

    def _on_evaluating(self, event: Event) -> None:
        self._on_reading(event, f"evaluating {_clean(event.get('split', ''))}", "sentences")

    def _on_start(self, event: Event) -> None:
        self._view = None
        self._out.show(None)
        resumed = [("resumed at step", _count(event, "tick"))] if event.get("resumed") else []
        self._out.say([("folder", _clean(event.get("folder", ""))), *resumed])
        if corpus := event.get("corpus"):
            self._out.say(_corpus(corpus))
        self._steps = [int(stage.get("steps", 0)) for stage in event.get("stages", [])]
        model, device = f"{_count(event, 'parameters')} parameters", _clean(event.get("device", "?"))
        self._out.say([("model", model), ("device", device), ("steps", f"{sum(self._steps):,}")])

    def _on_stage(self, event: Event) -> None:
        self._stage, self._origin = int(event.get("number", 1)), (monotonic(), _number(event, "tick") or 0.0)
        title = f"{_clean(event.get('stage', 'train'))} {self._stage}/{event.get('of', 1)}"
        self._out.say([("stage", title), ("", _clean(event.get("objective", ""))), ("steps", _count(event, "steps"))])
        self._view = _View(title)
        if self._out.console is not None:
            self._out.show(self._view)

    def _on_step(self, event: Event) -> None:
        now, seconds = monotonic(), _number(event, "seconds")
        view = self._view = self._view or _View(_clean(event.get("stage", "train")))
        view.done, view.total = _number(event, "update") or 0.0, _number(event, "steps")
        ticks = (_number(event, "tick") or 0.0) - self._origin[1]
        if ticks > 0 and view.total is not None:
            left = view.total - view.done + sum(self._steps[self._stage :])
            view.finish = now + left * (now - self._origin[0]) / ticks
        before, tokens, self._last = _number(self._last, "seconds"), _number(event, "tokens"), event
        if tokens and before is not None and seconds is not None and seconds > before:
            speed = tokens / (seconds - before)
            self._speed = speed if self._speed is None else 0.8 * self._speed + 0.2 * speed
        view.fields = self._figures({**event, "speed": self._speed}, _STEP)
        self._out.show(view)

    def _on_validation(self, event: Event) -> None:
        chosen, seconds = str(event.get("selection")), _number(event, "seconds")
        labels = {"epoch": "epoch", chosen: _VALIDATION.get(chosen, _clean(chosen)), **_VALIDATION}
        figures = self._figures(event, labels, best=chosen if event.get("improved") else "")
        trained = [("", _duration(seconds))] if seconds is not None else []
        head = [("validation", "")] if self._out.console is None else []
        self._out.say([*head, *figures, *trained], "green" if event.get("improved") else "")

    def _on_decay(self, event: Event) -> None:
        self._out.say(self._figures(event, {"epoch": "epoch", "factor": "learning rate ×"}))

    def _on_end(self, event: Event) -> None:
        self._out.close()
        trained = _duration(_number(event, "seconds") or 0.0)
        self._out.say([("finished in", _duration(monotonic() - self._began)), ("", f"({trained} of training)")])

    def _figures(self, event: Event, labels: dict[str, str], best: str = "") -> Fields:
        """Return the known figures in the labels' order, then up to three others."""
        fields, units = Fields(), _number(self._last, "code_size")
        for key, label in labels.items():
            if (value := _number(event, key)) is not None:
                shown = format(value, _FORMATS.get(key, ".2f" if abs(value) < 1e5 else ".4g"))
                size = f"/{units:.0f}" if key == "active_units" and units else ""
                fields.append((label, shown + size + " ★" * (key == best)))
        others = [(key, _number(event, key)) for key in event if key not in labels and key not in _NOT_FIGURES]
        return fields + [(_clean(key)[:24], f"{value:.4g}") for key, value in others if value is not None][:3]


@contextmanager
def progress_bar(description: str, total: int | None, *, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield update(done): a bar on standard error for work that lasts; `unit` is a plural, or `bytes`."""
    with closing(_Output(None)) as out:
        view = _View(_clean(description), monotonic() + 2.0)

        def update(done: int) -> None:
            with suppress(Exception):
                view.advance(done, total, unit)
                out.show(view)

        update(0)
        yield update


@contextmanager
def phase_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield progress(what, done, total): a bar for each thing that is computed, one after the other."""
    with ExitStack() as stack:
        shown: tuple[str, int] | None = None
        update: Callable[[int], None] = lambda _done: None  # noqa: E731

        def progress(what: str, done: int, total: int) -> None:
            nonlocal shown, update
            if shown != (what, total):
                stack.close()
                unit = "bytes" if what == "reading" else ""
                update = stack.enter_context(progress_bar(what, total, unit=unit))
                shown = (what, total)
            update(done)

        yield progress


@dataclass
class _View:
    """A bar, and figures below it."""

    title: str
    due: float = 0.0  # when to show it; off a terminal, when to print the next line
    began: float = field(default_factory=lambda: monotonic())
    done: float = 0.0
    total: float | None = None
    count: str = ""
    finish: float | None = None  # when all is done, as far as known
    fields: Fields = field(default_factory=list)

    def advance(self, done: float, total: float | None, unit: str) -> None:
        """Count work that goes at an even pace."""
        self.done, self.total, now = done, total or None, monotonic()
        scale, form, name = (1e6, ",.1f", "MB") if unit == "bytes" else (1.0, ",.0f", _clean(unit))
        self.count = f"{done / scale:{form}}" + (f"/{total / scale:{form}}" if total else "") + f" {name}"
        self.finish = now + (total - done) * (now - self.began) / done if total and done else None

    def status(self) -> Fields:
        share = f"{int(100 * min(self.done / self.total, 1.0))}%" if self.total else ""
        left = f"{_duration(self.finish - monotonic())} left" if self.finish is not None else ""
        return [("", part) for part in (share, self.count, left) if part]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, status = options.max_width, Text(f" {_line(self.status())}", no_wrap=True, overflow="ellipsis")
        title = Text(self.title, "bold", no_wrap=True, end=" ")
        title.truncate(max(8, width - status.cell_len - 6), overflow="ellipsis")
        room = width - title.cell_len - status.cell_len - 1
        yield title
        if room >= 5:
            yield ProgressBar(self.total, self.done, width=min(room, 60))
        yield status
        if self.fields:
            yield _flow(self.fields, width, no_wrap=True)


class _Output:
    """Lines, and a view below them: on a terminal a thread redraws it; elsewhere it is a line now and then."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream, self.is_stderr = stream or sys.stderr, stream is None
        self.console: Console | None = None
        self.view: _View | None = None
        self.live: Live | None = None
        self.thread: threading.Thread | None = None
        self.lock, self.closing = threading.RLock(), threading.Event()
        with suppress(Exception):  # without a working rich there are plain lines
            console = Console(file=self.stream, force_terminal=self.stream.isatty())
            console.on_broken_pipe = self.abandon  # type: ignore[method-assign]  # rich would exit
            self.console = console if console.is_terminal and not console.is_dumb_terminal else None

    def say(self, fields: Fields, style: str = "") -> None:
        if (console := self.console) is not None:
            try:
                with self.lock:
                    console.print(_flow(fields, console.width, style))
                return
            except Exception:
                self.abandon()
        with suppress(Exception):
            self.stream.write(_line(fields) + "\n")
            self.stream.flush()

    def show(self, view: _View | None) -> None:
        self.view = view
        if self.console is not None and self.thread is None and view is not None:
            self.closing.clear()
            self.thread = threading.Thread(target=self.redraw, daemon=True)
            self.thread.start()
            atexit.register(self.close)
        elif self.console is None and view is not None and monotonic() >= view.due:
            view.due = monotonic() + LINE_SECONDS
            self.say([("", view.title), *view.status(), *view.fields])

    def close(self) -> None:
        """Take the view away; lines can still be printed."""
        self.closing.set()
        if self.thread is not None:
            self.thread.join()
            atexit.unregister(self.close)
        self.thread = self.view = None
        with suppress(Exception):
            self.draw()

    def abandon(self) -> None:
        """Go on with plain lines."""
        self.console = self.view = None
        with suppress(Exception):
            self.draw()

    def redraw(self) -> None:
        try:
            while not self.closing.wait(REDRAW_SECONDS):
                self.draw()
        except Exception:
            self.abandon()

    def draw(self) -> None:
        with self.lock:
            if (view := self.view) is None or monotonic() < view.due:
                live, self.live = self.live, None
                if live is not None:
                    live.stop()
            elif self.live is not None:
                self.live.refresh()
            elif (console := self.console) is not None:  # what others print goes above, unless it goes to a file
                out, err = self.is_stderr and sys.stdout.isatty(), self.is_stderr
                self.live = Live(
                    self, console=console, auto_refresh=False, transient=True, redirect_stdout=out, redirect_stderr=err
                )
                self.live.start(refresh=True)
                console.show_cursor(True)  # a killed process could not bring it back

    def __rich__(self) -> RenderableType:
        return self.view or ""


def _flow(fields: Fields, width: int, style: str = "", no_wrap: bool = False) -> Text:
    """Return fields as text that breaks between fields, if it can."""
    text, used = Text(style=style, no_wrap=no_wrap, overflow="ellipsis" if no_wrap else "fold"), 0
    for label, value in fields:
        name = (_SHORT.get(label, label) if width < NARROW else label) + " " * bool(label and value)
        size = cell_len(name + value)
        gap = "" if not used else "  " if used + 2 + size <= width else "\n  "
        used = size + (2 if gap.startswith("\n") else used + len(gap))
        text.append(gap).append(name, "" if style else "dim").append(value)
    return text


def _line(fields: Fields) -> str:
    return "  ".join(f"{label} {value}".strip() for label, value in fields)


def _corpus(corpus: dict[str, Any]) -> Fields:
    fields: Fields = []
    for name in ("train", "valid"):
        counts = corpus.get("splits", {}).get(name, {})
        cut = ", ".join(f"{counts[what]:,} {what}" for what in ("truncated", "dropped") if counts.get(what))
        fields.append((name, f"{_count(counts, 'sentences')} sentences, {_count(counts, 'words')} words"))
        fields += [("", f"({cut})")] if cut else []
    return [*fields, ("vocabulary", _count(corpus, "vocabulary"))]


def _clean(text: object) -> str:
    """Return text from outside as one line without control characters."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in str(text))


def _number(event: Event, key: str) -> float | None:
    value = event.get(key)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def _count(event: Event, key: str) -> str:
    return "?" if (value := _number(event, key)) is None else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"

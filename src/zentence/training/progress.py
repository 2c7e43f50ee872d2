"""What people see of a run, on standard error: a live bar on a terminal, plain lines elsewhere. It never fails."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
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

REDRAW_SECONDS = 0.25
LINE_SECONDS = 10.0  # between plain lines
NARROW = 100  # columns; below, labels are shortened
_SHORT = {"distortion": "dist", "active": "act"}
_COMMON = {"distortion": "distortion", "rate": "rate", "active_units": "active", "loss": "loss"}
_STEP = {"epoch": "epoch", "speed": "tokens/s", **_COMMON, "learning_rate": "lr", "beta": "β"}
_VALIDATION = {"iw_nll": "iw", "elbo_nll": "elbo", "nll": "nll", **_COMMON}
_FORMATS = {"speed": ",.0f", "active_units": ".0f", "learning_rate": ".3g", "beta": ".3g"}
_NOT_FIGURES = {"tick", "update", "steps", "seconds", "tokens", "code_size", "effective_samples"}


class Display:
    """Shows a run's events to people; a callback and a context manager. `quiet` shows warnings only."""

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet, self._out, self._began = quiet, _Output(stream), monotonic()
        self._view: _View | None = None
        self._steps: list[int] = []  # of each stage
        self._stage, self._stage_began, self._stage_tick = 1, self._began, 0.0
        self._trained: float | None = None  # seconds of training at the last step
        self._tokens = self._seconds = 0.0  # of the last steps; older ones fade
        self._code_size: float | None = None

    def __enter__(self) -> "Display":
        return self

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
            self._view = _View(title, 1.0)
        self._view.advance(_number(event, "done") or 0.0, _number(event, "total"), unit)
        self._out.show(self._view)

    def _on_evaluating(self, event: Event) -> None:
        self._on_reading(event, f"evaluating {_clean(event.get('split', ''))}", "sentences")

    def _on_start(self, event: Event) -> None:
        self._view = None
        self._out.show(None)
        resumed = [("resumed at step", f"{event.get('tick', 0):,}")] if event.get("resumed") else []
        self._out.say([("folder", _clean(event.get("folder", ""))), *resumed])
        self._out.say(_corpus(event.get("corpus", {})))
        self._steps = [int(stage.get("steps", 0)) for stage in event.get("stages", [])]
        model, device = f"{event.get('parameters', 0):,} parameters", _clean(event.get("device", "unknown"))
        self._out.say([("model", model), ("device", device), ("steps", f"{sum(self._steps):,}")])

    def _on_stage(self, event: Event) -> None:
        steps, tick = _number(event, "steps") or 0.0, _number(event, "tick") or 0.0
        self._stage, self._stage_began, self._stage_tick = int(event.get("number", 1)), monotonic(), tick
        title = f"{_clean(event.get('stage', 'train'))} {self._stage}/{event.get('of', 1)}"
        self._out.say([("stage", title), ("", _clean(event.get("objective", ""))), ("steps", f"{steps:,.0f}")])
        self._view = _View(title)
        if self._out.console is not None:
            self._out.show(self._view)

    def _on_step(self, event: Event) -> None:
        now, seconds = monotonic(), _number(event, "seconds")
        view = self._view = self._view or _View(_clean(event.get("stage", "train")))
        view.done, view.total = _number(event, "update") or 0.0, _number(event, "steps")
        ticks = (_number(event, "tick") or 0.0) - self._stage_tick
        if ticks > 0 and view.total is not None:
            left = view.total - view.done + sum(self._steps[self._stage :])
            view.finish = now + left * (now - self._stage_began) / ticks
        if seconds is not None and self._trained is not None:
            self._tokens = 0.8 * self._tokens + (_number(event, "tokens") or 0.0)
            self._seconds = 0.8 * self._seconds + seconds - self._trained
        self._trained, self._code_size = seconds, _number(event, "code_size")
        speed = {"speed": self._tokens / self._seconds} if self._tokens and self._seconds > 0 else {}
        view.fields = self._figures({**event, **speed}, _STEP)
        self._out.show(view)

    def _on_validation(self, event: Event) -> None:
        chosen, seconds = str(event.get("selection")), _number(event, "seconds")
        labels = {"epoch": "epoch", chosen: _VALIDATION.get(chosen, _clean(chosen)), **_VALIDATION}
        figures = self._figures(event, labels, best=chosen if event.get("improved") else "")
        trained = [("", _duration(seconds))] if seconds is not None else []
        head = [("validation", "")] if self._out.console is None else []
        self._out.say([*head, *figures, *trained], "green" if event.get("improved") else "")

    def _on_decay(self, event: Event) -> None:
        epoch, decays, factor = (_clean(event.get(key, "?")) for key in ("epoch", "decays", "factor"))
        self._out.say([("epoch", epoch), ("decay", decays), ("learning rate", f"× {factor}")])

    def _on_end(self, event: Event) -> None:
        self._out.close()
        updates = _duration(_number(event, "seconds") or 0.0)
        self._out.say([("finished in", _duration(monotonic() - self._began)), ("", f"({updates} of updates)")])

    def _figures(self, event: Event, labels: dict[str, str], best: str = "") -> Fields:
        """Return the known figures in the labels' order, then up to three others."""
        fields: Fields = []
        for key, label in labels.items():
            if (value := _number(event, key)) is not None:
                shown = format(value, _FORMATS.get(key, ".2f" if abs(value) < 1e5 else ".4g"))
                size = f"/{self._code_size:.0f}" if key == "active_units" and self._code_size else ""
                fields.append((label, shown + size + " ★" * (key == best)))
        others = [(key, _number(event, key)) for key in event if key not in labels and key not in _NOT_FIGURES]
        return fields + [(_clean(key)[:24], f"{value:.4g}") for key, value in others if value is not None][:3]


@contextmanager
def progress_bar(
    description: str, total: int | None, *, unit: str, stream: TextIO | None = None
) -> Iterator[Callable[[int], None]]:
    """Yield update(done): a bar on standard error for work that lasts; `unit` is a plural, or `bytes`."""
    with closing(_Output(stream)) as out:
        view = _View(_clean(description), 2.0)

        def update(done: int) -> None:
            with suppress(Exception):
                view.advance(done, total, unit)
                out.show(view)

        update(0)
        yield update


@dataclass
class _View:
    """A bar, and figures below it."""

    title: str
    delay: float = 0.0  # until it is shown
    began: float = field(default_factory=monotonic)
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
        width, status = options.max_width, Text(_line(self.status()), no_wrap=True, overflow="ellipsis")
        title = Text(self.title, "bold", no_wrap=True, end=" ")
        title.truncate(max(8, width - status.cell_len - 12), overflow="ellipsis")
        room = width - title.cell_len - status.cell_len - 2
        yield title
        if room >= 5:
            yield ProgressBar(self.total, self.done, width=min(room, 60))
            yield Text(" ", end="")
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
        self.lock, self.closing, self.next_line = threading.RLock(), threading.Event(), 0.0
        with suppress(Exception):  # without a working rich there are plain lines
            if self.stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
                self.console = Console(file=self.stream, force_terminal=True)
                self.console.on_broken_pipe = self.abandon  # type: ignore[method-assign]  # rich would exit

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
        before, self.view, now = self.view, view, monotonic()
        if self.console is not None and self.thread is None and view is not None:
            self.closing.clear()
            self.thread = threading.Thread(target=self.redraw, daemon=True)
            self.thread.start()
            atexit.register(self.close)
        elif self.console is None and view is not None:
            self.next_line = view.began + view.delay if view is not before else self.next_line
            if now >= self.next_line:
                self.next_line = now + LINE_SECONDS
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
            if self.view is None or monotonic() < self.view.began + self.view.delay:
                live, self.live = self.live, None
                if live is not None:
                    live.stop()
            elif self.live is not None:
                self.live.refresh()
            elif self.console is not None:  # what others print goes above the view, unless it goes to a file
                out, err = self.is_stderr and sys.stdout.isatty(), self.is_stderr
                self.live = Live(
                    self,
                    console=self.console,
                    auto_refresh=False,
                    transient=True,
                    redirect_stdout=out,
                    redirect_stderr=err,
                )
                self.live.start(refresh=True)
                self.console.show_cursor(True)  # a killed process could not bring it back

    def __rich__(self) -> RenderableType:
        return self.view or ""


def _flow(fields: Fields, width: int, style: str = "", no_wrap: bool = False) -> Text:
    """Return fields as text that breaks between fields, if it can."""
    text, used = Text(style=style, no_wrap=no_wrap, overflow="ellipsis" if no_wrap else "fold"), 0
    for label, value in fields:
        name = (_SHORT.get(label, label) if width < NARROW else label) + " " * bool(label and value)
        size = cell_len(name + value)
        breaks = used + 2 + size > width
        if used:
            text.append("\n  " if breaks else "  ")
            used = 2 if breaks else used + 2
        text.append(name, "" if style else "dim").append(value)
        used += size
    return text


def _line(fields: Fields) -> str:
    return "  ".join(f"{label} {value}".strip() for label, value in fields)


def _corpus(corpus: dict[str, Any]) -> Fields:
    fields: Fields = []
    for name in ("train", "valid"):
        counts = corpus.get("splits", {}).get(name, {})
        cut = ", ".join(f"{counts[what]:,} {what}" for what in ("truncated", "dropped") if counts.get(what))
        fields.append((name, f"{counts.get('sentences', 0):,} sentences, {counts.get('words', 0):,} words"))
        fields += [("", f"({cut})")] if cut else []
    return [*fields, ("vocabulary", f"{corpus.get('vocabulary', 0):,}")]


def _clean(text: object) -> str:
    """Return text from outside as one line without control characters."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in str(text))


def _number(event: Event, key: str) -> float | None:
    value = event.get(key)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"

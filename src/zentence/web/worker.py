"""One thread owns the model; what several requests ask of it at the same time becomes one call.

A job is a list of items and the function that works on such lists. Jobs of equal key share a call: their items are
joined, and each job gets its part of the answer. Nothing waits for a full batch: while the model is busy jobs gather
by themselves, and an idle model waits a few milliseconds for company.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Condition, Thread
from time import monotonic
from typing import Any

MAX_ITEMS = 256  # of one call
MAX_WAITING = 8192  # items
GATHERING = 0.002  # seconds that an idle model waits for company
SECONDS = 30.0  # a request's time, unless a deadline says otherwise

Work = Callable[[list[Any]], Iterable[Any]]

DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)  # of this request, by the monotonic clock


class BusyError(Exception):
    """Too many requests wait, or the service is stopping."""


class TooSlowError(Exception):
    """A request's time is over."""


@dataclass
class _Job:
    key: Hashable | None  # None: never shared
    work: Work
    items: list[Any]
    answer: "Future[list[Any]]" = field(default_factory=Future)


class Worker:
    """A queue of jobs and the thread that does them; jobs in the background only when no other job waits."""

    def __init__(self, *, together: bool = True, gathering: float = GATHERING) -> None:
        self.together, self.gathering = together, gathering
        self.calls = self.jobs = 0  # that shared calls have done
        self._ready = Condition()
        self._front: deque[_Job] = deque()
        self._back: deque[_Job] = deque()
        self._waiting = 0  # items of the front queue
        self._stopped = False
        self._thread = Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def share(self, key: Hashable, work: Work, items: Iterable[Any]) -> list[Any]:
        """Return work(items), which may be done together with other items of the same key."""
        return self._wait_for(self._add(_Job(key if self.together else None, work, list(items)), self._front))

    def alone(self, work: Callable[[], Any], *, background: bool = False) -> Any:
        """Return work(), done in the model's thread by itself."""
        queue = self._back if background else self._front
        return self._wait_for(self._add(_Job(None, lambda _: [work()], [None]), queue), background)[0]

    def stop(self) -> None:
        """Finish the call at hand, and refuse what waits."""
        with self._ready:
            self._stopped = True
            self._ready.notify_all()
        self._thread.join()

    def _add(self, job: _Job, queue: deque[_Job]) -> _Job:
        with self._ready:
            if self._stopped:
                raise BusyError("The service is stopping")
            if queue is self._front:
                if self._waiting + len(job.items) > MAX_WAITING:
                    raise BusyError("Too many requests are waiting: try again in a moment")
                self._waiting += len(job.items)
            queue.append(job)
            self._ready.notify()
        return job

    def _wait_for(self, job: _Job, background: bool = False) -> list[Any]:
        limit = DEADLINE.get()
        seconds = None if background else SECONDS if limit is None else max(0.0, limit - monotonic())
        try:
            return job.answer.result(seconds)
        except TimeoutError:
            if not job.answer.done():
                job.answer.cancel()
                raise TooSlowError("This took too long: ask for less, or try again in a moment") from None
            raise
        except CancelledError:
            raise BusyError("The service is stopping") from None

    def _run(self) -> None:
        while group := self._next_group():
            going = [job for job in group if job.answer.set_running_or_notify_cancel()]
            if going:
                self._do(going)

    def _next_group(self) -> list[_Job]:
        """Return the oldest job and those that can share its call; none at the end."""
        with self._ready:
            self._ready.wait_for(lambda: self._front or self._back or self._stopped)
            if self._stopped:
                for job in (*self._front, *self._back):
                    job.answer.cancel()
                return []
            if not self._front:
                return [self._back.popleft()]
            first = self._front[0]
            if first.key is None:
                group = [first]
            else:
                self._gather()
                group, items = [], 0
                for job in self._front:
                    if job.key == first.key and (not group or items + len(job.items) <= MAX_ITEMS):
                        group.append(job)
                        items += len(job.items)
            chosen = {id(job) for job in group}
            self._front = deque(job for job in self._front if id(job) not in chosen)
            self._waiting -= sum(len(job.items) for job in group)
            return group

    def _gather(self) -> None:
        """Wait until nothing more comes, a call is full, or the time is over."""
        end = monotonic() + self.gathering
        while self._waiting < MAX_ITEMS and not self._stopped and (left := end - monotonic()) > 0.0:
            self._ready.wait(left)

    def _do(self, group: list[_Job]) -> None:
        """Answer jobs in one call; if it fails, one by one, so that a bad one fails by itself."""
        if group[0].key is not None:
            self.calls, self.jobs = self.calls + 1, self.jobs + len(group)
        try:
            done = list(group[0].work([item for job in group for item in job.items]))
        except BaseException as error:
            if len(group) == 1:
                group[0].answer.set_exception(error)
                return
            for job in group:
                self._do([job])
            return
        first = 0
        for job in group:
            job.answer.set_result(done[first : first + len(job.items)])
            first += len(job.items)

"""The worker: shared calls, failures that stay alone, time limits, and a full queue."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic, sleep
from typing import Any

import pytest

from zentence.web import worker as module
from zentence.web.worker import DEADLINE, BusyError, TooSlowError, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    found = Worker()
    yield found
    found.stop()


class Gate:
    """Keeps the model busy until it is opened, so that what comes meanwhile must gather."""

    def __init__(self, worker: Worker, pool: ThreadPoolExecutor) -> None:
        self.opened, entered = Event(), Event()

        def work() -> None:
            entered.set()
            self.opened.wait(30)

        self.held = pool.submit(worker.alone, work)
        assert entered.wait(30)


def waiting(worker: Worker, items: int) -> None:
    """Return once so many items wait."""
    end = monotonic() + 30
    while worker._waiting < items:
        assert monotonic() < end
        sleep(0.001)


def test_jobs_of_one_key_share_a_call_and_get_their_own_parts(worker: Worker) -> None:
    calls: list[list[int]] = []

    def squares(items: list[Any]) -> list[int]:
        calls.append(list(items))
        return [item * item for item in items]

    with ThreadPoolExecutor(12) as pool:
        gate = Gate(worker, pool)
        found = [pool.submit(worker.share, "squares", squares, [i, i + 100]) for i in range(5)]
        other = [pool.submit(worker.share, "others", squares, [1000 + i]) for i in range(3)]
        waiting(worker, 13)
        gate.opened.set()
        assert [future.result(30) for future in found] == [[i * i, (i + 100) ** 2] for i in range(5)]
        assert [future.result(30) for future in other] == [[(1000 + i) ** 2] for i in range(3)]
    assert sorted(map(len, calls)) == [3, 10]
    assert (worker.calls, worker.jobs) == (2, 8)


def test_without_sharing_every_job_is_a_call() -> None:
    worker = Worker(together=False)
    sizes: list[int] = []
    with ThreadPoolExecutor(6) as pool:
        gate = Gate(worker, pool)
        found = [pool.submit(worker.share, "k", lambda items: sizes.append(len(items)) or items, [i]) for i in range(4)]  # type: ignore[func-returns-value]
        waiting(worker, 4)
        gate.opened.set()
        assert [future.result(30) for future in found] == [[0], [1], [2], [3]]
    worker.stop()
    assert sizes == [1] * 4


def test_a_failure_is_its_own(worker: Worker) -> None:
    def halves(items: list[Any]) -> list[float]:
        return [1.0 / item for item in items]

    with ThreadPoolExecutor(6) as pool:
        gate = Gate(worker, pool)
        found = [pool.submit(worker.share, "halves", halves, [i]) for i in (2, 0, 4)]
        waiting(worker, 3)
        gate.opened.set()
        assert found[0].result(30) == [0.5] and found[2].result(30) == [0.25]
        with pytest.raises(ZeroDivisionError):
            found[1].result(30)
    assert worker.alone(lambda: 7) == 7


def test_a_call_has_a_limit_but_a_large_job_still_gets_done(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 4)
    sizes: list[int] = []
    with ThreadPoolExecutor(6) as pool:
        gate = Gate(worker, pool)
        found = [
            pool.submit(worker.share, "k", lambda items: sizes.append(len(items)) or items, list(range(n)))  # type: ignore[func-returns-value]
            for n in (3, 1, 9, 2)
        ]
        waiting(worker, 15)
        gate.opened.set()
        assert [len(future.result(30)) for future in found] == [3, 1, 9, 2]
    assert sum(sizes) == 15 and all(size <= 4 or size == 9 for size in sizes)


def test_time_is_over_and_a_full_queue(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    done: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        gate = Gate(worker, pool)

        def late() -> None:
            DEADLINE.set(monotonic() + 0.01)
            worker.alone(lambda: done.append(1))

        with pytest.raises(TooSlowError):
            pool.submit(late).result(30)
        with pytest.raises(BusyError):
            worker.share("k", list, range(6))
        gate.opened.set()
        gate.held.result(30)
        assert worker.alone(lambda: 3) == 3
    assert done == []  # nobody waits for it any more


def test_the_background_comes_last(worker: Worker) -> None:
    order: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        gate = Gate(worker, pool)
        back = pool.submit(worker.alone, lambda: order.append("background"), background=True)
        front = pool.submit(worker.alone, lambda: order.append("front"))
        waiting(worker, 1)
        gate.opened.set()
        back.result(30)
        front.result(30)
    assert order == ["front", "background"]


def test_a_stopped_worker_refuses() -> None:
    worker = Worker()
    worker.stop()
    with pytest.raises(BusyError):
        worker.alone(lambda: 1)

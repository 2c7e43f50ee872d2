"""The explorer in a real browser: the system's Chromium, driven by Playwright. Without them these tests are skipped."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HOSTILE = "<img src=x onerror=alert(1)> <b>bold</b> & 'quoted' \"text\""


class Explorer(NamedTuple):
    """A running page: its address, its model and its corpus."""

    address: str
    model: Path
    corpus: Path


@pytest.fixture(scope="session")
def chromium() -> str:
    pytest.importorskip("playwright", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        alone = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # root has no sandbox
        started = playwright.chromium.launch(executable_path=chromium, args=[*alone, "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def model(preloaded: Any, files: list[str], tiny: Any, tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Path:
    folder: Path = tmp_path_factory.mktemp("explored") / "model"
    preloaded("train", *files, "--out", folder, *tiny(training__max_steps=60))
    return folder


@pytest.fixture(scope="session")
def corpus(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labelled sentences, one of which would be markup if it were not escaped."""
    path: Path = tmp_path_factory.mktemp("labelled") / "corpus.tsv"
    lines = (captions / "train.txt").read_text(encoding="utf-8").splitlines()[:300]
    labelled = [f"{'long' if line.count(' ') > 8 else 'short'}\t{line}" for line in lines]
    path.write_text("\n".join([*labelled, f"short\t{HOSTILE}"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def start(zentence: Any) -> Iterator[Callable[..., str]]:
    """Return what starts `zentence explore` and gives its address; all are stopped at the end, and must stop well."""
    running: list[subprocess.Popen[str]] = []

    def started(*arguments: object) -> str:
        process = zentence.start("explore", *arguments, "--port", 0, "--no-browser", "--json")
        running.append(process)
        line = process.stdout.readline()
        assert line, process.stderr.read()
        address: str = json.loads(line)["address"]
        return address

    yield started
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "Traceback" not in said


@pytest.fixture(scope="session")
def explorer(start: Callable[..., str], model: Path, corpus: Path) -> Explorer:
    return Explorer(start(model, "--corpus", corpus), model, corpus)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Return what opens a page in a window of its own; whatever it complains of fails the test."""
    windows, complaints = [], list[str]()

    def opened(address: str, **options: Any) -> Any:
        window = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        window.grant_permissions(["clipboard-read", "clipboard-write"])
        windows.append(window)
        page = window.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        page.goto(address)
        return page

    yield opened
    for window in windows:
        window.close()
    expected = ("status of 400", "status of 401", "getImageData")  # mistakes, a missing token; tests read the canvas
    assert [said for said in complaints if not any(word in said for word in expected)] == []

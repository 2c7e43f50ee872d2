import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # started in the background of a shell: commands would inherit that Ctrl-C is ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def token_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests' token cache out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZENTENCE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


class Finished(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


class Zentence:
    """The command as users call it: its real entry point, in a process of its own, with one thread."""

    path = Path(sys.executable).parent / "zentence"

    def start(self, *arguments: object, command: Sequence[str] = (), **options: Any) -> "subprocess.Popen[str]":
        """Start a command and return at once."""
        words = [*(command or [str(self.path)]), *map(str, arguments)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, text=True, encoding="utf-8", env=env, **{**pipes, **options})

    def __call__(
        self, *arguments: object, stdin: str | bytes = "", timeout: float = 120, expect: int | None = 0, **options: Any
    ) -> Finished:
        """Run a command to its end; unless `expect` is None, it must exit with that code."""
        with self.start(*arguments, **{"stdin": subprocess.PIPE, **options}) as process:
            try:
                out, err = process.communicate(stdin, timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert expect is None or process.returncode == expect, err or out
        return Finished(process.returncode, out, err)


@pytest.fixture(scope="session")
def zentence() -> Zentence:
    return Zentence()


class Preloaded:
    """The same commands in children of a process that has imported torch already: for many short runs."""

    _SERVER = """
import gc, json, os, sys, zentence.cli, zentence.latent.space, zentence.training.run
gc.freeze()
for line in sys.stdin:
    job = json.loads(line)
    if (child := os.fork()) == 0:
        os.chdir(job["cwd"])
        for number, path in enumerate(job["files"]):
            os.dup2(os.open(path, os.O_RDWR), number)
        sys.argv, sys.stdin = ["zentence", *job["arguments"]], open(0)
        try:
            zentence.cli.main()
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code or 0)  # quicker than the end of an interpreter with torch
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self, folder: Path) -> None:
        self.files = [folder / name for name in ("stdin", "stdout", "stderr")]
        command = [sys.executable, "-c", self._SERVER]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.server = subprocess.Popen(command, text=True, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *arguments: object, cwd: Path = Path("/"), stdin: str = "", expect: int = 0) -> Finished:
        """Run a command to its end."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        for file, content in zip(self.files, (stdin, "", ""), strict=True):
            file.write_text(content, encoding="utf-8")
        job = {"arguments": [str(word) for word in arguments], "cwd": str(cwd), "files": list(map(str, self.files))}
        print(json.dumps(job), file=self.server.stdin, flush=True)
        code = int(self.server.stdout.readline())
        out, err = (file.read_text(encoding="utf-8") for file in self.files[1:])
        assert code == expect, err or out
        return Finished(code, out, err)

    def close(self) -> None:
        """End the process."""
        self.server.communicate(timeout=60)


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    server = Preloaded(tmp_path_factory.mktemp("preloaded"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def captions(zentence: Zentence, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 360, 20 and 20 sentences whose source is known."""
    folder = tmp_path_factory.mktemp("corpora") / "captions"
    zentence("corpus", "make", "captions", "--sentences", 400, "--out", folder)
    return folder


def tiny_options(recipe: str = "default", **changes: object) -> list[str]:
    """Return options of `train` for a model that trains in a second; changes as `decoder__cell="gru"`."""
    settings: dict[str, object] = {
        "decoder.embedding_size": 8,
        "decoder.hidden_size": 12,
        "training.batch_tokens": 256,
        "training.tensorboard": "no",
        "training.max_steps": 20,
        "training.threads": 1,
        "evaluation.samples": 5,
    }
    if recipe != "language-model":
        settings |= {"encoder.embedding_size": 8, "encoder.hidden_size": 12, "posterior.size": 4}
    settings |= {name.replace("__", "."): value for name, value in changes.items()}
    return ["--recipe", recipe, *(word for name, value in settings.items() for word in ("--set", f"{name}={value}"))]


@pytest.fixture(scope="session")
def tiny() -> Any:
    return tiny_options


@pytest.fixture(scope="session")
def files(captions: Path) -> list[str]:
    """The arguments of `train` that name the corpus."""
    return [f"{captions}/train.txt", "--valid", f"{captions}/valid.txt"]

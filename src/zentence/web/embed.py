"""t-SNE in a process of its own: its library holds the interpreter for long stretches, in which no request would move.

`python -m zentence.web.embed` reads codes [N, D] as a NumPy file and writes points [N, 2] as one.
"""

import io
import os
import subprocess
import sys
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.latent.maps import Points, tsne

NICE = 10  # requests come first


class Embedding:
    """A child process that places codes, and can be ended."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def place(self, codes: NDArray[Any]) -> Points:
        """Return the t-SNE coordinates [N, 2] of codes [N, D], as `maps.tsne` does."""
        with self._lock:
            if self._stopped:
                raise ZentenceError("The service is stopping")
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self._child = subprocess.Popen([sys.executable, "-m", "zentence.web.embed"], **pipes)
        given = io.BytesIO()
        np.save(given, np.asarray(codes), allow_pickle=False)
        written, said = self._child.communicate(given.getvalue())
        if self._child.returncode != 0:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            raise ZentenceError(lines[-1] if lines else "t-SNE was ended")
        points: Points = np.load(io.BytesIO(written), allow_pickle=False)
        return points

    def stop(self) -> None:
        """End the child."""
        with self._lock:
            self._stopped = True
            if self._child is not None and self._child.poll() is None:
                self._child.kill()


def main() -> int:
    """Read codes, write points; a mistake is the last line on standard error."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    try:
        points = tsne(np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False))
    except ZentenceError as error:
        print(error, file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"{error.name} is not installed (pip install 'zentence[tasks]')", file=sys.stderr)
        return 2
    made = io.BytesIO()
    np.save(made, points, allow_pickle=False)  # NumPy asks a real file for its position, which a pipe has not
    sys.stdout.buffer.write(made.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What an interrupted evaluation has computed so far, so that it can go on.

A journal is a folder of small files, each written atomically: arrays, and JSON held as text. Its name is a hash of all
that the figures depend on, so that entries of other weights, texts or options are never read.
"""

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from zentence.errors import ZentenceError
from zentence.files import write_atomically

FOLDER = ".evaluation"
STALE_SECONDS = 7 * 24 * 3600
Arrays = dict[str, np.ndarray]


def journal_key(**parts: Any) -> str:
    """Return a hexadecimal key that depends on every (JSON-able) part."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


class Journal:
    """Entries by name; without a folder nothing is kept."""

    def __init__(
        self, model_folder: Path | None = None, key: str = "", warn: Callable[[str], None] | None = None
    ) -> None:
        self.folder = None if model_folder is None else model_folder / FOLDER / key
        self._warn = warn or (lambda _message: None)

    def get(self, name: str) -> Arrays | None:
        """Return an entry, or None if there is none; a damaged one is removed with a warning."""
        if self.folder is None or not (path := self._path(name)).is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as content:
                return {key: content[key] for key in content.files}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            self._warn(f"An entry of the evaluation's journal is damaged ({error}): it is computed again")
            path.unlink(missing_ok=True)
            return None

    def put(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep an entry."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ZentenceError(f"Cannot write {self.folder}: {error.strerror or error}") from error
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomically(self._path(name), buffer.getvalue())

    def get_json(self, name: str) -> Any:
        """Return an entry that `put_json` kept, or None."""
        found = self.get(name)
        if found is None or "json" not in found:
            return None
        return json.loads(str(found["json"]))

    def put_json(self, name: str, content: Any) -> None:
        """Keep plain values."""
        self.put(name, {"json": np.array(json.dumps(content))})

    def remove(self) -> None:
        """Forget everything: the evaluation is complete. Journals that nobody went on with for a week go too."""
        if self.folder is None:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # another evaluation may be tidying up as well
            for other in self.folder.parent.iterdir():
                if time.time() - other.stat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(other, ignore_errors=True)
            self.folder.parent.rmdir()  # fails while others are there

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.npz"

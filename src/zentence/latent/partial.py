"""A file that grows beside its final name, with a journal of how far it got: a run that was ended can go on."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from zentence.errors import ZentenceError
from zentence.files import write_atomically

try:
    import fcntl
except ImportError:  # Windows: two runs into one file are not noticed there
    fcntl = None  # type: ignore[assignment]

FORMAT = 1


class PartialFile:
    """What `out` will be, as `.out.partial`, until `finish` gives it its name; `.out.journal` says how far it got.

    `identity` is everything that the content follows from, as plain JSON values by name: a journal with another one is
    not gone on from, and `restarted` names what differs. Without an identity (standard input) nothing is kept.
    `rows` are the rows done, `notes` what was remembered with them. `head` is what the file begins with.

    As a context manager it removes both files at the end and when the input is wrong, and leaves them behind when it is
    interrupted or cannot write.
    """

    def __init__(self, out: Path, identity: Mapping[str, Any] | None, head: bytes = b"") -> None:
        self.out, self.identity, self.head = out, dict(identity) if identity is not None else None, head
        suffix = "partial" if identity is not None else f"{os.getpid()}.partial"
        self.path, self.journal = out.with_name(f".{out.name}.{suffix}"), out.with_name(f".{out.name}.journal")
        self.rows, self.notes = 0, dict[str, Any]()
        self.restarted: str | None = None
        try:
            self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        except OSError as error:
            raise self._cannot(error) from error
        self._lock()
        size = self._resume() if self.identity is not None else None
        try:
            self._file.truncate(0 if size is None else size)
            if size is None:
                self._file.write(head)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._cannot(error) from error

    def __enter__(self) -> "PartialFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()
        wrong = isinstance(error, ZentenceError) and not isinstance(error, _CannotWriteError)
        if error is None or wrong or self.identity is None or self.rows == 0:
            for path in (self.path, self.journal) if self.identity is not None else (self.path,):
                with suppress(OSError):
                    path.unlink()

    def append(self, data: bytes, rows: int, notes: Mapping[str, Any] | None = None) -> None:
        """Add rows; once this returns, a later run need not make them again."""
        try:
            self._file.write(data)
            self._file.flush()
            self.rows += rows
            self.notes = dict(notes or {})
            if self.identity is not None:
                os.fsync(self._file.fileno())
                done = {"rows": self.rows, "bytes": self._file.tell(), "notes": self.notes}
                content = {"format": FORMAT, "identity": self.identity, **done}
                write_atomically(self.journal, json.dumps(content, ensure_ascii=False))
        except OSError as error:
            raise self._cannot(error) from error
        except ZentenceError as error:  # of the journal
            raise _CannotWriteError(str(error)) from error

    def finish(self, head: bytes | None = None) -> None:
        """Give the file its name, with another head (of the same length) if one is given."""
        if head is not None and len(head) != len(self.head):
            raise ValueError("a head of another length")
        try:
            if head is not None:
                self._file.seek(0)
                self._file.write(head)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.path.replace(self.out)
        except OSError as error:
            raise self._cannot(error) from error

    def _lock(self) -> None:
        """Refuse to write where another process does."""
        if fcntl is None or self.identity is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(self._file.fileno()).st_ino == self.path.stat().st_ino  # not renamed meanwhile
        except BlockingIOError:
            same = False
        except OSError:
            return  # a file system without locks
        if not same:
            self._file.close()
            raise ZentenceError(f"Another process is writing {self.out}: wait for it, or choose another name")

    def _resume(self) -> int | None:
        """Return the size of what may be kept of the partial file, and take over what the journal says; else None."""
        try:
            content = json.loads(self.journal.read_text(encoding="utf-8"))
            found, rows, size, notes = (content[name] for name in ("identity", "rows", "bytes", "notes"))
            differing = sorted(name for name in {*found, *self.identity} if found.get(name) != self.identity.get(name))  # type: ignore[misc,union-attr]
            whole = content["format"] == FORMAT and len(self.head) <= size <= self.path.stat().st_size and rows > 0
            notes = dict(notes)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            differing, whole = [], False
        if differing or not whole:
            why = f"another {' and '.join(differing)}" if differing else "a damaged journal"
            self.restarted = f"a run that was interrupted left a part of {self.out}, but with {why}: starting anew"
            return None
        self.rows, self.notes = int(rows), notes
        return int(size)

    def _cannot(self, error: OSError) -> "_CannotWriteError":
        return _CannotWriteError(f"Cannot write {self.out}: {error.strerror or error}")


class _CannotWriteError(ZentenceError):
    """A full disk and the like: what was done is kept."""

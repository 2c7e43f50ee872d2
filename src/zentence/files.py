"""Writing files so that they are either whole or not there."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from zentence.errors import ZentenceError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file through a temporary sibling; on any failure what was there before is still there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    data = content.encode() if isinstance(content, str) else content
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ZentenceError(f"Cannot write {path}: {error.strerror or error}") from error


@contextmanager
def open_atomically(path: Path) -> Iterator[TextIO]:
    """Yield a text file to stream into; it takes its name only when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ZentenceError(f"Cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()

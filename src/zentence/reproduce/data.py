"""The corpora that rows name, and their files below a data folder."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zentence.errors import ZentenceError, suggestion

Split = Literal["valid", "test"]
VARIABLE = "ZENTENCE_DATA"


@dataclass(frozen=True)
class CorpusFiles:
    """Where a corpus stands in a data folder, and what it is called in tables."""

    title: str
    pattern: str  # of its files, by split
    tokens: int  # words and <eos> of its training split, for estimates of time


CORPORA = {
    "ptb": CorpusFiles("PTB", "ptb/ptb.{split}.txt", 929_589),
    "snli": CorpusFiles("SNLI mix", "snli/snli.{split}.txt", 1_175_886),
    "yelp": CorpusFiles("Yelp, short reviews", "yelp/yelp.{split}.tsv", 1_052_246),
    "yahoo": CorpusFiles("Yahoo, re-split", "yahoo/yahoo.{split}.txt", 1_278_313),
}
"""Where a text differs from the papers', so does its title: figures are then not compared by number."""


@dataclass(frozen=True)
class RowFiles:
    """The files of a row's corpora, one a corpus."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    test: tuple[Path, ...]  # only where it is measured


def check_corpora(row: str, keys: Sequence[str]) -> None:
    """Refuse an unknown corpus."""
    for key in keys:
        if key not in CORPORA:
            raise ZentenceError(f"{row}: unknown corpus '{key}'.{suggestion(key, CORPORA)}")


def data_folder(given: Path | None) -> Path:
    """Return the data folder: as given, or the environment's."""
    found = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if found is None:
        raise ZentenceError(f"Where is the data? Give --data DIR, or set {VARIABLE}")
    if not found.is_dir():
        raise ZentenceError(f"There is no data folder {found}: give --data DIR")
    return found


def row_files(folder: Path, keys: Sequence[str], split: Split) -> RowFiles:
    """Return the files of corpora; a missing one is named."""
    found: dict[str, list[Path]] = {"train": [], "valid": [], "test": []}
    for key in keys:
        for name in ("train", "valid") if split == "valid" else ("train", "valid", "test"):
            path = folder / CORPORA[key].pattern.format(split=name)
            if not path.is_file():
                raise ZentenceError(f"Missing data: {path} ({CORPORA[key].title}, one sentence a line)")
            found[name].append(path)
    return RowFiles(tuple(found["train"]), tuple(found["valid"]), tuple(found["test"]))


def split_names(keys: Sequence[str], split: Split) -> dict[str, str]:
    """Return the name that each corpus's split has in a prepared corpus: its own where several are joined."""
    if len(keys) == 1:
        return {keys[0]: split}
    return {key: f"{split}/{Path(CORPORA[key].pattern.format(split=split)).stem}" for key in keys}


def text_name(key: str, split: Split) -> str:
    """Return what a corpus's split is called in tables, for example `PTB test`."""
    return f"{CORPORA[key].title} {'validation' if split == 'valid' else 'test'}"

"""The true source of a corpus, where it is known: the figure that no model can pass."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from zentence.corpora.captions import load_source
from zentence.corpora.readers import is_stream, read_sentences
from zentence.corpora.splitting import Shares


class Origin(NamedTuple):
    """Where sentences of a split come from: a file, or one side of a file that was split."""

    path: Path
    labelled: bool = False
    shares: Shares | None = None
    side: str = "all"

    def texts(self) -> Iterator[str]:
        """Yield the sentences as they stand in the text."""
        for line in read_sentences(self.path, "yes" if self.labelled else "no"):
            if self.shares is None or self.side in ("all", self.shares.side(line.text)):
                yield line.text


def source_nll(origins: Sequence[Origin], limit: int | None = None) -> Iterator[float] | None:
    """Return −log p in nats of each sentence under the source that the files' folder describes; none without one."""
    folders = {origin.path.parent for origin in origins}
    if len(folders) != 1 or any(is_stream(origin.path) for origin in origins):
        return None
    grammar = load_source(folders.pop())
    if grammar is None:
        return None
    texts = (text for origin in origins for text in origin.texts())
    return (-grammar.log_prob(text) for text in islice(texts, limit))

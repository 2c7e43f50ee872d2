"""From text files to memory-mapped tokens to batches. Names are loaded when used: reading text needs no torch.

`prepare` is not among them, since a module has that name: `from zentence.corpora.prepare import prepare`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zentence.corpora.batching import Batches as Batches
    from zentence.corpora.batching import collate as collate
    from zentence.corpora.batching import stored_batch as stored_batch
    from zentence.corpora.ledger import Ledger as Ledger
    from zentence.corpora.prepare import Corpus as Corpus
    from zentence.corpora.prepare import open_split as open_split
    from zentence.corpora.readers import Line as Line
    from zentence.corpora.readers import read_sentences as read_sentences
    from zentence.corpora.sentences import split_documents as split_documents
    from zentence.corpora.store import TokenStore as TokenStore
    from zentence.corpora.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    "Batches": "batching",
    "collate": "batching",
    "stored_batch": "batching",
    "Ledger": "ledger",
    "Corpus": "prepare",
    "open_split": "prepare",
    "Line": "readers",
    "read_sentences": "readers",
    "split_documents": "sentences",
    "TokenStore": "store",
    "Vocabulary": "vocabulary",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

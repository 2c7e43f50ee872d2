"""The tokeniser that pre-trained weights came with, as a `Vocabulary` like any other.

Its tokens keep their spelling and the way text is cut into them; they are only numbered anew, because everything here
relies on `<pad> <bos> <eos> <unk>` being 0 to 3. Where the tokeniser has tokens of that meaning ([CLS], </s>, …), they
become these four; where it has none, they are added. `huggingface.load_weights` finds each token's embedding again by
its spelling.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from zentence.corpora.vocabulary import Vocabulary
from zentence.errors import ZentenceError
from zentence.huggingface import special_names
from zentence.special import SPECIAL_WORDS, UNK

_NUMBERED = ("BPE", "WordPiece", "WordLevel")  # models whose vocabulary is a table from tokens to ids
_RARE = -100.0  # score of a token that text is never cut into


def read_pretrained(folder: Path) -> Vocabulary:
    """Return the vocabulary in a directory of weights: its tokenizer.json, with our special words."""
    path = folder / "tokenizer.json"
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        ids = Tokenizer.from_str(text).get_vocab(with_added_tokens=True)
    except FileNotFoundError:
        raise ZentenceError(f"{folder} has no tokenizer.json: set corpus.tokenizer = 'bpe'") from None
    except Exception as error:  # the library raises nothing more special
        raise ZentenceError(f"{path} is not a tokeniser: {' '.join(str(error).split())}") from error
    ours = {*SPECIAL_WORDS, *(name for name in special_names(folder, ids) if name is not None)}
    words = (*SPECIAL_WORDS, *(word for word in sorted(ids, key=ids.__getitem__) if word not in ours))
    content |= {"post_processor": None, "truncation": None, "padding": None}
    _renumber(content["model"], words, path)
    _mark_special(content, {word: number for number, word in enumerate(words)})
    vocabulary = Vocabulary.from_json(json.dumps(content), str(path))
    _check(vocabulary, path)
    return vocabulary


def _renumber(model: dict[str, Any], words: tuple[str, ...], path: Path) -> None:
    """Number a model's tokens in the order of `words`; the unknown word is ours."""
    if model.get("type") in _NUMBERED:
        model["vocab"] = {word: number for number, word in enumerate(words)}
        model["unk_token"] = SPECIAL_WORDS[UNK]
    elif model.get("type") == "Unigram":
        scores = dict(map(tuple, model["vocab"]))
        model["vocab"] = [[word, scores.get(word, _RARE)] for word in words]
        model["unk_id"] = UNK
    else:
        raise ZentenceError(
            f"{path}: a tokeniser of kind '{model.get('type')}' cannot be used: take corpus.tokenizer = 'bpe'"
        )


def _mark_special(content: dict[str, Any], numbers: dict[str, int]) -> None:
    """Let our special words stand for themselves wherever text spells them, and be written as words."""
    kept = [entry for entry in content.get("added_tokens") or () if entry["content"] in numbers]
    others = [{**entry, "id": numbers[entry["content"]]} for entry in kept if entry["content"] not in SPECIAL_WORDS]
    bytes_ = (content.get("decoder") or {}).get("type") == "ByteLevel"
    flags = {"single_word": True, "lstrip": bytes_, "rstrip": False, "normalized": False, "special": True}
    ours = [{"id": number, "content": word, **flags} for number, word in enumerate(SPECIAL_WORDS)]
    content["added_tokens"] = [*ours, *sorted(others, key=lambda entry: entry["id"])]
    if bytes_:  # "Ġ" is the byte level's space, which the unknown word took with it
        unknown = SPECIAL_WORDS[UNK]
        mark = {"type": "Replace", "pattern": {"String": unknown}, "content": f"Ġ{unknown}"}
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        content["decoder"] = {"type": "Sequence", "decoders": [mark, content["decoder"], strip]}


def _check(vocabulary: Vocabulary, path: Path) -> None:
    """Refuse a tokeniser that does not read the unknown word as one token."""
    (row,) = vocabulary.encode_batch([f"a {SPECIAL_WORDS[UNK]} b"])
    if np.count_nonzero(row == UNK) < 1 or len(row) < 2:
        raise ZentenceError(f"{path} has no place for the unknown word: take corpus.tokenizer = 'bpe'")

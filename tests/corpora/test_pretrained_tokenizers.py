"""Tokenisers of pre-trained weights behind `Vocabulary`, and two of them for one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from zentence.corpora import Batches, TokenStore, Vocabulary, collate, stored_batch
from zentence.corpora.prepare import prepare
from zentence.corpora.pretrained import read_pretrained
from zentence.errors import ZentenceError
from zentence.settings import CorpusSettings

TEXT = ["the dog barks loudly", "a dog", "the cat sat on the mat", "<unk> barks", "the <unk> dog sat"]


def word_piece(folder: Path) -> Path:
    """A tokeniser as BERT has it."""
    words = [
        "[PAD]",
        "[unused]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "the",
        "dog",
        "bark",
        "##s",
        "a",
        "cat",
        "sat",
        "on",
        "mat",
    ]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $0 [SEP]", special_tokens=[("[CLS]", 3), ("[SEP]", 4)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_padding(length=16)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def byte_pairs(folder: Path, end: str = "<|endoftext|>") -> Path:
    """A tokeniser as GPT-2 has it: one token for beginning and end, none for padding and unknown words."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "Ġt", "Ġth", "Ġthe", "Ġd", "Ġdo", "Ġdog", end]
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("Ġ", "d"), ("Ġd", "o"), ("Ġdo", "g")]
    tokenizer = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(end, special=True)])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def unigram(folder: Path) -> Path:
    """A tokeniser as T5 has it."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁the", -2.0), ("▁dog", -3.0), ("▁", -4.0)]
    pieces += [(letter, -5.0) for letter in "abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.Unigram(pieces, 2, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def pieces(vocabulary: Vocabulary, text: str) -> list[str]:
    return [vocabulary.words[number] for number in vocabulary.encode_batch([text])[0]]


def test_text_is_cut_as_before_and_our_four_words_come_first(tmp_path: Path) -> None:
    vocabulary = read_pretrained(word_piece(tmp_path / "bert"))
    assert vocabulary.words[:5] == ("<pad>", "<bos>", "<eos>", "<unk>", "[unused]") and len(vocabulary) == 14
    assert pieces(vocabulary, "The dog barks") == ["the", "dog", "bark", "##s"]
    assert pieces(vocabulary, "the zebra <unk>") == ["the", "<unk>", "<unk>"]
    assert vocabulary.lower_case
    again = read_pretrained(byte_pairs(tmp_path / "gpt2"))
    assert again.words[:4] == ("<pad>", "<bos>", "<eos>", "<unk>") and "<|endoftext|>" not in again.words
    assert pieces(again, "the dog") == ["t", "h", "e", "Ġdog"]
    third = read_pretrained(unigram(tmp_path / "t5"))
    assert pieces(third, "the dog") == ["▁the", "▁dog"] and third.words[:4] == again.words[:4]


@pytest.mark.parametrize("make", [byte_pairs, unigram])
def test_what_is_read_is_written_back(tmp_path: Path, make: Any) -> None:
    vocabulary = read_pretrained(make(tmp_path / "weights"))
    for text in ("the dog", "a cat sat", "dogs bark at the dog"):
        ids = vocabulary.encode_batch([text])[0]
        assert vocabulary.decode(ids) == text and ids.min() > 3


def test_the_unknown_word_is_a_word_of_byte_pairs_too(tmp_path: Path) -> None:
    vocabulary = read_pretrained(byte_pairs(tmp_path / "weights"))
    for text in ("the <unk> dog", "<unk> dog", "a <unk>", "<unk> <unk>"):
        ids = vocabulary.encode_batch([text])[0]
        assert (ids == 3).sum() == text.count("<unk>") and vocabulary.decode(ids) == text


def test_declared_tokens_go_before_the_usual_spellings(tmp_path: Path) -> None:
    folder = byte_pairs(tmp_path / "weights", end="<|stop|>")
    assert "<|stop|>" in read_pretrained(folder).words
    declared = {"bos_token": {"content": "<|stop|>"}, "eos_token": "<|stop|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(declared), encoding="utf-8")
    assert "<|stop|>" not in read_pretrained(folder).words


def test_unusable_tokenisers_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    with pytest.raises(ZentenceError, match=r"has no tokenizer\.json"):
        read_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ZentenceError, match="is not a tokeniser") as caught:
        read_pretrained(folder)
    assert "\n" not in str(caught.value)


@pytest.fixture
def both(tmp_path: Path) -> Vocabulary:
    return read_pretrained(byte_pairs(tmp_path / "gpt2")).with_encoder(read_pretrained(word_piece(tmp_path / "bert")))


def test_two_tokenisers_are_saved_and_loaded_together(both: Vocabulary, tmp_path: Path) -> None:
    both.save(tmp_path / "tokenizer.json")
    assert {path.name for path in tmp_path.glob("*.json")} == {"tokenizer.json", "encoder_tokenizer.json"}
    again = Vocabulary.load(tmp_path / "tokenizer.json")
    assert again.hash == both.hash and again.sizes == both.sizes == (len(both), 14)
    assert again.with_encoder(None).hash != both.hash
    again.with_encoder(None).save(tmp_path / "tokenizer.json")
    assert Vocabulary.load(tmp_path / "tokenizer.json").encoder is None


def test_a_store_holds_a_sentence_as_both_parts_read_it(both: Vocabulary, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(TEXT * 3) + "\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    corpus = prepare(CorpusSettings(), [tmp_path / "train.txt"], [tmp_path / "valid.txt"], vocabulary=both)
    store = corpus.splits["valid"]
    assert both.encoder is not None
    read, written = both.encoder.encode_batch(TEXT), both.encode_batch(TEXT)
    assert store.longest_source == max(map(len, read)) and store.longest == max(map(len, written))
    batch = stored_batch(store, np.arange(len(TEXT)))
    expected = collate(written, np.arange(len(TEXT)), sources=read)
    for found, wanted in ((batch.source, expected.source), (batch.target, expected.target)):
        assert np.array_equal(found.ids, wanted.ids) and np.array_equal(found.lengths, wanted.lengths)
    assert batch.source.ids.max() < 14 <= batch.target.ids.max()
    (epoch,) = Batches(TokenStore(store.folder), sentences=100, shuffle=False).epoch(0)
    rows = {
        int(i): row[1 : n - 1].tolist()
        for i, row, n in zip(epoch.index, epoch.source.ids, epoch.source.lengths, strict=True)
    }
    assert rows == {number: row.tolist() for number, row in enumerate(read)}
    assert store.ledger.words == sum(len(line.split()) for line in TEXT)
    assert store.ledger.tokens == sum(map(len, written)) and store.ledger.unknown == 2

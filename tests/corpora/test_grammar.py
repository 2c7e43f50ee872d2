import hashlib
import json
import math
import re
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from zentence.corpora.captions import FILES, captions, load_source, make_corpus
from zentence.corpora.grammar import Grammar, Sentence
from zentence.errors import ZentenceError

TINY: dict[str, Any] = {
    "name": "tiny",
    "version": 3,
    "attributes": [
        ["number", [[2, "", "one"], [1, "", "many"]]],
        ["tense", [[1, "one", "now"], [3, "one", "then"], [1, "many", "then"]]],
    ],
    "symbols": {
        "start": [[3, "", "<who> <verb> <where> ."], [1, "then", "once <who> <verb> ."]],
        "who": [[2, "one", "a <animal>"], [1, "one", "my friend"], [5, "many", "two <animals>"], [1, "many", "we"]],
        "verb": [[1, "one now", "sings"], [2, "one now", "sits"], [1, "then", "sang"]],
        "animal": [[4, "", "cat"], [3, "", "dog"]],
        "animals": [[4, "", "cats"], [3, "", "dogs"]],
        "where": [[6, "", ""], [3, "", "here"], [1, "", "over there"]],
    },
}


def plain(symbols: dict[str, list[list[object]]], attributes: list[object] | None = None) -> dict[str, object]:
    return {"name": "plain", "version": 1, "attributes": attributes or [], "symbols": symbols}


def settings_of(data: dict[str, Any]) -> list[tuple[tuple[str, ...], float]]:
    found: list[tuple[tuple[str, ...], float]] = [((), 1.0)]
    for _, options in data["attributes"]:
        grown = []
        for values, chance in found:
            able = [(weight, value) for weight, when, value in options if holds(when, values)]
            total = sum(weight for weight, _ in able)
            grown += [((*values, value), chance * weight / total) for weight, value in able]
        found = grown
    return found


def holds(when: str, values: tuple[str, ...]) -> bool:
    return all(any(option in values for option in term.split("/")) for term in when.split())


def enumerate_sentences(data: dict[str, Any]) -> list[tuple[str, float]]:
    """Every derivation with its probability, by plain expansion."""

    def expand(item: str, values: tuple[str, ...]) -> list[tuple[str, float]]:
        if not item.startswith("<"):
            return [(item, 1.0)]
        able = [(w, text.split()) for w, when, text in data["symbols"][item[1:-1]] if holds(when, values)]
        total = sum(w for w, _ in able)
        found = []
        for weight, items in able:
            for parts in product(*(expand(part, values) for part in items)):
                text = " ".join(word for word, _ in parts if word)
                found.append((text, weight / total * math.prod(p for _, p in parts)))
        return found

    return [(text, chance * p) for values, chance in settings_of(data) for text, p in expand("<start>", values)]


def inside(data: dict[str, Any], text: str, *, count: bool = False) -> float:
    """Total probability, or with `count` the number, of all derivations of a text: the inside algorithm."""
    words = text.split()
    total = 0.0
    for values, chance in settings_of(data):

        @cache
        def ends(item: str, at: int, values: tuple[str, ...] = values) -> dict[int, float]:
            if not item.startswith("<"):
                return {at + 1: 1.0} if at < len(words) and words[at] == item else {}
            able = [(weight, body) for weight, when, body in data["symbols"][item[1:-1]] if holds(when, values)]
            found: dict[int, float] = defaultdict(float)
            for weight, body in able:
                spans = {at: 1.0 if count else weight / sum(weight for weight, _ in able)}
                for part in body.split():
                    grown: dict[int, float] = defaultdict(float)
                    for begin, ways in spans.items():
                        for end, more in ends(part, begin).items():
                            grown[end] += ways * more
                    spans = grown
                for end, ways in spans.items():
                    found[end] += ways
            return found

        total += (1 if count else chance) * ends("<start>", 0).get(len(words), 0)
    return total


@pytest.fixture(scope="module")
def tiny() -> Grammar:
    return Grammar.from_json(TINY)


@pytest.fixture(scope="module")
def samples() -> list[Sentence]:
    return list(captions().sample(50_000, seed=1))


def test_probabilities_of_a_tiny_grammar_are_those_of_its_expansion(tiny: Grammar) -> None:
    sentences = enumerate_sentences(TINY)
    assert len(sentences) == len(dict(sentences)) > 40
    assert math.fsum(math.exp(tiny.log_prob(text)) for text, _ in sentences) == pytest.approx(1, abs=1e-12)
    for text, probability in sentences:
        assert tiny.log_prob(text) == pytest.approx(math.log(probability), abs=1e-12)
    assert tiny.words == {word for text, _ in sentences for word in text.split()}


def test_entropy_and_length_of_a_tiny_grammar_are_those_of_its_expansion(tiny: Grammar) -> None:
    sentences = enumerate_sentences(TINY)
    assert tiny.entropy == pytest.approx(-math.fsum(p * math.log(p) for _, p in sentences), abs=1e-12)
    assert tiny.mean_length == pytest.approx(math.fsum(p * len(text.split()) for text, p in sentences), abs=1e-12)


def test_samples_of_a_tiny_grammar_have_its_frequencies(tiny: Grammar) -> None:
    count = 20_000
    seen = Counter(sentence.text for sentence in tiny.sample(count, seed=5))
    expected = dict(enumerate_sentences(TINY))
    assert set(seen) <= set(expected)
    chi_square = sum((seen[text] - count * p) ** 2 / (count * p) for text, p in expected.items())
    assert abs(chi_square - (len(expected) - 1)) < 5 * math.sqrt(2 * len(expected))


def test_a_sentence_the_grammar_cannot_make_has_probability_zero(tiny: Grammar) -> None:
    for text in [
        "",
        "a cat",
        "a cat sings . .",
        "a cat sings  .",
        " a cat sings .",
        "a cat sings . ",
        "we sings .",
        "x",
    ]:
        assert tiny.log_prob(text) == -math.inf
        assert tiny.attributes(text) is None


def test_attributes_come_from_the_derivation(tiny: Grammar) -> None:
    assert tiny.attributes("a cat sings .") == {"number": "one", "tense": "now"}
    assert tiny.attributes("once we sang .") == {"number": "many", "tense": "then"}


@pytest.mark.parametrize(
    "data",
    [
        plain({"start": [[1, "", "a b"], [1, "", "<x> b"]], "x": [[1, "", "a"], [1, "", "c"]]}),
        plain({"start": [[1, "", "a"], [1, "", "a"]]}),
        plain({"start": [[1, "", "<x> <x> ."]], "x": [[1, "", ""], [1, "", "a"]]}),
        plain(
            {"start": [[1, "", "<x> <y>"]], "x": [[1, "", "a"], [1, "", "a b"]], "y": [[1, "", "c"], [1, "", "b c"]]}
        ),
        plain({"start": [[1, "red", "a"], [1, "", "b"]]}, [["hue", [[1, "", "red"], [1, "", "blue"]]]]),
    ],
)
def test_an_ambiguous_grammar_is_refused(data: dict[str, object]) -> None:
    assert max(inside(data, text, count=True) for text, _ in enumerate_sentences(data)) > 1
    with pytest.raises(ZentenceError, match="two derivations"):
        Grammar.from_json(data)


def test_words_that_only_the_rest_of_a_sentence_tells_apart_are_not_ambiguous() -> None:
    data = plain({"start": [[1, "", "a <x> c"], [1, "", "a b d"]], "x": [[1, "", "b"], [2, "", "e"]]})
    assert Grammar.from_json(data).log_prob("a e c") == pytest.approx(math.log(1 / 3))


def chain(text: str, copies: int = 1, length: int = 40) -> dict[str, object]:
    links = {f"s{i}": [[1, "", text.replace("?", f"<s{i + 1}>")]] * copies for i in range(length)}
    return plain({"start": [[1, "", "<s0>"]], **links, f"s{length}": [[1, "", "a"]]})


DAMAGES: list[tuple[object, str]] = [
    ([], "object"),
    ({}, "version"),
    ({**TINY, "version": "1"}, "version"),
    ({**TINY, "attributes": None}, "attributes"),
    ({**TINY, "attributes": [["a", [[1, "", "x y"]]]]}, "single words"),
    ({**TINY, "attributes": [["a", [[1, "", "x"]]], ["b", [[1, "", "x"]]]]}, "shared"),
    ({**TINY, "attributes": [[f"a{i}", [[1, "", f"v{i}.{j}"] for j in range(4)]] for i in range(8)]}, "combinations"),
    ({**TINY, "symbols": {}}, "start"),
    (plain({"start": []}), "alternatives"),
    (plain({"start": [[0, "", "a"]]}), "weight"),
    (plain({"start": [[True, "", "a"]]}), "weight"),
    (plain({"start": [[1.5, "", "a"]]}), "weight"),
    (plain({"start": [[1, "", 5]]}), "strings"),
    (plain({"start": [[1, "", "a\nb"]]}), "printable"),
    (plain({"start": [[1, "", "a" * 500]]}), "characters"),
    (plain({"start": [[1, "", "a <b"]]}), "words and <symbols>"),
    (plain({"start": [[1, "", "<stop>"]], "stop.": [[1, "", "."]]}), "Did you mean '<stop.>'"),
    (plain({"start": [[1, "sunny", "a"]]}), "sunny"),
    (plain({"start": [[1, "", "a <start>"]]}), "leads back"),
    (plain({"start": [[1, "", ""], [1, "", "a"]]}), "empty"),
    (plain({"start": [[1, "red", "a"]]}, [["hue", [[1, "", "red"], [1, "", "blue"]]]]), "no alternative"),
    (chain("?", length=5000), "nested deeper"),
    (chain("? ?"), "more than 200 words"),
    (chain("?", copies=2), "too large"),
]


@pytest.mark.parametrize(("data", "message"), DAMAGES)
def test_a_damaged_grammar_is_refused_in_one_line(data: object, message: str) -> None:
    with pytest.raises(ZentenceError, match=re.escape(message)) as caught:
        Grammar.from_json(data)
    assert "\n" not in str(caught.value)


def test_negative_counts_and_seeds_are_refused(tiny: Grammar) -> None:
    for count, seed in ((-1, 0), (1, -1)):
        with pytest.raises(ZentenceError, match="negative"):
            tiny.sample(count, seed)


def test_every_sentence_of_the_built_in_grammar_has_one_derivation() -> None:
    assert captions().check_unambiguous() > 1000
    data: dict[str, Any] = captions().to_json()
    data["symbols"]["folder"].append([1, "office singular", "bag"])  # people on the street carry bags, too
    with pytest.raises(ZentenceError, match=r"two derivations give .* bag"):
        Grammar.from_json(data)


def test_the_inside_algorithm_finds_one_derivation_of_the_same_probability(samples: list[Sentence]) -> None:
    data = captions().to_json()
    for sentence in samples[:30]:
        assert inside(data, sentence.text, count=True) == 1
        assert math.log(inside(data, sentence.text)) == pytest.approx(sentence.log_prob, abs=1e-9)


def test_parsing_gives_what_the_sampler_says(samples: list[Sentence]) -> None:
    grammar = captions()
    for sentence in samples[:10_000]:
        assert grammar.log_prob(sentence.text) == sentence.log_prob
        assert grammar.attributes(sentence.text) == sentence.attributes


def test_the_parser_forgets_without_harm(samples: list[Sentence], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zentence.corpora.grammar.MAX_MOVES", 50)
    grammar = Grammar(captions().to_json(), check=False)
    for sentence in samples[:200]:
        assert grammar.log_prob(sentence.text) == sentence.log_prob


def test_the_exact_entropy_is_the_mean_surprise_of_samples(samples: list[Sentence]) -> None:
    surprises = [-sentence.log_prob for sentence in samples]
    mean = math.fsum(surprises) / len(surprises)
    deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in surprises) / (len(surprises) - 1))
    assert abs(mean - captions().entropy) < 4 * deviation / math.sqrt(len(surprises))
    assert 20 < captions().entropy < 28


def test_the_built_in_words_are_many_plain_and_none_is_rare(samples: list[Sentence]) -> None:
    seen = Counter(word for sentence in samples for word in sentence.text.split(" "))
    assert set(seen) == captions().words
    assert 500 <= len(seen) <= 1000
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*|[.,!]", word) for word in seen)
    assert min(seen.values()) >= 5


def test_the_built_in_sentences_are_short_and_well_formed(samples: list[Sentence]) -> None:
    lengths = [len(sentence.text.split(" ")) for sentence in samples]
    assert 9 < captions().mean_length < 12.5
    assert abs(sum(lengths) / len(lengths) - captions().mean_length) < 0.1
    assert max(lengths) <= 26
    for sentence in samples:
        assert re.search(r"[a-z] [.!]$", sentence.text)
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|\ba (?!few\b)[a-z-]+s \b(is|was)\b", sentence.text)
        assert not re.search(r"\b(\w+) \1\b", sentence.text)


FORBIDDEN = [
    ("tense", "past", "is are am do today love hate stands sits walks sings"),
    ("tense", "present", "was were did yesterday loved hated stood sat walked left"),
    ("genre", "caption", "i we my our delicious rude ! because"),
    ("genre", "review", "standing sitting wearing happily sadly"),
    ("sentiment", "positive", "sad tired bored sadly rude dirty terrible but dislike"),
    ("sentiment", "negative", "happy cheerful happily friendly delicious wonderful but love"),
    ("sentiment", "neutral", "happy sad happily sadly ! love hate"),
    ("topic", "beach", "kitchen stove market desk guitar pizza"),
    ("topic", "hotel", "pizza battery actor dentist dress waves"),
]


@pytest.mark.parametrize(("attribute", "value", "words"), FORBIDDEN)
def test_attributes_govern_the_words(samples: list[Sentence], attribute: str, value: str, words: str) -> None:
    chosen = [sentence for sentence in samples if sentence.attributes[attribute] == value]
    assert len(chosen) > 1000
    for sentence in chosen:
        assert not set(words.split()) & set(sentence.text.split()), sentence


def test_number_governs_the_verbs_of_captions(samples: list[Sentence]) -> None:
    wrong = {"singular": {"are", "were", "men", "two", "walk"}, "plural": {"is", "was", "man", "walks", "shirt"}}
    for sentence in samples:
        if sentence.attributes["genre"] == "caption" and "two friends" not in sentence.text:
            assert not wrong[sentence.attributes["number"]] & set(sentence.text.split()), sentence


def test_the_built_in_sentences_of_a_seed_never_change() -> None:
    text, again, other = ("\n".join(s.text for s in captions().sample(2000, seed)) for seed in (0, 0, 1))
    assert text == again != other
    assert captions().version == 1
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ff8144a36ff35050", "a changed grammar needs a new version"


def test_json_round_trip(samples: list[Sentence]) -> None:
    data = json.loads(json.dumps(captions().to_json(), sort_keys=True))
    again = Grammar.from_json(data)
    assert again.to_json() == captions().to_json()
    assert again.entropy == captions().entropy
    assert list(again.sample(100, seed=1)) == samples[:100]


def test_a_corpus_has_five_files_that_agree(tmp_path: Path) -> None:
    summary = make_corpus(folder := tmp_path / "new" / "c", 450, seed=9)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert (summary["train"], summary["valid"], summary["test"]) == (406, 22, 22)
    texts = {split: (folder / f"{split}.txt").read_text().splitlines() for split in ("train", "valid", "test")}
    assert [*texts["train"], *texts["valid"], *texts["test"]] == [
        sentence.text for sentence in captions().sample(450, seed=9)
    ]
    labels = [json.loads(line) for line in (folder / "attributes.jsonl").read_text().splitlines()]
    assert list(labels[0]) == ["split", "line", "genre", "number", "tense", "topic", "sentiment", "log_prob"]
    places = [(split, line) for split, lines in texts.items() for line in range(len(lines))]
    assert [(label["split"], label["line"]) for label in labels] == places
    for label in labels:
        text = texts[label["split"]][label["line"]]
        assert captions().log_prob(text) == pytest.approx(label["log_prob"], abs=1e-8)
        assert captions().attributes(text) == {key: label[key] for key in list(label)[2:7]}
    source = json.loads((folder / "source.json").read_text())
    assert list(source) == ["format", "name", "version", "seed", "sentences", "entropy_nats", "grammar"]
    assert [source[key] for key in ("format", "seed", "sentences")] == [1, 9, 450]
    assert source["entropy_nats"] == captions().entropy == summary["entropy_nats"]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    make_corpus(tmp_path / "a", 100, seed=4)
    make_corpus(tmp_path / "b", 100, seed=4)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_existing_folder_is_kept_unless_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(ZentenceError, match="--overwrite"):
        make_corpus(tmp_path, 20, seed=0)
    make_corpus(tmp_path, 20, seed=0, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "notes.md"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(sys.modules[make_corpus.__module__], "_label", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_corpus(tmp_path, 40, seed=1, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(ZeroDivisionError):
        make_corpus(tmp_path / "fresh", 40, seed=1)
    assert not (tmp_path / "fresh").exists()


def test_impossible_corpora_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out, sentences, seed, message in [
        (tmp_path / "x", 19, 0, "at least 20"),
        (tmp_path / "x", 20, -1, "negative"),
        (tmp_path / "file", 20, 0, "is a file"),
        (tmp_path / "file" / "x", 20, 0, "cannot be written"),
    ]:
        with pytest.raises(ZentenceError, match=message):
            make_corpus(out, sentences, seed)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_source_of_a_corpus_is_found_again(tmp_path: Path) -> None:
    assert load_source(tmp_path) is None
    make_corpus(tmp_path, 20, seed=0)
    assert load_source(tmp_path) is captions()
    source = json.loads((tmp_path / "source.json").read_text())
    (tmp_path / "source.json").write_text(json.dumps({**source, "grammar": TINY}))
    assert (other := load_source(tmp_path)) is not None
    assert other.entropy == Grammar.from_json(TINY).entropy


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 2}', b'{"format": 1}', b'{"format": 1, "grammar": 3}', b"[" * 100_000],
)
def test_a_damaged_source_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "source.json").write_bytes(content)
    with pytest.raises(ZentenceError, match=r"source\.json"):
        load_source(tmp_path)

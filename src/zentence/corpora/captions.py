"""The built-in corpus: captions and reviews from a grammar of known entropy, written as a folder of text files.

The grammar is the data file `captions.toml`, in a shorthand that this module spells out into the form of `Grammar`:

- alternatives stand between `|`; `-` is the empty one; `3* text` has weight 3, and where a list gives no weights,
  the alternative at rank r (from 0) has a weight near 1 / (r + 8);
- `man/men` is one word in two numbers (`girl/s` appends), `roll~rolled` in two tenses, `is/are~was/were` in both;
- `ride:rides:rode:riding` is a verb, `walk+` a regular one, `:::riding` one of which only the participle is used.
  A symbol with verbs becomes two: `<name.fin>` with finite forms that agree with number and tense, and `<name.ing>`
  with participles; inside it, `<other.*>` is the other symbol in the same form.
"""

import json
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path

from zentence.corpora.grammar import Grammar, Sentence
from zentence.errors import ZentenceError

FORMAT = 1
MIN_SENTENCES = 20
MAX_SOURCE_BYTES = 20_000_000
SPLITS = ("train", "valid", "test")
FILES = (*(f"{split}.txt" for split in SPLITS), "attributes.jsonl", "source.json")
_NUMBERS = ("singular", "plural")
_TENSES = ("present", "past")
_RANK_SCALE, _RANK_SHIFT = 2520, 8


@cache
def captions() -> Grammar:
    """Return the built-in grammar; its unambiguity is verified by the tests, not at each start."""
    return Grammar(_spell_out(files("zentence.corpora").joinpath("captions.toml").read_text("utf-8")), check=False)


def _spell_out(source: str) -> dict[str, object]:
    """Turn the shorthand into the JSON form of a grammar."""
    data = tomllib.loads(source)
    attributes = [[name, _entries(lists, "")] for name, lists in data["attributes"].items()]
    symbols: dict[str, object] = {}
    for name, lists in data["symbols"].items():
        verbal = any(_is_verb(token) for listed in lists.values() for token in listed.split())
        for variant in (".fin", ".ing") if verbal else ("",):
            symbols[name + variant] = _entries(lists, variant)
    return {"name": data["name"], "version": data["version"], "attributes": attributes, "symbols": symbols}


def _is_verb(token: str) -> bool:
    return token.endswith(("+", ".*>")) or token.count(":") == 3


def _entries(lists: dict[str, str], variant: str) -> list[list[object]]:
    """Return [weight, when, text] for each alternative of a symbol, in each number and tense in which it differs."""
    entries: list[list[object]] = []
    for when, listed in lists.items():
        for rank, alternative in enumerate(listed.split("|")):
            tokens = alternative.split()
            weight = round(_RANK_SCALE / (rank + _RANK_SHIFT))
            if tokens[0].endswith("*"):
                weight = int(tokens.pop(0)[:-1])
            if variant == ".fin" and any(token.startswith(":") for token in tokens):
                continue
            tokens = [_verb(token, variant) for token in tokens if token != "-"]
            entries += [[weight, condition, text] for condition, text in _inflect(tokens, when)]
    return entries


def _verb(token: str, variant: str) -> str:
    """Return a verb as the variant asks for it, `third/base~past` or the participle, and other tokens as they are."""
    if not _is_verb(token) or token[0] == "<":
        return token.replace(".*", variant)
    base, third, past, participle = _regular(token[:-1]) if token.endswith("+") else token.split(":")
    return participle if variant == ".ing" else f"{third}/{base}~{past}"


def _regular(base: str) -> tuple[str, str, str, str]:
    """Return base, third person, past and participle of a regular verb that does not double its last letter."""
    if base.endswith("e"):
        return base, f"{base}s", f"{base}d", f"{base[:-1]}ing"
    if base.endswith("y") and base[-2] not in "aeou":
        return base, f"{base[:-1]}ies", f"{base[:-1]}ied", f"{base}ing"
    return base, base + ("es" if base.endswith(("s", "sh", "ch", "x", "z")) else "s"), f"{base}ed", f"{base}ing"


def _inflect(tokens: list[str], when: str) -> Iterator[tuple[str, str]]:
    """Yield (condition, text) for each number and tense that the condition allows and in which the text differs."""
    held = when.replace("/", " ").split()
    numbers = [n for n in _NUMBERS if n in held] or list(_NUMBERS)
    tenses = [t for t in _TENSES if t in held] or list(_TENSES)
    by_number = any("/" in token and token[0] != "<" for token in tokens) and len(numbers) > 1
    by_tense = any("~" in token for token in tokens) and len(tenses) > 1
    for number in numbers if by_number else numbers[:1]:
        for tense in tenses if by_tense else tenses[:1]:
            condition = [when, *[number] * by_number, *[tense] * by_tense]
            yield " ".join(condition).strip(), " ".join(_form(token, number, tense) for token in tokens)


def _form(token: str, number: str, tense: str) -> str:
    """Return the form of a token for a number and a tense."""
    if token[0] == "<":
        return token
    present, _, past = token.partition("~")
    chosen = past if past and tense == "past" else present
    singular, _, plural = chosen.partition("/")
    if number == "singular" or not plural:
        return singular
    return singular + plural if plural in ("s", "es") else plural


def make_corpus(out: Path, sentences: int, seed: int, *, overwrite: bool = False) -> dict[str, object]:
    """Write a corpus of the built-in grammar as train.txt, valid.txt, test.txt, attributes.jsonl and source.json.

    Of the sentences, which are independent draws, 90 % go to train, 5 % to valid, 5 % to test. Equal arguments give
    equal bytes. Files appear whole or not at all. Returns the counts, the entropy (nats per sentence) and the mean
    of minus the log-probability over the test sentences (nats per sentence).
    """
    if sentences < MIN_SENTENCES:
        raise ZentenceError(f"a corpus needs at least {MIN_SENTENCES} sentences; {sentences} were asked for")
    if seed < 0:
        raise ZentenceError(f"the seed cannot be negative; {seed} was given")
    if out.exists() and not out.is_dir():
        raise ZentenceError(f"{out}: is a file, a folder is needed")
    if not overwrite and out.exists() and any(out.iterdir()):
        raise ZentenceError(f"{out}: the folder is not empty; pass --overwrite to replace the corpus in it")
    try:
        return _write_whole(out, sentences, seed)
    except OSError as error:
        raise ZentenceError(f"{out}: cannot be written ({error.strerror or error})") from error


def _write_whole(out: Path, sentences: int, seed: int) -> dict[str, object]:
    """Write the files into a scratch folder and move them when all are complete."""
    fresh = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".making-", dir=out))
    try:
        summary = _write(scratch, sentences, seed)
        for name in FILES:
            (scratch / name).replace(out / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if fresh and not any(out.iterdir()):
            out.rmdir()
    return summary


def _write(folder: Path, sentences: int, seed: int) -> dict[str, object]:
    """Write the five files into a folder, sentence by sentence, and return the summary."""
    grammar = captions()
    held_out = sentences // 20
    sizes = dict(zip(SPLITS, (sentences - 2 * held_out, held_out, held_out), strict=True))
    stream = grammar.sample(sentences, seed)
    words = 0
    surprise = 0.0
    with (folder / "attributes.jsonl").open("w", encoding="utf-8", newline="\n") as labels:
        for split, size in sizes.items():
            surprise = 0.0
            with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as text:
                for line, sentence in enumerate(islice(stream, size)):
                    text.write(sentence.text + "\n")
                    labels.write(_label(split, line, sentence))
                    words += sentence.text.count(" ") + 1
                    surprise -= sentence.log_prob
    source = {"format": FORMAT, "name": grammar.name, "version": grammar.version, "seed": seed}
    source |= {"sentences": sentences, "entropy_nats": grammar.entropy, "grammar": grammar.to_json()}
    (folder / "source.json").write_text(json.dumps(source) + "\n", "utf-8", newline="\n")
    summary: dict[str, object] = {**sizes, "sentences": sentences, "seed": seed, "words": words}
    summary |= {"distinct_words": len(grammar.words), "version": grammar.version}
    return summary | {"entropy_nats": grammar.entropy, "test_nll_nats": surprise / held_out}


def _label(split: str, line: int, sentence: Sentence) -> str:
    entry = {"split": split, "line": line, **sentence.attributes, "log_prob": round(sentence.log_prob, 9)}
    return json.dumps(entry) + "\n"


def load_source(folder: Path) -> Grammar | None:
    """Return the grammar that a corpus folder came from; None without source.json, ZentenceError if it is damaged."""
    path = folder / "source.json"
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_SOURCE_BYTES:
        raise ZentenceError(f"{path}: larger than {MAX_SOURCE_BYTES} bytes, so it is not a source description")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ZentenceError(f"{path}: not valid JSON ({type(error).__name__}); make the corpus again") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ZentenceError(f"{path}: not a source description of format {FORMAT}; make the corpus again")
    if data.get("grammar") == captions().to_json():
        return captions()
    try:
        return Grammar.from_json(data.get("grammar"))
    except ZentenceError as error:
        raise ZentenceError(f"{path}: {error}") from error

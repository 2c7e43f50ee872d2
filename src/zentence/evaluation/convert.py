"""From a published figure to nats per sentence, per-word perplexity and bits per byte.

A published perplexity is exp(T / n): T nats of the whole text, n what the authors counted. So T = n log(perplexity),
whatever n is made of, and every other unit follows from T and the text's own counts (a `Counts`):

    nats per sentence   T / S                      S sentences
    ppl                 exp(T / (W + S))           W words and one `<eos>` a sentence: zentence's default
    ppl_words_only      exp(T / W)                 `<eos>` paid for but not counted, as some papers print
    ppl_without_eos     exp((T − S e) / W)         e nats for an `<eos>`: in neither numerator nor denominator
    ppl_per_token       exp(T / (N + S))           N tokens of the tokeniser and one `<eos>` a sentence
    bits_per_byte       T / (B log 2)              B UTF-8 bytes, one for each line end (its `<eos>`) among them

"Per BPE with BOS and EOS counted" is n = N + 2 S: the `<bos>`, never predicted, adds nothing to T and one to n, which
makes the printed perplexity smaller. `ppl_without_eos` needs e, which no perplexity tells.
"""

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from zentence.corpora.readers import LabelMode, Progress, read_sentences
from zentence.errors import ZentenceError, suggestion

Per = Literal["token", "word", "sentence", "byte"]
Unit = Literal["ppl", "nats", "bits"]
Special = Literal["bos", "eos"]

TOKEN_NAMES = ("token", "bpe", "wordpiece", "subword")  # one meaning: what the tokeniser makes of the words
USUAL_UNIT: dict[Per, Unit] = {"token": "ppl", "word": "ppl", "sentence": "nats", "byte": "bits"}
DEFAULT_COUNTED: tuple[Special, ...] = ("eos",)
_ENCODED_AT_ONCE = 1024


@dataclass(frozen=True)
class Counts:
    """What a text consists of; None is not known. Neither words nor tokens include `<bos>` and `<eos>`."""

    sentences: int | None = None
    words: int | None = None
    tokens: int | None = None
    bytes: int | None = None  # with one for each line end, as in a ledger

    def need(self, name: str, why: str) -> int:
        """Return a count; if it is not known, say why it is needed."""
        value: int | None = getattr(self, name)
        if value is None:
            text = " --tokenizer FILE" if name == "tokens" else ""
            raise ZentenceError(f"{why} needs --{name} N, or --text FILE{text}")
        return value


def count_text(
    path: Path | str, tokenizer: Path | None = None, labels: LabelMode = "auto", progress: Progress | None = None
) -> Counts:
    """Count a text file (words at white space, after normalising it), and its tokens under any tokenizer.json."""
    reader = None if tokenizer is None else _open_tokenizer(tokenizer)
    sentences = words = tokens = size = 0
    texts = (line.text for line in read_sentences(path, labels, progress=progress))
    while block := list(islice(texts, _ENCODED_AT_ONCE)):
        sentences += len(block)
        words += sum(text.count(" ") + 1 for text in block)
        size += sum(len(text.encode()) + 1 for text in block)
        if reader is not None:
            tokens += sum(len(row.ids) for row in reader.encode_batch(block, add_special_tokens=False))
    return Counts(sentences, words, None if reader is None else tokens, size)


def _open_tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    if not path.is_file():
        raise ZentenceError(f"No such file: {path}")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        raise ZentenceError(f"{path} is not a tokeniser: {' '.join(str(error).split())}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def parse_per(name: str) -> Per:
    """Return what a figure is per: bpe, wordpiece and subword are tokens."""
    known = [*TOKEN_NAMES, *(entry for entry in get_args(Per) if entry != "token")]
    if name not in known:
        raise ZentenceError(f"Unknown --per '{name}'.{suggestion(name, known)}")
    per: Per = "token" if name in TOKEN_NAMES else name  # type: ignore[assignment]
    return per


def parse_specials(text: str) -> frozenset[Special]:
    """Read `bos,eos`, `eos` or `none`: which special tokens a published count includes."""
    names = {name.strip() for name in text.split(",") if name.strip()} - {"none"}
    for name in sorted(names - set(get_args(Special))):
        raise ZentenceError(f"--counts {text}: '{name}' is none of bos, eos, none")
    return frozenset(names)  # type: ignore[arg-type]


def counted(per: Per, counts: Counts, specials: Collection[Special]) -> int:
    """Return n, the number of things that a published figure is divided by."""
    if per == "sentence":
        return counts.need("sentences", "A figure per sentence")
    if per == "byte":
        return counts.need("bytes", "A figure per byte")
    plain = counts.need(f"{per}s", f"A figure per {per}")
    if specials:
        plain += len(set(specials)) * counts.need("sentences", f"Counting <{sorted(specials)[0]}>")
    return plain


@dataclass(frozen=True)
class Conversion:
    """A figure in every unit that the counts allow; None where a count is missing."""

    total_nats: float
    counted: int  # what the published figure was divided by
    counts: Counts
    nats_per_sentence: float | None = None
    ppl: float | None = None
    ppl_words_only: float | None = None
    ppl_without_eos: float | None = None
    ppl_per_token: float | None = None
    bits_per_byte: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all figures and counts, for JSON."""
        return asdict(self)


def convert(
    value: float,
    per: Per,
    counts: Counts,
    *,
    unit: Unit | None = None,
    specials: Collection[Special] = DEFAULT_COUNTED,
    eos_nats: float | None = None,
) -> Conversion:
    """Convert a published figure by the formulas above.

    `value` is a perplexity, nats or bits per token, word, sentence or byte (`unit`; default: perplexity per token and
    word, nats per sentence, bits per byte). `specials` are the special tokens in the published denominator. `eos_nats`
    are the nats that an `<eos>` costs, where they are known.
    """
    unit = unit or USUAL_UNIT[per]
    if not math.isfinite(value) or value < 0.0 or (unit == "ppl" and value < 1.0):
        least = "1" if unit == "ppl" else "0"
        raise ZentenceError(f"{value} {unit} per {per}: a number of at least {least} is expected")
    nats = {"ppl": lambda: math.log(value), "nats": lambda: value, "bits": lambda: value * math.log(2.0)}[unit]()
    number = counted(per, counts, specials)
    total = nats * number
    S, W, N, B = counts.sentences, counts.words, counts.tokens, counts.bytes
    without = None
    if eos_nats is not None and S is not None:
        if not 0.0 <= eos_nats * S <= total:
            raise ZentenceError(f"--eos-nats {eos_nats}: an <eos> cannot cost more than its sentence, {total / S:.2f}")
        without = _perplexity(total - eos_nats * S, W)
    return Conversion(
        total_nats=total,
        counted=number,
        counts=counts,
        nats_per_sentence=None if S is None else total / S,
        ppl=None if S is None or W is None else _perplexity(total, W + S),
        ppl_words_only=_perplexity(total, W),
        ppl_without_eos=without,
        ppl_per_token=None if S is None or N is None else _perplexity(total, N + S),
        bits_per_byte=None if B is None else total / (B * math.log(2.0)),
    )


def _perplexity(nats: float, count: int | None) -> float | None:
    if count is None:
        return None
    try:
        return math.exp(nats / count)
    except OverflowError:
        raise ZentenceError(
            f"{nats:,.0f} nats over {count:,} words: no perplexity is that large; check the counts"
        ) from None

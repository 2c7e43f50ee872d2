"""Tables of questions with candidate answers, and how a question and an answer become one text (paper 1, §4.6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zentence.corpora.readers import ReadStats, display_name, filled_lines
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.objectives import OBJECTIVES
from zentence.objectives.autoencoder import AutoEncoder
from zentence.parts import find_part
from zentence.special import SPECIAL_WORDS, UNK

COLUMNS = {"question": ("question",), "answer": ("answer", "sentence"), "label": ("label",)}  # second: WikiQA's name
KEY = "questionid"  # WikiQA's; without it, rows with the same question belong together


@dataclass(frozen=True)
class Candidate:
    """One row: an answer to a question, and whether it is right."""

    key: str  # of its question
    question: str
    answer: str
    right: bool


def read_candidates(path: Path | str) -> list[Candidate]:
    """Read a table with a header and tabs between columns: question, answer, label (1 right, 0 wrong).

    Columns may stand in any order, among others; WikiQA's own header (QuestionID, Question, …, Sentence, Label) fits.
    Quotation marks are text. A mistake raises a ZentenceError that names the file and the line.
    """
    name = display_name(path)
    lines = filled_lines(path, name, ReadStats(), None)
    header = [title.strip().lower() for title in next(lines, (0, ""))[1].split("\t")]
    places: dict[str, int] = {}
    for column, titles in COLUMNS.items():
        found = [header.index(title) for title in titles if title in header]
        if not found:
            raise ZentenceError(
                f"{name} has no column '{column}': its first line must be question<TAB>answer<TAB>label"
            )
        places[column] = found[0]
    rows = []
    for number, line in lines:
        cells = [" ".join(cell.split()) for cell in line.split("\t")]
        where = f"{name}, line {number}"
        if len(cells) != len(header):
            raise ZentenceError(f"{where}: {len(cells)} columns where the header has {len(header)}")
        question, answer, label = (cells[places[column]] for column in COLUMNS)
        if not question or not answer:
            raise ZentenceError(f"{where}: the {'answer' if question else 'question'} is empty: remove this row")
        if label not in ("0", "1"):
            raise ZentenceError(f"{where}: label '{label}': expected 1 (right) or 0 (wrong)")
        rows.append(Candidate(cells[header.index(KEY)] if KEY in header else question, question, answer, label == "1"))
    if not rows:
        raise ZentenceError(f"{name} has a header but no questions")
    return rows


def as_question(text: str) -> str:
    """Return a question that ends in "?", set off by a space where it had none."""
    return text if text.endswith("?") else f"{text} ?"


def with_answer(question: str, answer: str) -> str:
    """Return Q^k: the question, " ? ", and an answer."""
    return f"{as_question(question)} {answer}"


def with_unknown_answer(question: str, words: int) -> str:
    """Return Q^unk: the question, " ? ", and `words` unknown words."""
    return " ".join([as_question(question), *[SPECIAL_WORDS[UNK]] * words])


def check_space(space: LatentSpace) -> None:
    """Refuse a model that has no codes, or whose tokeniser cannot read an unknown word."""
    if space.size == 0:
        raise ZentenceError("This model is a language model: it has no codes")
    ids = space.vocabulary.encode_batch([" ".join([SPECIAL_WORDS[UNK]] * 2)])[0]
    if ids.tolist() != [UNK, UNK]:
        raise ZentenceError(f"This model's tokeniser does not read {SPECIAL_WORDS[UNK]} as the unknown word")


def trained_as_autoencoder(space: LatentSpace) -> bool:
    """Tell whether the last stage had no charge for the rate: its posterior scales mean little."""
    objective = find_part("objective", OBJECTIVES, space.settings.stages[-1].objective.name)
    return issubclass(objective, AutoEncoder)


def is_deterministic(space: LatentSpace) -> bool:
    """Tell whether the model was trained on posterior means: its codes are these, and its scales are untrained."""
    options = space.settings.stages[-1].objective.options
    return trained_as_autoencoder(space) and options.get("code", "sample") == "mean"


def share_unknown(space: LatentSpace, texts: Sequence[str]) -> float:
    """Return the share of the texts' tokens that the model does not know."""
    ids = space.vocabulary.encode_batch(list(texts))
    return sum(int((row == UNK).sum()) for row in ids) / max(1, sum(map(len, ids)))

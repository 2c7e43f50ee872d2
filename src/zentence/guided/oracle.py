"""Label control measured as paper 5, Table 6: accuracy by an oracle, BLEU, their geometric mean, self-BLEU.

The oracle is a classifier of words that has seen real sentences only. All rows have as many sentences of each label,
because self-BLEU grows with their number. Beside the GAN stand real sentences, the same sentences encoded and decoded
again (what a generator of perfect codes would give), and class-conditional Gaussians on the codes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.corpora.readers import display_name, read_sentences
from zentence.errors import ZentenceError
from zentence.evaluation.text import pool_bleu, self_bleu, why_not
from zentence.guided.codes import draws_codes
from zentence.guided.label_control import WORDS, LabelControl
from zentence.latent import LatentSpace
from zentence.noise import derive_key
from zentence.tasks.classifiers import need_sklearn

Progress = Callable[[str, int, int], None]  # what, done, in all
Labelled = dict[str, list[str]]  # sentences by label
MOST_LEARNT = 200_000  # sentences that the oracle learns from
MOST_REFERENCES = 20_000  # sentences of the evaluation set
PENALTIES = (1.0, 0.3, 0.1, 0.03)  # weights of the squared norm
SHOWN = 10  # sentences a label, the first ones, in what `to_dict` returns


class Oracle:
    """Logistic regression on TF-IDF of words and pairs of words; its penalty is chosen on a tenth held out."""

    def __init__(self, texts: Sequence[str], labels: Sequence[str], seed: int = 0) -> None:
        need_sklearn()
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression

        self.features = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
        rows, y = self.features.fit_transform(texts), np.array(labels)
        order = np.random.default_rng(derive_key(seed, "oracle")).permutation(len(y))
        held, kept = np.split(order, [max(1, len(y) // 10)])
        candidates = [LogisticRegression(C=1.0 / penalty, max_iter=500) for penalty in PENALTIES]
        if len(set(y[kept])) > 1:
            scores = [float((c.fit(rows[kept], y[kept]).predict(rows[held]) == y[held]).mean()) for c in candidates]
        else:
            scores = [0.0] * len(candidates)
        self.classifier = candidates[int(np.argmax(scores))].fit(rows, y)

    def right(self, sentences: Labelled) -> dict[str, NDArray[np.bool_]]:
        """Tell of each sentence whether the oracle gives it the label that it stands under."""
        return {
            label: self.classifier.predict(self.features.transform(texts)) == label
            for label, texts in sentences.items()
            if texts
        }


@dataclass(frozen=True)
class Row:
    """Figures of a set of sentences; BLEU and shares are 0 to 1, errors are standard errors over sentences."""

    accuracy: float
    accuracy_error: float
    bleu: float
    bleu_error: float
    g_score: float
    self_bleu: float
    accuracy_of: dict[str, float]  # by label
    self_bleu_of: dict[str, float]  # by label, among sentences of that label
    distinct: float  # share of different sentences
    sentences: dict[str, list[str]]  # the first ones, by label


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate_label_control` found, row by row."""

    rows: dict[str, Row]
    labels: tuple[str, ...]
    each: int  # sentences of each label in each row
    references: int
    oracle_accuracy: float  # on the evaluation set
    oracle_sentences: int  # that it learnt from
    words: dict[str, Any]
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"task": "label-control", **asdict(self), "labels": list(self.labels)}


def g_score(accuracy: float, bleu: float) -> float:
    """Return √(accuracy × BLEU), both from 0 to 1 (paper 5, Table 6)."""
    return math.sqrt(accuracy * bleu)


def evaluate_label_control(
    control: LabelControl,
    file: Path,
    *,
    train: Path | None = None,
    each: int = 1000,
    beside: Sequence[LabelControl] = (),
    seed: int = 0,
    words: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure sentences of every label against the evaluation set `file` (label<TAB>sentence).

    `train` is the real text that the oracle learns from, by default the one that the control was trained on; the
    sentences of the rows on real text are taken from it and kept from the oracle.
    """
    if missing := why_not("sacrebleu"):
        raise ZentenceError(f"Label control's figures {missing}")
    told = progress or (lambda _what, _done, _total: None)
    for other in beside:
        if other.labels != control.labels:
            raise ZentenceError(f"{other.folder} has other labels than {control.folder}: train both on the same file")
    references = _read_references(control, file)
    real, learnt = _draw_real(train or _training_file(control), control, each, seed)
    each = min(len(texts) for texts in real.values())
    options = {**WORDS, **(words or {})}
    told("training the oracle", 0, 1)
    oracle = Oracle([text for texts in learnt.values() for text in texts], _labels(learnt), seed)
    told("training the oracle", 1, 1)
    sets = {"real text": real, "real text, decoded": _decoded(control.space, real, seed, options, told)}
    for number, one in enumerate((control, *beside)):
        name = f"on {one.on}" + (f" of {_title(one)}" if number else "")
        if f"GAN {name}" in sets:
            name = f"on {one.on}, {one.folder}"
        sets[f"GAN {name}"] = _written(one, each, seed, options, told, f"GAN {name}", gaussian=False)
        sets[f"Gaussians {name}"] = _written(one, each, seed, options, told, f"Gaussians {name}", gaussian=True)
    pool = [text for texts in references.values() for text in texts]
    rows = {}
    for number, (name, sentences) in enumerate(sets.items(), 1):
        rows[name] = measure(sentences, oracle, pool)
        told("measuring", number, len(sets))
    held_out = np.concatenate([*oracle.right(references).values()])
    return Evaluation(
        rows=rows,
        labels=control.labels,
        each=each,
        references=len(pool),
        oracle_accuracy=float(held_out.mean()),
        oracle_sentences=sum(len(texts) for texts in learnt.values()),
        words=options,
        seed=seed,
    )


def measure(sentences: Labelled, oracle: Oracle, references: Sequence[str]) -> Row:
    """Return the figures of sentences that stand under the labels they were written for."""
    every = [text for texts in sentences.values() for text in texts]
    right = oracle.right(sentences)
    hits, bleu = np.concatenate([*right.values()]), pool_bleu(every, references) / 100.0
    accuracy, mean = float(hits.mean()), float(bleu.mean())
    return Row(
        accuracy=accuracy,
        accuracy_error=_error(hits),
        bleu=mean,
        bleu_error=_error(bleu),
        g_score=g_score(accuracy, mean),
        self_bleu=float(self_bleu(every).mean()) / 100.0,
        accuracy_of={label: float(found.mean()) for label, found in right.items()},
        self_bleu_of={label: float(self_bleu(texts).mean()) / 100.0 for label, texts in sentences.items()},
        distinct=len(set(every)) / len(every),
        sentences={label: texts[:SHOWN] for label, texts in sentences.items()},
    )


def _error(values: NDArray[Any]) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def _labels(sentences: Labelled) -> list[str]:
    return [label for label, texts in sentences.items() for _ in texts]


def _title(control: LabelControl) -> str:
    return control.space.folder.name if control.space.folder is not None else str(control.folder)


def _training_file(control: LabelControl) -> Path:
    path = Path(control.about["file"])
    if not path.is_file():
        raise ZentenceError(f"The training text {path} is not there: give it with --train")
    return path


def _text(space: LatentSpace, text: str) -> str:
    """Return a real sentence in the case that the model writes."""
    return text.lower() if space.vocabulary.lower_case else text


def _read_references(control: LabelControl, file: Path) -> Labelled:
    found: Labelled = {label: [] for label in control.labels}
    lines = 0
    for line in read_sentences(file, "yes"):
        control.number_of(line.label or "")
        if lines < MOST_REFERENCES:
            found[line.label or ""].append(_text(control.space, line.text))
            lines += 1
    return found


def _draw_real(path: Path, control: LabelControl, each: int, seed: int) -> tuple[Labelled, Labelled]:
    """Return sentences of each label to compare with, and others for the oracle; the file is read twice, in streams."""
    numbers = np.array([control.number_of(line.label or "") for line in read_sentences(path, "yes")])
    counts = np.bincount(numbers, minlength=len(control.labels))
    if counts.min() < 2:
        label = control.labels[int(counts.argmin())]
        raise ZentenceError(f"{display_name(path)} has too few sentences of label '{label}': give another --train")
    each = min(each, int(counts.min()) // 2)
    random = np.random.default_rng(derive_key(seed, "real text"))
    purpose = np.zeros(len(numbers), dtype=np.int8)  # 1: to compare with, 2: for the oracle
    for number in range(len(control.labels)):
        purpose[random.permutation(np.flatnonzero(numbers == number))[:each]] = 1
    purpose[random.permutation(np.flatnonzero(purpose == 0))[:MOST_LEARNT]] = 2
    real: Labelled = {label: [] for label in control.labels}
    learnt: Labelled = {label: [] for label in control.labels}
    for line, wanted in zip(read_sentences(path, "yes"), purpose, strict=True):
        if wanted:
            (real if wanted == 1 else learnt)[line.label or ""].append(_text(control.space, line.text))
    return real, learnt


def _decoded(space: LatentSpace, real: Labelled, seed: int, words: dict[str, Any], told: Progress) -> Labelled:
    """Write real sentences again from their codes."""
    found, done, total = {}, 0, sum(len(texts) for texts in real.values())
    for label, texts in real.items():
        codes = space.encode(texts, sample=draws_codes(space), seed=seed, first=done)
        found[label] = space.decode(codes, first=done, **{**words, "seed": derive_key(seed, "decoded") % 2**31})
        done += len(texts)
        told("real text, decoded", done, total)
    return found


def _written(
    control: LabelControl, each: int, seed: int, words: dict[str, Any], told: Progress, what: str, *, gaussian: bool
) -> Labelled:
    found, total = {}, each * len(control.labels)
    for number, label in enumerate(control.labels):
        found[label] = control.write(
            label,
            each,
            seed=seed,
            gaussian=gaussian,
            progress=lambda done, before=number * each: told(what, before + done, total),  # type: ignore[misc]
            **words,
        )
    return found

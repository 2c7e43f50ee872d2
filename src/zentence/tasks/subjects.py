"""Sentences as vectors, by several models: codes, and the encoder's own features, to be compared with each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from zentence.build import build_model, complete, load_pretrained
from zentence.errors import ZentenceError, suggestion
from zentence.latent import LatentSpace
from zentence.noise import derive_key
from zentence.tasks.classifiers import Features
from zentence.tasks.normalise import Normaliser
from zentence.tasks.questions import share_unknown

Kind = Literal["code", "encoder"]
Progress = Callable[[int], None]  # sentences done
KINDS: dict[str, tuple[Kind, ...]] = {"code": ("code",), "encoder": ("encoder",), "both": ("code", "encoder")}
FROZEN, TUNED = "feature-based", "fine-tuned"  # schemes of the paper: encoder as it is, or trained with the head
RANDOM, PRETRAINED = "random", "pretrained"  # models that need no directory


@dataclass(frozen=True)
class Subject:
    """A model and which of its vectors are looked at: posterior means [D], or the encoder's features before them [H].

    Text is first written as the model's corpus is written.
    """

    title: str
    space: LatentSpace
    kind: Kind

    @cached_property
    def normalise(self) -> Normaliser:
        """What writes text as the model's corpus is written."""
        return Normaliser(self.space.vocabulary, self.space.settings.corpus)

    @property
    def size(self) -> int:
        """Dimensions of its vectors."""
        return self.space.size if self.kind == "code" else int(self.space.model.encoder.feature_size)

    def read(self, texts: Sequence[str], progress: Progress | None = None) -> Features:
        """Return a vector for each text, [N, size]."""
        return vectors(self.space, [self.normalise(text) for text in texts], self.kind, progress)


def vectors(space: LatentSpace, texts: Sequence[str], kind: Kind, progress: Progress | None = None) -> Features:
    """Return the posterior means or the encoder's features of texts as they are, [N, D] or [N, H]."""
    if kind == "code":
        return space.encode(list(texts), progress=progress)
    return space.features(texts, progress=progress)


def pair_features(u: Features, v: Features) -> Features:
    """Return [u, v, |u − v|, u∘v] for the vectors of pairs, [N, 4D] (Conneau et al. 2017)."""
    return np.concatenate((u, v, np.abs(u - v), u * v), axis=1)


def choose_kinds(word: str) -> tuple[Kind, ...]:
    """Read `code`, `encoder` or `both`."""
    if word not in KINDS:
        raise ZentenceError(f"--features {word}: choose one of {', '.join(KINDS)}.{suggestion(word, KINDS)}")
    return KINDS[word]


def gather_subjects(
    space: LatentSpace,
    kinds: Sequence[Kind],
    beside: Sequence[str],
    load: Callable[[Path], LatentSpace],
    seed: int = 0,
) -> list[Subject]:
    """Return the model's own vectors, then those of each model `beside`.

    A model beside is a directory; `random`, the same architecture with fresh initial values; or `pretrained`, the same
    with the pre-trained weights that its settings name and no further training.
    """
    found = [Subject(kind, _with_code(space, "the model"), kind) for kind in kinds]
    names = [Path(name).name if name not in (RANDOM, PRETRAINED) else name for name in beside]
    for given, short in zip(beside, names, strict=True):
        other = untrained(space, seed, given == PRETRAINED) if given in (RANDOM, PRETRAINED) else load(Path(given))
        title = short if names.count(short) == 1 else given
        found += [Subject(f"{title}: {kind}", _with_code(other, given), kind) for kind in kinds]
    return found


def untrained(space: LatentSpace, seed: int, pretrained: bool = False) -> LatentSpace:
    """Return a model of the same architecture that no latent objective has seen: random, or pre-trained weights."""
    _with_code(space, "the model")
    settings = complete(space.settings)
    options = settings.encoder.options
    if pretrained and options.get("weights") is None:
        raise ZentenceError("--beside pretrained: this model's encoder began without pre-trained weights: take random")
    fresh = {"seed": derive_key(seed, "untrained") % 2**31}
    drawn = settings.model_copy(update={"training": settings.training.model_copy(update=fresh)})
    model = build_model(drawn, *space.vocabulary.sizes)
    if pretrained:
        load_pretrained(model, space.vocabulary)
    return LatentSpace(model.to(space.device), space.vocabulary, space.settings)


def _with_code(space: LatentSpace, name: str) -> LatentSpace:
    if not space.model.has_code:
        raise ZentenceError(f"{name} is a language model: it has neither codes nor an encoder")
    return space


def unknown_share(subject: Subject, texts: Sequence[str]) -> float:
    """Return the share of the texts' tokens that a subject's model does not know, once they are normalised."""
    return share_unknown(subject.space, [subject.normalise(text) for text in texts])

"""A trained dialog model as something to use: contexts to codes, codes to responses, perhaps in a style."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zentence.build import build_model, complete
from zentence.checkpoint import load_into, load_settings_of, read_tensors
from zentence.corpora.pairs import collate_contexts
from zentence.corpora.vocabulary import Vocabulary
from zentence.errors import ZentenceError
from zentence.guided.dialog_loss import DialogOptions
from zentence.guided.dialog_model import DialogModel
from zentence.guided.dialog_train import NAME, SCATTER, SPACE, STYLE
from zentence.guided.style_classifiers import Judges
from zentence.latent.nearest import nearest
from zentence.latent.space import Codes, LatentSpace
from zentence.machine import choose_device, prepare_process
from zentence.noise import Noise, derive_key
from zentence.training.fit import load_fit, read_fit

RADIUS = 0.5  # how far responses are from their context's own code, in parts of the way to real responses
AROUND = ("scatter", "sphere")
TOWARDS = ("mean", "nearest")
WORDS: dict[str, Any] = {"method": "sample", "max_words": 40, "forbid_unknown": True}


class DialogSpace:
    """A dialog model, its vocabulary, and its space.

    n responses to a context are written from n codes about its own, z_S2S. On the `scatter` of responses: z_S2S +
    radius · (z_AE − z_S2S) of training pairs drawn at random, so that 1 is as far as real responses are, and in their
    directions. Or on a `sphere` (SpaceFusion's): in directions drawn evenly, at the distance d = ‖·‖/√D = radius. Words
    are drawn as well, unless said otherwise. A sequence-to-sequence model has learnt one code a context only: radius 0.
    """

    def __init__(
        self,
        model: DialogModel,
        space: LatentSpace,
        options: DialogOptions,
        style: Codes | None = None,
        judges: Judges | None = None,
        scatter: Codes | None = None,
    ) -> None:
        self.model, self.space, self.options = model.eval(), space, options
        self.style, self.judges, self.scatter = style, judges, scatter

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", threads: int | None = None) -> "DialogSpace":
        """Read the directory of a trained dialog model."""
        folder = Path(folder)
        prepare_process(threads)
        target = choose_device(device)
        fingerprint = read_fit(folder, NAME)
        if not (folder / SPACE / "tokenizer.json").is_file():
            raise ZentenceError(f"{folder} is incomplete: {SPACE} is missing (go on with --resume)")
        settings = load_settings_of(folder / SPACE)
        vocabulary = Vocabulary.load(folder / SPACE / "tokenizer.json")
        model = DialogModel(
            build_model(complete(settings), *vocabulary.sizes), frozen=fingerprint["start"] is not None
        ).to(target)
        load_fit(folder, model)
        style, judges = _load_style(folder, len(vocabulary))
        space = LatentSpace(model.model, vocabulary, settings, folder / SPACE)
        path = folder / SCATTER
        scatter: Codes | None = read_tensors(path)["scatter"].numpy() if path.is_file() else None
        return cls(model, space, DialogOptions.model_validate(fingerprint["options"]), style, judges, scatter)

    @property
    def is_baseline(self) -> bool:
        """Whether this is a sequence-to-sequence model."""
        return self.options.objective == "s2s"

    @property
    def radius(self) -> float:
        """The radius that holds where none is given."""
        return 0.0 if self.is_baseline else RADIUS

    def text(self, sentence: str) -> str:
        """Return a sentence as the model would have to write it: lower-cased where its vocabulary is."""
        return sentence.lower() if self.space.vocabulary.lower_case else sentence

    @torch.no_grad()
    def encode(self, contexts: Sequence[Sequence[str]], *, batch_size: int = 64) -> Codes:
        """Return the codes z_S2S [N, D] of contexts, each a list of turns, the latest last."""
        if any(not turns or not all(turn.strip() for turn in turns) for turns in contexts):
            raise ZentenceError("The context is empty: give at least one turn, and no turn without a word")
        codes = np.empty((len(contexts), self.space.size), dtype=np.float32)
        for first in range(0, len(contexts), batch_size):
            chosen = [list(turns)[-self.options.turns :] for turns in contexts[first : first + batch_size]]
            reader = self.space.vocabulary.encoder or self.space.vocabulary
            ids = [reader.encode_batch(turns) for turns in chosen]
            context = collate_contexts(ids, self.options.context_tokens).to(self.space.device)
            found = self.model.infer_context(context).center
            codes[first : first + len(chosen)] = found.float().cpu().numpy()
        return codes

    def codes_around(
        self, codes: Codes, n: int, *, radius: float, around: str = "scatter", seed: int = 0, first: int = 0
    ) -> Codes:
        """Return n codes [N, n, D] about each code; `first` is the number of the first, which keys the noise."""
        if not (np.isfinite(radius) and radius >= 0.0):
            raise ZentenceError("The radius must be a finite number of at least 0")
        if around not in AROUND:
            raise ZentenceError(f"Codes are drawn around a context's on one of {', '.join(AROUND)}, not '{around}'")
        noise = Noise(derive_key(seed, "radius", around), torch.arange(first, first + len(codes)))
        if around == "sphere" or self.scatter is None:
            steps = noise.normal(n, codes.shape[1]).transpose(0, 1).numpy()
            steps *= codes.shape[1] ** 0.5 / np.linalg.norm(steps, axis=-1, keepdims=True)
        else:
            steps = self.scatter[(noise.uniform(n, torch.float64) * len(self.scatter)).long().numpy()]
        drawn: Codes = (codes[:, None] + radius * steps).astype(np.float32)
        return drawn

    def towards_style(self, codes: Codes, strength: float, towards: str = "mean") -> Codes:
        """Return (1 − s) z + s z_style for codes [N, D]: what training decoded, at τ = s.

        z_style is the mean of the style's codes, or the nearest of them. (StyleFusion has no such move: it draws around
        the context's code and ranks what comes out by a classifier.)
        """
        if not 0.0 <= strength <= 1.0:
            raise ZentenceError("The strength is a number from 0 to 1")
        if towards not in TOWARDS:
            raise ZentenceError(f"A style's code is one of {', '.join(TOWARDS)}, not '{towards}'")
        if strength == 0.0:
            return codes
        if self.style is None:
            raise ZentenceError("This model has learnt no style: train it with --style, or leave --strength at 0")
        if towards == "mean":
            chosen = np.broadcast_to(self.style.mean(0), codes.shape)
        else:
            chosen = self.style[nearest(self.style, codes, 1, "euclidean")[0][:, 0]]
        moved: Codes = ((1.0 - strength) * codes + strength * chosen).astype(np.float32)
        return moved

    def respond(
        self,
        contexts: Sequence[Sequence[str]],
        n: int = 10,
        *,
        radius: float | None = None,
        around: str = "scatter",
        strength: float = 0.0,
        towards: str = "mean",
        seed: int = 0,
        first: int = 0,
        **words: Any,
    ) -> list[list[str]]:
        """Return n responses to each context. `first` is the number of the first context: it keys the noise.

        `words` are options of `Generation`; a response of `max_words` words or more is cut there.
        """
        if n < 1:
            raise ZentenceError("Give a number of responses of at least 1")
        centers = self.encode(contexts)
        used = self.radius if radius is None else radius
        codes = self.codes_around(centers, n, radius=used, around=around, seed=seed, first=first)
        codes = self.towards_style(codes.reshape(-1, self.space.size), strength, towards)
        choice = {**WORDS, "seed": seed, **words}
        written = self.space.decode(codes, first=first * n, **choice)
        return [written[start : start + n] for start in range(0, len(written), n)]

    def style_scores(self, sentences: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Return each judge's probabilities [N] that sentences are of the style."""
        if self.judges is None:
            raise ZentenceError("This model has no classifiers of a style: train it with --style")
        return self.judges.scores(self.space.vocabulary.encode_batch(list(sentences)))


def _load_style(folder: Path, vocabulary_size: int) -> tuple[Codes | None, Judges | None]:
    path = folder / STYLE
    if not path.is_file():
        return None, None
    tensors = read_tensors(path)
    codes: Codes = tensors.pop("codes").numpy()
    if not tensors:
        return codes, None
    judges = Judges(vocabulary_size)
    load_into(judges, {name.removeprefix("judges/"): tensor for name, tensor in tensors.items()}, str(path))
    return codes, judges.eval()

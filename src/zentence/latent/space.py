"""LatentSpace: a trained model as something to use. `encode` sentences to codes, `decode` codes, `sample` new ones."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zentence.checkpoint import load_model
from zentence.corpora import Vocabulary, collate
from zentence.decoders.generation import Generation, generate
from zentence.errors import ZentenceError
from zentence.evaluation.likelihood import bounds, exact_nll
from zentence.latent import moves
from zentence.latent.bar import progress_shown
from zentence.machine import choose_device, prepare_process
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.parts import parse_options
from zentence.settings import Settings
from zentence.types import Batch, LatentDistribution

Codes = NDArray[np.float32]
Progress = Callable[[int], None]  # sentences done


class LatentSpace:
    """A model, its vocabulary, and the moves in its space. Codes are float32 arrays [N, D].

    A model that averages the hidden states of L codes (paper 3) writes from L states: `decode` uses a code for all L,
    or takes L codes a sentence, [N, L, D]; `sample`, and `reconstruct` with `sample`, draw L a sentence.

    Where a method takes `first`, it is the number of the first sentence: noise is keyed by these numbers, so a long
    list can be worked through in parts, and comes out as it would in one.
    """

    def __init__(self, model: LatentLM, vocabulary: Vocabulary, settings: Settings, folder: Path | None = None) -> None:
        self.model, self.vocabulary, self.settings = model.eval(), vocabulary, settings
        self.folder = folder  # where it was read from
        self.device = next(model.parameters()).device
        self._has_warned = False

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", threads: int | None = None) -> "LatentSpace":
        """Read a model directory."""
        prepare_process(threads)
        return cls(*load_model(Path(folder), choose_device(device)), Path(folder))

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> "LatentSpace":
        """Read a model directory, or a model of the Hugging Face Hub by its id; options as `hub.from_pretrained`."""
        from zentence.latent import hub

        return hub.from_pretrained(name, **options)

    def save_pretrained(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model, its figures and a model card into a folder that can be shared."""
        from zentence.latent import hub

        hub.save_pretrained(self, Path(folder), overwrite=overwrite)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what `save_pretrained` writes to the Hugging Face Hub; return the address."""
        from zentence.latent import hub

        return hub.push_to_hub(self, repo_id, **options)

    @property
    def size(self) -> int:
        """Dimensions of a code; 0 for a language model."""
        return self.model.code_size

    @property
    def max_words(self) -> int | None:
        """The length limit that training had; longer sentences are cut to it before they are encoded."""
        return self.settings.corpus.max_words

    def unknown_words(self, sentence: str) -> tuple[int, int]:
        """Return how many words of a sentence the model does not know, and how many it has."""
        ids = self.vocabulary.encode_batch([sentence])[0]
        return int((ids == 3).sum()), len(ids)

    def _batches(
        self, sentences: Sequence[str], batch_size: int, first: int = 0
    ) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yield batches of sentences of similar length, with their places in the input."""
        if isinstance(sentences, str):
            raise ZentenceError("Give a list of sentences, not one string")
        if batch_size < 1:
            raise ZentenceError("The batch size must be at least 1")
        ids = self.vocabulary.encode_batch(list(sentences))
        if any(len(row) == 0 for row in ids):
            place = next(i for i, row in enumerate(ids) if len(row) == 0)
            raise ZentenceError(f"Sentence {first + place + 1} is empty")
        read = self.vocabulary.encode_sources(list(sentences))
        order = np.argsort([len(row) for row in ids], kind="stable")
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            sources = None if read is None else [read[i] for i in chosen]
            yield chosen, collate([ids[i] for i in chosen], first + chosen, sources=sources).to(self.device)

    def _cut(self, sentences: Sequence[str], first: int) -> list[str]:
        """Cut sentences to the limit that training had; a warning names the first one, once."""
        limit, cut = self.max_words, list(sentences)
        if limit is None:
            return cut
        for place, text in enumerate(cut):
            words = text.split()
            if len(words) <= limit:
                continue
            cut[place] = " ".join(words[:limit])
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"sentence {first + place + 1} ({text[:60]!r}) has {len(words)} words: cut to {limit}, the limit "
                    "of training, as are all that are longer",
                    stacklevel=2,
                )
        return cut

    @torch.no_grad()
    def posteriors(
        self, sentences: Sequence[str], *, batch_size: int = 128, first: int = 0
    ) -> Iterator[tuple[NDArray[np.int64], LatentDistribution, Tensor]]:
        """Yield (places in the input, q(z|x), sentence numbers [B] that key noise), in batches of similar length."""
        self._need_code()
        if isinstance(sentences, str):
            raise ZentenceError("Give a list of sentences, not one string")
        for places, batch in self._batches(self._cut(sentences, first), batch_size, first):
            yield places, self.model.infer(batch.source), batch.index

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        sample: bool = False,
        seed: int = 0,
        batch_size: int = 128,
        first: int = 0,
        show_progress_bar: bool = False,
        progress: Progress | None = None,
    ) -> Codes:
        """Return codes [N, D]: posterior means, or samples; [D] for one string.

        Sentences beyond the limit that training had (`max_words`) are cut to it, with a warning.
        """
        if isinstance(sentences, str):
            code: Codes = self.encode([sentences], sample=sample, seed=seed, first=first)[0]
            return code
        with progress_shown("encoding", len(sentences), show_progress_bar) as drawn:
            told = progress or drawn
            codes = self._codes(sentences, int(sample), seed, batch_size=batch_size, first=first, progress=told)
        means: Codes = codes[:, 0]
        return means

    @torch.no_grad()
    def features(self, sentences: Sequence[str], *, batch_size: int = 128, progress: Progress | None = None) -> Codes:
        """Return the encoder's features [N, H], which the posterior is made from; sentences are cut as by `encode`."""
        self._need_code()
        found = np.empty((len(sentences), self.model.encoder.feature_size), dtype=np.float32)
        done = 0
        for places, batch in self._batches(self._cut(sentences, 0), batch_size):
            found[places] = self.model.encoder(batch.source).float().cpu().numpy()
            done += len(places)
            if progress is not None:
                progress(done)
        return found

    def grouped_codes(
        self,
        sentences: Sequence[str],
        *,
        sample: bool = False,
        perturb: float | None = None,
        seed: int = 0,
        batch_size: int = 128,
        first: int = 0,
    ) -> Codes:
        """Return the codes that `reconstruct` decodes: the means [N, 1, D], or [N, L, D] samples or perturbed means."""
        if sample and perturb is not None:
            raise ZentenceError("A reconstruction is from a sample or from a perturbed mean: give one of the two")
        count = self.model.averaged_codes if sample or perturb is not None else 0
        return self._codes(sentences, count, seed, perturb, batch_size=batch_size, first=first)

    @torch.no_grad()
    def _codes(
        self,
        sentences: Sequence[str],
        samples: int,
        seed: int,
        perturb: float | None = None,
        *,
        batch_size: int = 128,
        first: int = 0,
        progress: Progress | None = None,
    ) -> Codes:
        """Return posterior samples [N, S, D], or for S = 0 the means [N, 1, D].

        With `perturb` = s, z = mean + s × standard deviation × ε, with the samples' own ε (paper 1: s = 10).
        """
        self._need_code()
        if perturb is not None and not (np.isfinite(perturb) and perturb >= 0.0):
            raise ZentenceError("A perturbation must be a finite number of at least 0")
        codes = np.empty((len(sentences), max(1, samples), self.size), dtype=np.float32)
        done = 0
        for places, q, numbers in self.posteriors(sentences, batch_size=batch_size, first=first):
            noise = Noise(derive_key(seed, "encode"), numbers)
            if not samples:
                z = q.center[None]  # [S, B, D]
            elif perturb is None:
                z = q.rsample_and_log_prob(samples, noise)[0]
            else:
                z = q.center + perturb * q.scale * noise.normal(samples, self.size, q.center.dtype)
            codes[places] = z.transpose(0, 1).float().cpu().numpy()
            done += len(places)
            if progress is not None:
                progress(done)
        return codes

    def decode(
        self,
        codes: NDArray[Any],
        *,
        batch_size: int = 256,
        first: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> list[str]:
        """Return a sentence for each code [N, D]; options as `Generation` (method, temperature, beam, …).

        For a model with averaged codes, codes may be [N, L, D]: L for each sentence.
        """
        self._need_code()
        codes = self._checked(codes)
        if batch_size < 1:
            raise ZentenceError("The batch size must be at least 1")
        choice = _choice(options)
        if choice.method == "beam":
            batch_size = max(1, batch_size // choice.beam)  # beams are rows, too
        sentences: list[str] = []
        for start in range(0, len(codes), batch_size):
            z = torch.from_numpy(codes[start : start + batch_size]).to(self.device)
            numbers = torch.arange(first + start, first + start + len(z))
            # one code used L times would have L equal states, whose mean is any of them: one is enough
            states = z[None] if z.dim() == 2 else z.transpose(0, 1)
            sentences += self._write(states, len(z), choice, numbers)
            if progress is not None:
                progress(len(sentences))
        return sentences

    @torch.no_grad()
    def sample(self, count: int, *, seed: int = 0, scale: float = 1.0, first: int = 0, **options: Any) -> list[str]:
        """Return new sentences: codes from the prior, their distance from its centre multiplied by `scale`.

        Words are greedy unless `method` says otherwise; a language model always samples words.
        """
        if count < 1:
            raise ZentenceError("Give a number of sentences of at least 1")
        if not self.model.has_code:
            choice = _choice({"method": "sample", "seed": seed, **options})
            parts = [torch.arange(at, min(at + 256, first + count)) for at in range(first, first + count, 256)]
            return [text for part in parts for text in self._write(None, len(part), choice, part)]
        L = self.model.averaged_codes
        codes = self.prior_codes(count * L, seed=seed, scale=scale, first=first * L).reshape(count, L, self.size)
        return self.decode(codes, first=first, **{"seed": seed, **options})

    @torch.no_grad()
    def prior_codes(self, count: int, *, seed: int = 0, scale: float = 1.0, first: int = 0) -> Codes:
        """Return codes [N, D] drawn from the prior, their distance from its centre multiplied by `scale`."""
        prior = self.prior_density()
        noise = Noise(derive_key(seed, "prior"), torch.zeros(1, dtype=torch.int64, device=self.device), first)
        z, _ = prior.rsample_and_log_prob(count, noise)
        center = prior.center.mean(0)
        codes: Codes = (center + scale * (z[:, 0] - center)).float().cpu().numpy()
        return codes

    def prior_density(self) -> LatentDistribution:
        """Return p(z), [1, D]."""
        self._need_code()
        return self.model.prior_density()

    @torch.no_grad()
    def prior_moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the prior's mean and standard deviation in each dimension, [D] each."""
        prior = self.prior_density()
        return prior.center.mean(0).double().cpu().numpy(), prior.scale.mean(0).double().cpu().numpy()

    def reconstruct(
        self,
        sentences: Sequence[str],
        *,
        sample: bool = False,
        perturb: float | None = None,
        seed: int = 0,
        first: int = 0,
        **options: Any,
    ) -> list[str]:
        """Return decode(encode(sentences)): from the mean, from a sample, or from a perturbed mean.

        `perturb` = s takes z = mean + s × posterior standard deviation × ε (paper 1: s = 10).
        """
        codes = self.grouped_codes(sentences, sample=sample, perturb=perturb, seed=seed, first=first)
        drawn = sample or perturb is not None
        return self.decode(codes if drawn else codes[:, 0], first=first, **{"seed": seed, **options})

    def interpolate(
        self,
        start: str,
        end: str,
        *,
        steps: int = 7,
        path: str = "linear",
        sample: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> list[str]:
        """Return sentences on the way between the codes of two sentences, ends included.

        The ends are posterior means, or samples; the path is `linear`, or `spherical` about the prior's centre.
        """
        ends = moves.ends_between(self, start, end, sample=sample, seed=seed)
        way = moves.walk(self, ends, steps=steps, path=path, **{"seed": seed, **options})
        return [step.sentence for step in way]

    def analogy(self, a: str, b: str, c: str, *, strength: float = 1.0, **options: Any) -> str:
        """Return what is to c as b is to a: the sentence at z_c + strength × (z_b − z_a), from posterior means."""
        z_a, z_b, z_c = self.encode([a, b, c])
        return self.decode(moves.analogy(z_a, z_b, z_c, strength)[None], **options)[0]

    def direction(self, add: Iterable[str], subtract: Iterable[str], progress: Progress | None = None) -> Codes:
        """Return an attribute's direction [D]: the mean code of some sentences minus that of others, in streams."""
        plus = moves.mean_code(self, add, progress)
        before = plus.sentences
        minus = moves.mean_code(self, subtract, (lambda n: progress(before + n)) if progress else None)
        return plus.code - minus.code

    def edit(
        self,
        sentences: Sequence[str],
        direction: NDArray[Any],
        *,
        strength: float = 1.0,
        first: int = 0,
        **options: Any,
    ) -> list[str]:
        """Return the sentences at mean + strength × direction."""
        codes = moves.shifted(self.encode(sentences, first=first), direction, strength)
        return self.decode(codes, first=first, **options)

    @torch.no_grad()
    def score(
        self,
        sentences: Sequence[str],
        *,
        samples: int = 100,
        seed: int = 0,
        batch_size: int = 64,
        first: int = 0,
        progress: Progress | None = None,
    ) -> NDArray[np.float64]:
        """Return −log p(x) of each sentence in nats: exact for a language model, else an importance-weighted bound."""
        scores = np.empty(len(sentences), dtype=np.float64)
        done = 0
        for places, batch in self._batches(sentences, batch_size, first):
            if self.model.has_code:
                noise = Noise(derive_key(seed, "evaluation"), batch.index)
                values = bounds(self.model, batch, samples, noise).importance_weighted
            else:
                values = exact_nll(self.model, batch)
            scores[places] = values.cpu().numpy()
            done += len(places)
            if progress is not None:
                progress(done)
        return scores

    def _write(self, z: Tensor | None, batch: int, options: Generation, numbers: Tensor) -> list[str]:
        ids = generate(self.model.decoder, z, batch, options, numbers)
        return [self.vocabulary.decode(row) for row in ids]

    def _need_code(self) -> None:
        if not self.model.has_code:
            raise ZentenceError("This model is a language model: it has no codes")

    def _checked(self, codes: NDArray[Any]) -> Codes:
        codes = np.asarray(codes, dtype=np.float32)
        grouped = codes.ndim == 3 and codes.shape[1] == self.model.averaged_codes
        if (codes.ndim != 2 and not grouped) or codes.shape[-1] != self.size:
            raise ZentenceError(f"Codes must have shape [N, {self.size}], not {list(codes.shape)}")
        if not np.isfinite(codes).all():
            raise ZentenceError("Codes must be finite numbers")
        return codes


def _choice(options: Mapping[str, Any]) -> Generation:
    choice: Generation = parse_options("", Generation, options)
    return choice

"""LatentSpace: a trained model as something to use. `encode` sentences to codes, `decode` codes, `sample` new ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from zentence.machine import choose_device, prepare_process
from zentence.model import LatentLM
from zentence.noise import Noise, derive_key
from zentence.parts import parse_options
from zentence.settings import Settings
from zentence.types import Batch

Codes = NDArray[np.float32]
Progress = Callable[[int], None]  # sentences done


class LatentSpace:
    """A model, its vocabulary, and the moves in its space. Codes are float32 arrays [N, D].

    A model that averages the hidden states of L codes (paper 3) writes from L states: `decode` uses a code for all L,
    or takes L codes a sentence, [N, L, D]; `sample`, and `reconstruct` with `sample`, draw L a sentence.
    """

    def __init__(self, model: LatentLM, vocabulary: Vocabulary, settings: Settings) -> None:
        self.model, self.vocabulary, self.settings = model.eval(), vocabulary, settings
        self.device = next(model.parameters()).device

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", threads: int | None = None) -> "LatentSpace":
        """Read a model directory."""
        prepare_process(threads)
        return cls(*load_model(Path(folder), choose_device(device)))

    @property
    def size(self) -> int:
        """Dimensions of a code; 0 for a language model."""
        return self.model.code_size

    def unknown_words(self, sentence: str) -> tuple[int, int]:
        """Return how many words of a sentence the model does not know, and how many it has."""
        ids = self.vocabulary.encode_batch([sentence])[0]
        return int((ids == 3).sum()), len(ids)

    def _batches(self, sentences: Sequence[str], batch_size: int) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yield batches of sentences of similar length, with their places in the input."""
        if isinstance(sentences, str):
            raise ZentenceError("Give a list of sentences, not one string")
        ids = self.vocabulary.encode_batch(list(sentences))
        if any(len(row) == 0 for row in ids):
            raise ZentenceError(f"Sentence {next(i for i, row in enumerate(ids) if len(row) == 0) + 1} is empty")
        order = np.argsort([len(row) for row in ids], kind="stable")
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            yield chosen, collate([ids[i] for i in chosen], chosen).to(self.device)

    def encode(
        self,
        sentences: Sequence[str],
        *,
        sample: bool = False,
        seed: int = 0,
        batch_size: int = 128,
        progress: Progress | None = None,
    ) -> Codes:
        """Return codes [N, D]: posterior means, or samples."""
        return self._codes(sentences, int(sample), seed, batch_size, progress)[:, 0]

    @torch.no_grad()
    def _codes(
        self, sentences: Sequence[str], samples: int, seed: int, batch_size: int = 128, progress: Progress | None = None
    ) -> Codes:
        """Return posterior samples [N, S, D], or for S = 0 the means [N, 1, D]."""
        self._need_code()
        codes = np.empty((len(sentences), max(1, samples), self.size), dtype=np.float32)
        done = 0
        for places, batch in self._batches(sentences, batch_size):
            q = self.model.infer(batch.source)
            noise = Noise(derive_key(seed, "encode"), batch.index)
            z = q.rsample_and_log_prob(samples, noise)[0] if samples else q.center[None]  # [S, B, D]
            codes[places] = z.transpose(0, 1).float().cpu().numpy()
            done += len(places)
            if progress is not None:
                progress(done)
        return codes

    def decode(
        self, codes: NDArray[Any], *, batch_size: int = 256, progress: Progress | None = None, **options: Any
    ) -> list[str]:
        """Return a sentence for each code [N, D]; options as `Generation` (method, temperature, beam, …).

        For a model with averaged codes, codes may be [N, L, D]: L for each sentence.
        """
        self._need_code()
        codes = self._checked(codes)
        choice = _choice(options)
        sentences: list[str] = []
        for first in range(0, len(codes), batch_size):
            z = torch.from_numpy(codes[first : first + batch_size]).to(self.device)
            numbers = torch.arange(first, first + len(z))
            # one code used L times would have L equal states, whose mean is any of them: one is enough
            states = z[None] if z.dim() == 2 else z.transpose(0, 1)
            sentences += self._write(states, len(z), choice, numbers)
            if progress is not None:
                progress(len(sentences))
        return sentences

    @torch.no_grad()
    def sample(self, count: int, *, seed: int = 0, scale: float = 1.0, **options: Any) -> list[str]:
        """Return new sentences: codes from the prior, their distance from its centre multiplied by `scale`.

        Words are greedy unless `method` says otherwise; a language model always samples words.
        """
        if count < 1:
            raise ZentenceError("Give a number of sentences of at least 1")
        if not self.model.has_code:
            choice = _choice({"method": "sample", "seed": seed, **options})
            return [
                text
                for first in range(0, count, 256)
                for text in self._write(None, min(256, count - first), choice, torch.arange(first, count)[:256])
            ]
        L = self.model.averaged_codes
        codes = self.prior_codes(count * L, seed=seed, scale=scale).reshape(count, L, self.size)
        return self.decode(codes, **{"seed": seed, **options})

    @torch.no_grad()
    def prior_codes(self, count: int, *, seed: int = 0, scale: float = 1.0) -> Codes:
        """Return codes [N, D] drawn from the prior, their distance from its centre multiplied by `scale`."""
        self._need_code()
        prior = self.model.prior_density()
        noise = Noise(derive_key(seed, "prior"), torch.zeros(1, dtype=torch.int64, device=self.device))
        z, _ = prior.rsample_and_log_prob(count, noise)
        center = prior.center.mean(0)
        codes: Codes = (center + scale * (z[:, 0] - center)).float().cpu().numpy()
        return codes

    def reconstruct(
        self, sentences: Sequence[str], *, sample: bool = False, seed: int = 0, **options: Any
    ) -> list[str]:
        """Return decode(encode(sentences))."""
        codes = self._codes(sentences, self.model.averaged_codes if sample else 0, seed)
        return self.decode(codes if sample else codes[:, 0], **{"seed": seed, **options})

    def interpolate(self, start: str, end: str, *, steps: int = 7, **options: Any) -> list[str]:
        """Return sentences along the straight line between the codes of two sentences, ends included."""
        if steps < 2:
            raise ZentenceError("An interpolation has at least 2 steps")
        first, last = self.encode([start, end])
        along = np.linspace(0.0, 1.0, steps, dtype=np.float32)[:, None]
        return self.decode((1.0 - along) * first + along * last, **options)

    @torch.no_grad()
    def score(
        self,
        sentences: Sequence[str],
        *,
        samples: int = 100,
        seed: int = 0,
        batch_size: int = 64,
        progress: Progress | None = None,
    ) -> NDArray[np.float64]:
        """Return −log p(x) of each sentence in nats: exact for a language model, else an importance-weighted bound."""
        scores = np.empty(len(sentences), dtype=np.float64)
        done = 0
        for places, batch in self._batches(sentences, batch_size):
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

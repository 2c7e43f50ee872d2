"""What is evaluated: a model on a split."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from zentence.corpora import TokenStore, Vocabulary
from zentence.errors import NotInvertibleError
from zentence.evaluation.figures import Figures, compute_figures
from zentence.evaluation.journal import Journal
from zentence.evaluation.policy import SamplePolicy
from zentence.evaluation.priors import COMPONENTS, SENTENCES, density_of_codes, training_features
from zentence.model import LatentLM
from zentence.settings import Settings
from zentence.types import LatentDistribution

NO_CODE = "this is a language model: it has no code"
WEIGHTED = (  # from importance weights
    *("iw_nll", "ppl", "ppl_per_bpe_with_bos_eos", "ppl_per_bpe_without_bos_eos", "bits_per_byte"),
    *("aggregate_prior_nll", "mixture_prior_nll"),
)
DRAWN = ("elbo_nll", "distortion", "ppl_without_eos", "melbo_nll", "rate", "marginal_kl")  # from codes of q
Progress = Callable[[str, int, int], None]  # what is computed, items done, items in all


def _silent(what: str, done: int, total: int) -> None: ...


@dataclass
class Subject:
    """A model on a split, and what metrics may need beside them.

    `training` is the text that the model was trained on, where it is at hand: priors made after training, and the
    nearest training sentence of a sample, need it. Nothing is ever fitted to the split itself.
    """

    model: LatentLM
    store: TokenStore
    vocabulary: Vocabulary
    settings: Settings
    split: str
    seed: int = 0
    limit: int | None = None  # only the first N sentences
    policy: SamplePolicy = field(default_factory=SamplePolicy)  # how many codes a sentence gets for iw_nll
    wanted: frozenset[str] | None = None  # metrics asked for; None: all
    training: TokenStore | None = None
    reference: LatentLM | None = None  # a language model that judges samples
    autoencoder: LatentLM | None = None  # whose MELBO stands beside melbo_nll
    rival_nll: float | None = None  # nats per sentence; melbo_nll says at how many sentences it would meet it
    source_nll: Iterable[float] | None = None  # −log p of each sentence under the text's true source
    prior_sentences: int = SENTENCES  # training sentences of a prior made after training
    prior_components: int = COMPONENTS  # of a mixture fitted to their codes
    prior: str | None = None  # what was swapped in for the model's own prior, in words
    journal: Journal = field(default_factory=Journal)
    progress: Progress = field(default=_silent)
    _figures: Figures | None = None
    _swapped: tuple[dict[str, LatentDistribution], dict[str, str]] | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def count(self) -> int:
        """Sentences evaluated."""
        return len(self.store) if self.limit is None else min(self.limit, len(self.store))

    def wants(self, *names: str) -> bool:
        """Say whether any of these metrics is asked for: a group need not compute the others."""
        return self.wanted is None or any(name in self.wanted for name in names)

    def figures(self) -> Figures:
        """Return the per-sentence figures that likelihood and information share, computed once."""
        if self._figures is None:
            weights = self.wants(*WEIGHTED)
            drawn = weights or self.wants(*DRAWN)
            self._figures = compute_figures(
                self.model,
                self.store,
                policy=self.policy if drawn else SamplePolicy(1),
                seed=self.seed,
                limit=self.limit,
                information_sentences=self.settings.evaluation.information_sentences,
                priors=self.swapped_priors()[0],
                weights=weights,
                diagnose=weights,
                journal=self.journal,
                progress=lambda done, total: self.progress("likelihood", done, total),
            )
        return self._figures

    def swapped_priors(self) -> tuple[dict[str, LatentDistribution], dict[str, str]]:
        """Return the priors made of training sentences by their metrics' names, and why the others cannot be had."""
        if self._swapped is not None:
            return self._swapped
        names = [name for name in ("aggregate_prior_nll", "mixture_prior_nll") if self.wants(name)]
        densities: dict[str, LatentDistribution] = {}
        refused: dict[str, str] = {}
        if not self.model.has_code:
            refused = dict.fromkeys(names, NO_CODE)
        elif self.training is None:
            refused = dict.fromkeys(names, "needs the training text, which is not at hand")
        elif names:
            features = training_features(
                self.model,
                self.training,
                self.prior_sentences,
                self.seed,
                lambda done, total: self.progress("training codes", done, total),
            )
            for name in names:
                kind = name.removesuffix("_prior_nll")
                try:
                    found = density_of_codes(
                        self.model, kind, features, components=self.prior_components, seed=self.seed
                    )
                    densities[name] = found
                except NotInvertibleError:
                    refused[name] = "not available for this posterior"
        self._swapped = densities, refused
        return self._swapped

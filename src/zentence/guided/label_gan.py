"""A conditional GAN on codes (paper 5, Eq. 16): a generator G(ε, y) and a discriminator D(z, y).

The paper prints a discriminator that does not see y; this one does, by projection (Miyato and Koyama, 2018). Two
adversarial losses: `wasserstein` with a gradient penalty (Gulrajani et al., 2017), and `hinge` with spectral
normalisation (Miyato et al., 2018). With a `label_weight`, a classifier p(y|z) learns labels from true codes beside
the discriminator, and the generator also minimises that weight times −log p(y | G(ε, y)): where codes of two labels
overlap, it keeps to those whose label is plain (Odena et al., 2017). Generator and discriminator move in turns, each
by optimiser steps of its own.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.nn.utils.parametrizations import spectral_norm

from zentence.guided.codes import CHUNK, CodeBatch, LabelledCodes
from zentence.noise import Noise
from zentence.parts import Options
from zentence.training.updates import UpdateRule
from zentence.types import Terms

Turn = Literal["discriminator", "generator"]
SMALLEST_SCALE = 1e-4  # of a dimension of the codes that hardly varies


class GanOptions(Options):
    """Shape of the networks, and what they minimise."""

    loss: Literal["wasserstein", "hinge"] = Field("wasserstein", description="Adversarial loss.")
    hidden_size: int = Field(128, ge=1, description="Units of a hidden layer.")
    layers: int = Field(2, ge=1, description="Hidden layers.")
    noise_size: int | None = Field(None, ge=1, description="Dimensions of ε; none: as many as a code has.")
    discriminator_steps: int = Field(3, ge=1, description="Steps of the discriminator before each of the generator.")
    discriminator_rate: float = Field(1.0, gt=0.0, description="Its learning rate, as a factor of the generator's.")
    gradient_penalty: float = Field(10.0, ge=0.0, description="Weight of (‖∇D‖ − 1)²; wasserstein only.")
    label_weight: float = Field(
        15.0, ge=0.0, description="Weight of −log p(y | G(ε, y)) in the generator's loss; 0: as paper 5 prints it."
    )
    average: float = Field(0.995, ge=0.0, lt=1.0, description="Codes come from this moving average of generators.")


class Generator(nn.Module):
    """Codes from noise and labels; if ε has as many dimensions as a code, the network is added to it."""

    def __init__(self, size: int, labels: int, options: GanOptions) -> None:
        super().__init__()
        self.noise_size = options.noise_size or size
        self.residual = self.noise_size == size
        self.embedding = nn.Embedding(labels, options.hidden_size)
        self.first = nn.Linear(self.noise_size, options.hidden_size)
        self.hidden = nn.ModuleList(
            nn.Linear(options.hidden_size, options.hidden_size) for _ in range(options.layers - 1)
        )
        self.last = nn.Linear(options.hidden_size, size)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Return standardised codes [B, D] for noise [B, E] and labels [B]."""
        h = F.leaky_relu(self.first(noise) + self.embedding(labels), 0.2)
        for layer in self.hidden:
            h = h + F.leaky_relu(layer(h), 0.2)
        found: Tensor = self.last(h)
        return found + noise if self.residual else found


class Discriminator(nn.Module):
    """Scores of (code, label), high where a code looks true."""

    def __init__(self, size: int, labels: int, options: GanOptions) -> None:
        super().__init__()
        norm: Callable[[nn.Module], nn.Module] = spectral_norm if options.loss == "hinge" else nn.Identity()
        sizes = [size] + [options.hidden_size] * options.layers
        self.trunk = nn.ModuleList(norm(nn.Linear(a, b)) for a, b in itertools.pairwise(sizes))
        self.readout = norm(nn.Linear(options.hidden_size, 1))
        self.projection = norm(nn.Embedding(labels, options.hidden_size))

    def forward(self, codes: Tensor, labels: Tensor) -> Tensor:
        """Return scores [B] of standardised codes [B, D]."""
        h = codes
        for layer in self.trunk:
            h = F.leaky_relu(layer(h), 0.2)
        scores: Tensor = self.readout(h)[:, 0] + (self.projection(labels) * h).sum(-1)
        return scores


def label_classifier(size: int, labels: int, options: GanOptions) -> nn.Sequential:
    """Return a network from standardised codes [B, D] to the logits [B, labels] of their labels."""
    hidden = options.hidden_size
    return nn.Sequential(
        nn.Linear(size, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Linear(hidden, labels),
    )


class LabelGan(nn.Module):
    """The networks, the moving average of the generator, and moments of the true codes.

    `center` and `scale` [D] standardise codes; `means` [L, D] and `factors` [L, D, D], with A Aᵀ the covariance, are
    the class-conditional Gaussians that the GAN is compared with.
    """

    center: Tensor
    scale: Tensor
    means: Tensor
    factors: Tensor

    def __init__(self, size: int, labels: int, options: GanOptions) -> None:
        super().__init__()
        self.size, self.labels, self.options = size, labels, options
        self.generator = Generator(size, labels, options)
        self.discriminator = Discriminator(size, labels, options)
        self.classifier = label_classifier(size, labels, options) if options.label_weight > 0.0 else None
        self.averaged = copy.deepcopy(self.generator).requires_grad_(False)
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("means", torch.zeros(labels, size))
        self.register_buffer("factors", torch.zeros(labels, size, size))

    def fit_moments(self, codes: LabelledCodes, rows: list[NDArray[np.int64]]) -> None:
        """Take the moments of the codes at the places `rows` of each label, in a stream; all labels weigh alike."""
        size, draws = codes.vectors.shape[-1], codes.vectors.shape[1]
        means, variances = np.zeros((len(rows), size)), np.zeros((len(rows), size))
        for label, places in enumerate(rows):
            second = np.zeros((size, size))
            for first in range(0, len(places), CHUNK):
                part = codes.vectors[places[first : first + CHUNK]].reshape(-1, size).astype(np.float64)
                means[label] += part.sum(0) / (len(places) * draws)
                second += part.T @ part / (len(places) * draws)
            covariance = second - np.outer(means[label], means[label])
            variances[label] = np.diagonal(covariance)
            values, directions = np.linalg.eigh(covariance)
            self.factors[label] = torch.from_numpy(directions * np.sqrt(values.clip(min=0.0)))
        self.means.copy_(torch.from_numpy(means))
        self.center.copy_(torch.from_numpy(means.mean(0)))
        variance = variances.mean(0) + means.var(0)
        self.scale.copy_(torch.from_numpy(np.sqrt(variance.clip(min=SMALLEST_SCALE**2))))

    @torch.no_grad()
    def sample_gaussian(self, label: int, noise: Noise) -> Tensor:
        """Return codes [B, D] drawn from a label's Gaussian."""
        return self.means[label] + noise.normal(1, self.size)[0] @ self.factors[label].T

    def standardised(self, codes: Tensor) -> Tensor:
        """Return codes with mean 0 and variance 1 in each dimension."""
        return (codes - self.center) / self.scale

    @torch.no_grad()
    def sample(self, labels: Tensor, noise: Noise) -> Tensor:
        """Return codes [B, D] of the averaged generator for labels [B]."""
        epsilon = noise.normal(1, self.averaged.noise_size)[0]
        found: Tensor = self.averaged(epsilon, labels) * self.scale + self.center
        return found

    @torch.no_grad()
    def move_average(self) -> None:
        """Move the averaged generator towards the present one."""
        for mean, now in zip(self.averaged.parameters(), self.generator.parameters(), strict=True):
            mean.lerp_(now, 1.0 - self.options.average)


class GanTrainable(nn.Module):
    """The loss of whoever's turn it is: the discriminator's on true and generated codes, or the generator's."""

    selection = "criterion"

    def __init__(self, gan: LabelGan) -> None:
        super().__init__()
        self.model = gan
        self.turn: Turn = "generator"

    def module(self) -> nn.Module:
        """Return the module that holds all state."""
        return self

    def forward(self, batch: CodeBatch, step: int, noise: Noise) -> Terms:  # noqa: ARG002
        """Return the loss; its parts are scalars for the log."""
        gan = self.model
        epsilon = noise.fork("epsilon").normal(1, gan.generator.noise_size)[0]
        if self.turn == "generator":
            terms = generator_terms(gan, epsilon, batch.labels)
        else:
            true = gan.standardised(batch.vectors)
            with torch.no_grad():
                fake = gan.generator(epsilon, batch.labels)
            terms = discriminator_terms(gan, true, fake, batch.labels, noise.fork("mixture").uniform(1))
        player = "D" if self.turn == "discriminator" else "G"
        values = {f"{player}_{name}": float(value.detach()) for name, value in terms.items()}
        return Terms(torch.stack([*terms.values()]).sum(), {}, None, values)

    def after_update(self, terms: Terms) -> None:  # noqa: ARG002
        """Move the average."""
        self.model.move_average()


def discriminator_terms(gan: LabelGan, true: Tensor, fake: Tensor, labels: Tensor, share: Tensor) -> dict[str, Tensor]:
    """Return the discriminator's terms, whose sum it minimises, at standardised codes [B, D].

    `adversarial` is E[D(fake, y)] − E[D(true, y)]; for `hinge`, E[max(0, 1 − D(true, y))] + E[max(0, 1 + D(fake, y))].
    `penalty` is w E[(‖∇_z D(z, y)‖ − 1)²] at mixtures of a true and a generated code of the same label; `share` [B, 1]
    is the true one's. `classifier` is E[−log p(y | true)], where there is one.
    """
    options = gan.options
    on_true, on_fake = gan.discriminator(true, labels), gan.discriminator(fake, labels)
    if options.loss == "hinge":
        terms = {"adversarial": F.relu(1.0 - on_true).mean() + F.relu(1.0 + on_fake).mean()}
    else:
        terms = {"adversarial": on_fake.mean() - on_true.mean()}
        mixed = (share * true + (1.0 - share) * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(gan.discriminator(mixed, labels).sum(), mixed, create_graph=True)
        terms["penalty"] = options.gradient_penalty * (slope.norm(dim=-1) - 1.0).square().mean()
    if gan.classifier is not None:
        terms["classifier"] = F.cross_entropy(gan.classifier(true), labels)
    return terms


def generator_terms(gan: LabelGan, epsilon: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the generator's terms: `adversarial` −E[D(G(ε, y), y)], and `label` w E[−log p(y | G(ε, y))]."""
    fake = gan.generator(epsilon, labels)
    terms = {"adversarial": -gan.discriminator(fake, labels).mean()}
    if gan.classifier is not None:
        terms["label"] = gan.options.label_weight * F.cross_entropy(gan.classifier(fake), labels)
    return terms


class Alternate(UpdateRule):
    """Some steps of the discriminator on further batches, then one of the generator."""

    paper = "paper 5, appendix C.2.1; Goodfellow et al. (2014)"
    Options = GanOptions

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        gan = self.trainable.model
        assert isinstance(gan, LabelGan)
        self.players: dict[Turn, list[nn.Parameter]] = {
            "discriminator": [
                *gan.discriminator.parameters(),
                *(gan.classifier.parameters() if gan.classifier else ()),
            ],
            "generator": [*gan.generator.parameters()],
        }
        self.used = 0  # further batches so far

    def __call__(self, batch: Any, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        """Update once; return the generator's terms, with the discriminator's scalars."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self._set_rates([rate * self.options.discriminator_rate for rate in rates])
        scalars: dict[str, float] = {}
        for _ in range(self.options.discriminator_steps):
            other, other_noise = self.fresh_batch(self.used)
            self.used += 1
            scalars = self._take_turn("discriminator", other, step, other_noise)[0].scalars
        self._set_rates(rates)
        terms, loss = self._take_turn("generator", batch, step, noise)
        self.trainable.after_update(terms)
        return terms._replace(scalars={**scalars, **terms.scalars}), loss

    def _take_turn(self, turn: Turn, batch: Any, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        assert isinstance(self.trainable, GanTrainable)
        self.trainable.turn = turn
        return self.move(self.players[turn], batch, step, noise)

    def _set_rates(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def state(self) -> dict[str, Any]:
        """Return the number of further batches used."""
        return {"used": self.used}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self.used = state["used"]


def energy_distance(one: Tensor, other: Tensor) -> float:
    """Return 2 E‖x − y‖ − E‖x − x'‖ − E‖y − y'‖ of samples [N, D] and [M, D]; 0 on average if they are alike.

    The means are over pairs of different rows, so it may be slightly negative (Székely and Rizzo, 2013).
    """
    between = torch.cdist(one, other).mean()
    within = [torch.cdist(x, x).sum() / (len(x) * max(1, len(x) - 1)) for x in (one, other)]
    return float(2.0 * between - within[0] - within[1])

"""The GAN on codes: terms against closed forms, gradients on exactly the right parameters, and what it learns."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from zentence.guided.codes import BalancedBatches, LabelledCodes
from zentence.guided.label_control import SETTINGS, validation_figures
from zentence.guided.label_gan import (
    Alternate,
    GanOptions,
    GanTrainable,
    LabelGan,
    discriminator_terms,
    energy_distance,
    generator_terms,
)
from zentence.noise import Noise
from zentence.training.fit import FitResult, fit

SMALL = GanOptions(hidden_size=8, layers=2, label_weight=0.5)


def made_codes(count: int, draws: int = 1, seed: int = 0) -> LabelledCodes:
    """Return codes of two labels: two spots left and right of the origin for one, above and below it for the other."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    sides = random.choice([-2.0, 2.0], size=(count, draws))
    centers = np.stack((np.where(labels[:, None] == 0, sides, 0.0), np.where(labels[:, None] == 1, sides, 0.0)), -1)
    points = (centers + 0.3 * random.normal(size=centers.shape)).astype(np.float32)
    return LabelledCodes(points, labels, ("across", "along"), "digest")


def small_gan(options: GanOptions = SMALL, size: int = 3, labels: int = 3) -> LabelGan:
    torch.manual_seed(0)
    return LabelGan(size, labels, options)


def inputs(gan: LabelGan, count: int = 12) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    true, epsilon = torch.randn(2, count, gan.size, generator=generator)
    labels = torch.arange(count) % gan.labels
    return true, epsilon, labels, torch.rand(count, 1, generator=generator)


def moved_by(gan: LabelGan, term: Tensor) -> set[str]:
    """Return the networks all of whose parameters, but for biases that cancel, get a gradient from a term."""
    gan.zero_grad(set_to_none=True)
    term.backward()
    touched: dict[str, list[bool]] = {}
    for name, parameter in gan.named_parameters():
        if "bias" not in name:
            has = parameter.grad is not None and float(parameter.grad.abs().max()) > 0.0
            touched.setdefault(name.partition(".")[0], []).append(has)
    assert all(all(found) or not any(found) for found in touched.values()), touched
    return {network for network, found in touched.items() if all(found)}


@pytest.mark.parametrize("loss", ["wasserstein", "hinge"])
def test_each_term_moves_what_it_should_and_nothing_else(loss: Any) -> None:
    gan = small_gan(SMALL.model_copy(update={"loss": loss}))
    true, epsilon, labels, share = inputs(gan)
    fake = gan.generator(epsilon, labels).detach()
    terms = discriminator_terms(gan, true, fake, labels, share)
    expected = {"adversarial": {"discriminator"}, "classifier": {"classifier"}}
    if loss == "wasserstein":
        expected["penalty"] = {"discriminator"}
    assert terms.keys() == expected.keys()
    for name, term in terms.items():
        assert moved_by(gan, term) == expected[name], name
    for name in ("adversarial", "label"):  # through the judges, which do not move in the generator's turn
        term = generator_terms(gan, epsilon, labels)[name]
        through = "discriminator" if name == "adversarial" else "classifier"
        assert moved_by(gan, term) == {"generator", through}


def test_a_turn_moves_its_own_player_only(tmp_path: Path) -> None:
    gan = small_gan(labels=2, size=2)
    codes = made_codes(200)
    seen: list[dict[str, Tensor]] = []

    class Watched(Alternate):
        def _take_turn(self, turn: Any, *arguments: Any) -> Any:
            before = {name: p.detach().clone() for name, p in gan.named_parameters()}
            result = super()._take_turn(turn, *arguments)
            changed = {name.partition(".")[0] for name, p in gan.named_parameters() if not torch.equal(p, before[name])}
            seen.append({"turn": turn, "changed": changed})  # type: ignore[dict-item]
            return result

    run(codes, tmp_path / "fit", gan, steps=2, rule=Watched)
    turns = [(entry["turn"], entry["changed"]) for entry in seen]
    discriminator = ("discriminator", {"discriminator", "classifier"})
    assert turns == [*[discriminator] * 3, ("generator", {"generator"})] * 2


def test_terms_against_their_formulas() -> None:
    gan = small_gan()
    true, epsilon, labels, share = inputs(gan)
    fake = gan.generator(epsilon, labels).detach()
    with torch.no_grad():
        on_true, on_fake = gan.discriminator(true, labels), gan.discriminator(fake, labels)
    terms = discriminator_terms(gan, true, fake, labels, share)
    assert float(terms["adversarial"].detach()) == pytest.approx(float(on_fake.mean() - on_true.mean()), abs=1e-6)
    slopes = []
    for row in range(len(true)):  # by finite differences
        point = (share[row] * true[row] + (1 - share[row]) * fake[row]).double()
        double, label = gan.double().discriminator, labels[row : row + 1]
        steps = 1e-5 * torch.eye(gan.size, dtype=torch.float64)
        with torch.no_grad():
            slope = [float(double((point + s)[None], label) - double((point - s)[None], label)) / 2e-5 for s in steps]
        slopes.append(math.hypot(*slope))
    assert float(terms["penalty"].detach()) == pytest.approx(
        10.0 * float(np.mean([(s - 1) ** 2 for s in slopes])), rel=1e-4
    )
    hinge = small_gan(SMALL.model_copy(update={"loss": "hinge"})).eval()  # no further power iteration
    with torch.no_grad():
        on_true, on_fake = hinge.discriminator(true, labels), hinge.discriminator(fake, labels)
        found = discriminator_terms(hinge, true, fake, labels, share)["adversarial"]
    by_hand = np.maximum(0, 1 - on_true.numpy()).mean() + np.maximum(0, 1 + on_fake.numpy()).mean()
    assert float(found) == pytest.approx(float(by_hand), abs=1e-6)


def test_without_a_label_weight_there_is_no_classifier() -> None:
    gan = small_gan(GanOptions(hidden_size=8, label_weight=0.0))
    true, epsilon, labels, share = inputs(gan)
    assert gan.classifier is None
    assert discriminator_terms(gan, true, epsilon, labels, share).keys() == {"adversarial", "penalty"}
    assert generator_terms(gan, epsilon, labels).keys() == {"adversarial"}


def test_the_discriminator_sees_the_label() -> None:
    gan = small_gan()
    true, _, labels, _ = inputs(gan)
    with torch.no_grad():
        here, there = gan.discriminator(true, labels), gan.discriminator(true, (labels + 1) % 3)
    assert float((here - there).abs().min()) > 1e-4


def test_moments_are_those_of_all_draws_and_labels_weigh_alike() -> None:
    codes = made_codes(3000, draws=3)
    rows = [codes.rows_of(0)[:500], codes.rows_of(1)]
    gan = small_gan(size=2, labels=2)
    gan.fit_moments(codes, rows)
    for label in range(2):
        points = codes.vectors[rows[label]].reshape(-1, 2).astype(np.float64)
        assert gan.means[label].numpy() == pytest.approx(points.mean(0), abs=1e-5)
        factor = gan.factors[label].double().numpy()
        assert factor @ factor.T == pytest.approx(np.cov(points.T, bias=True), abs=1e-4)
    parts = [codes.vectors[rows[label]].reshape(-1, 2) for label in range(2)]
    mixture = [np.mean([part[:, d].mean() for part in parts]) for d in range(2)]
    assert gan.center.numpy() == pytest.approx(mixture, abs=1e-5)
    second = [
        np.mean([(part[:, d].astype(np.float64) ** 2).mean() for part in parts]) - mixture[d] ** 2 for d in (0, 1)
    ]
    assert gan.scale.numpy() ** 2 == pytest.approx(second, rel=1e-4)
    drawn = gan.sample_gaussian(0, Noise(7, torch.arange(20_000)))
    assert np.cov(drawn.double().numpy().T) == pytest.approx(np.cov(parts[0].T), abs=0.15)


def test_energy_distance_of_known_samples() -> None:
    one, other = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [4.0]])
    assert energy_distance(one, other) == pytest.approx(2 * (1 + 4 + 1 + 2) / 4 - 2 - 3)
    normal = torch.special.ndtri((torch.arange(800, dtype=torch.float64)[:, None] + 0.5) / 800)
    assert abs(energy_distance(normal, normal)) < 0.01
    # N(0, 1) and N(1, 1): E|x − y| = (2 / √π) e^(−1/4) + erf(1/2), and E|x − x'| = 2 / √π
    exact = 4 / math.sqrt(math.pi) * (math.exp(-0.25) - 1) + 2 * math.erf(0.5)
    assert energy_distance(normal, normal + 1) == pytest.approx(exact, abs=0.01)


def run(
    codes: LabelledCodes,
    folder: Path,
    gan: LabelGan,
    *,
    steps: int,
    rule: type[Alternate] = Alternate,
    resume: bool = False,
    **options: Any,
) -> FitResult:
    training, held = codes.split(0)
    gan.fit_moments(codes, training)
    changes = {
        "steps": steps,
        "learning_rate": 2e-3,
        "validate_every": max(1, steps // 4),
        **options.pop("changes", {}),
    }
    return fit(
        "toy",
        GanTrainable(gan),
        BalancedBatches(codes, training, 64, 0),
        settings=SETTINGS.model_copy(update=changes),
        folder=folder,
        fingerprint={},
        validate=partial(validation_figures, gan, codes, held, 0),
        resume=resume,
        overwrite=False,
        update=partial(rule, gan.options),
        **options,
    )


def test_two_spots_of_each_label_are_found_and_labels_obeyed(tmp_path: Path) -> None:
    codes = made_codes(4000)
    torch.manual_seed(0)
    gan = LabelGan(2, 2, GanOptions(hidden_size=32, label_weight=0.0, gradient_penalty=1.0, average=0.97))
    result = run(codes, tmp_path / "fit", gan, steps=300, changes={"learning_rate": 5e-3})
    gaussian = []
    for label in range(2):
        points = gan.sample(torch.full((2000,), label), Noise(3, torch.arange(2000)))
        along, beside = points[:, label], points[:, 1 - label]
        assert float((along.abs() > beside.abs()).double().mean()) > 0.92  # the label is obeyed
        assert 0.3 < float((along > 0).double().mean()) < 0.7  # neither spot is forgotten
        assert float(along.abs().mean()) == pytest.approx(2.0, abs=0.5)
        assert float(beside.std()) < 0.5
        drawn = gan.sample_gaussian(label, Noise(3, torch.arange(2000)))  # knows the moments, not the two spots
        true = torch.from_numpy(codes.vectors[codes.rows_of(label), 0])
        gaussian.append(energy_distance(gan.standardised(true), gan.standardised(drawn)))
    assert result.state.best_value is not None
    assert result.state.best_value**2 < 0.5 * float(np.mean(gaussian))  # without a label term, the distance's root


def test_a_resumed_gan_is_bit_identical(tmp_path: Path) -> None:
    codes = made_codes(300, draws=2)

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["tick"] == 7:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"steps": 12, "changes": {"validate_every": 5, "log_every": 1}}
    gan_options = GanOptions(loss="hinge", hidden_size=8, label_weight=0.1)  # with buffers of power iterations
    run(codes, tmp_path / "whole", small_gan(gan_options, 2, 2), **options)
    with pytest.raises(KeyboardInterrupt):
        run(codes, tmp_path / "parts", small_gan(gan_options, 2, 2), **options, callbacks=[stop])
    run(codes, tmp_path / "parts", small_gan(gan_options, 2, 2), **options, resume=True)
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_batches_have_equal_labels_and_take_draws_in_turn() -> None:
    codes = made_codes(100, draws=2)
    rows = [codes.rows_of(0), codes.rows_of(1)[:10]]
    batches = BalancedBatches(codes, rows, 20, seed=3)
    assert len(batches) == 3
    batch = batches.batch(0, 0)
    assert batch.labels.tolist() == [0] * 10 + [1] * 10
    assert batch.index.tolist() == list(range(20))
    known = {
        tuple(row): (place, draw)
        for place, pair in enumerate(codes.vectors.tolist())
        for draw, row in enumerate(map(tuple, pair))
    }
    rare = [[known[tuple(row)] for row in batches.batch(0, position).vectors[10:].tolist()] for position in range(3)]
    assert all({place for place, _ in found} == set(rows[1].tolist()) for found in rare)  # a whole pass in each batch
    assert [{draw for _, draw in found} for found in rare] == [{0}, {1}, {0}]
    assert rare[0] != [(place, 0) for place, _ in rare[2]]  # in another order
    often = [
        known[tuple(row)][0]
        for position in range(5)
        for row in batches.batch(*divmod(position, 3)).vectors[:10].tolist()
    ]
    assert sorted(often) == rows[0].tolist()
    assert torch.equal(batches.batch(-1, 2).vectors, batches.batch(-1, 2).vectors)
    assert not torch.equal(batches.batch(-1, 2).vectors, batches.batch(0, 2).vectors)


def test_the_label_term_keeps_to_codes_whose_label_is_plain(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(2000) % 2
    points = random.normal(size=(2000, 1, 2)).astype(np.float32)
    points[:, 0, 0] += 1.4 * labels - 0.7  # 76 % of the codes lie on their label's side
    codes = LabelledCodes(points, labels, ("left", "right"), "digest")
    sides = []
    for weight in (0.0, 10.0):
        gan = small_gan(GanOptions(hidden_size=16, label_weight=weight, average=0.95), 2, 2)
        run(codes, tmp_path / str(weight), gan, steps=120)
        drawn = [gan.sample(torch.full((500,), label), Noise(3, torch.arange(500)))[:, 0] for label in (0, 1)]
        sides.append(float(torch.cat([drawn[0] < 0, drawn[1] > 0]).double().mean()))
    assert sides[0] < 0.85 and sides[1] > 0.9

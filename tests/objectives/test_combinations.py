"""Every objective and rate rule with every posterior and prior: it trains two steps, or is refused in one line."""

from typing import Any

import pytest
import torch

from zentence.build import build_model, build_objective, complete
from zentence.errors import ZentenceError
from zentence.noise import Noise
from zentence.objectives import OBJECTIVES, RATE_RULES
from zentence.posteriors import POSTERIORS
from zentence.priors import PRIORS
from zentence.settings import Settings, settings_from
from zentence.testing import random_batch
from zentence.training.optimizers import build_optimizer
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import UPDATES, Joint, complete_updates

POSTERIOR = {"gaussian": {}, "iaf": {"context_size": 8, "steps": 2}, "planar": {"steps": 2}}
PRIOR = {
    "standard_normal": {},
    "mixture": {"components": 3},
    "vamp": {"components": 3, "length_mean": 3.0, "length_spread": 1.0},
}
OBJECTIVE: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in OBJECTIVES},
    "elbo, 3 codes": {"name": "elbo", "num_codes": 3, "rate_samples": 4},
    "free bits, per dimension": {"name": "elbo", "rate_rule": {"name": "free_bits", "total_target": 2.0}},
    "free bits, sentences": {"name": "elbo", "rate_rule": {"name": "free_bits", "on": "total", "total_target": 2.0}},
    "free bits, batch": {
        "name": "info_vae",
        "rate_rule": {"name": "free_bits", "on": "total", "mean": "batch", "total_target": 2.0},
    },
    "foresight, minimum rate": {
        "name": "foresight",
        "objective": {"name": "elbo", "rate_rule": {"name": "minimum_rate", "target": 2.0}},
    },
    "soft free bits": {"name": "elbo", "rate_rule": {"name": "soft_free_bits", "target": 2.0}},
    "minimum rate": {"name": "elbo", "rate_rule": {"name": "minimum_rate", "target": 2.0}},
}
NEEDS_CLOSED_FORM = {"free bits, per dimension": "per dimension", "free bits, sentences": "per sentence"}


def content(objective: dict[str, Any], posterior: str, prior: str, **changes: Any) -> dict[str, Any]:
    return {
        "encoder": {"name": "recurrent", "embedding_size": 5, "hidden_size": 6},
        "posterior": {"name": posterior, "size": 2, **POSTERIOR[posterior]},
        "prior": {"name": prior, **PRIOR[prior]},
        "decoder": {"name": "recurrent", "embedding_size": 5, "hidden_size": 6, "tied": False},
        "stages": [{"objective": objective}],
        **changes,
    }


def two_steps(settings: Settings) -> None:
    """Update a tiny model twice; every loss is finite, and the parts of the model move."""
    model = build_model(settings, 11).double()
    objective = build_objective(settings.stages[0], 2.0, 2)
    trainable = LatentTrainable(model, objective, lambda step: 0.0).train()
    optimizer = build_optimizer(model, settings.optimizer)
    rule = Joint(Joint.Options(), trainable, optimizer, settings.optimizer, lambda number: pytest.fail("joint"))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for step in range(2):
        batch = random_batch([3, 5, 2, 4], seed=step)
        terms, loss = rule(batch, step, Noise(step, batch.index))
        assert bool(torch.isfinite(loss))
        assert all(bool(torch.isfinite(value).all()) for value in terms.values.values())
    changed = {name.split(".")[0] for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert {"encoder", "posterior", "decoder"} <= changed
    assert "prior" in changed or settings.prior.name == "standard_normal" or objective.selection == "distortion"


def expected_refusal(objective: str, posterior: str, prior: str) -> str | None:
    if posterior == "planar" and prior == "vamp":
        return "Prior 'vamp' needs"
    if objective == "likelihood":
        return "is for language models"
    if posterior == "planar" and objective.startswith("foresight"):
        return "'foresight' needs q.z.x. at any z; posterior 'planar' knows it at its own samples only"
    if objective in NEEDS_CLOSED_FORM and (posterior, prior) != ("gaussian", "standard_normal"):
        name = f"posterior '{posterior}'" if posterior != "gaussian" else f"prior '{prior}'"
        kind = NEEDS_CLOSED_FORM[objective]
        return f"free bits {kind} need a closed-form KL; {name} has none: use 'total' on the batch mean"
    return None


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("objective", OBJECTIVE)
def test_combination_trains_or_is_refused(objective: str, posterior: str, prior: str) -> None:
    settings = settings_from(content(OBJECTIVE[objective], posterior, prior))
    message = expected_refusal(objective, posterior, prior)
    if message is None:
        two_steps(complete(settings))
        return
    with pytest.raises(ZentenceError, match=message) as refused:
        complete(settings)
    assert "\n" not in str(refused.value)


def test_tables_are_covered() -> None:
    assert set(POSTERIOR) == set(POSTERIORS) and set(PRIOR) == set(PRIORS)
    assert {entry["rate_rule"]["name"] for entry in OBJECTIVE.values() if "rate_rule" in entry} | {"plain"} == set(
        RATE_RULES
    )


@pytest.mark.parametrize("rule", ["free bits, per dimension", "soft free bits", "minimum rate"])
def test_every_option_of_objective_rule_and_update_is_written_out(rule: str) -> None:
    settings = content(OBJECTIVE[rule], "gaussian", "standard_normal")
    settings["stages"][0]["update"] = {"name": "aggressive", "judge_every": 3}
    completed = complete_updates(complete(settings_from(settings)))
    stage = completed.stages[0]
    assert stage.objective.options["num_codes"] == 1
    written = stage.objective.options["rate_rule"]
    optional = {"total_target", "target_per_dimension", "cap", "largest_slack"}
    assert set(RATE_RULES[written["name"]].Options.model_fields) - optional <= set(written)
    assert stage.update.options == {"max_inner": 100, "judge_every": 3}
    assert complete_updates(complete(completed)) == completed


MISTAKES = {
    "unknown rule": ({"name": "agressive"}, "Unknown update rule 'agressive'. Did you mean 'aggressive'?"),
    "unknown option": ({"name": "joint", "max_inner": 3}, "Unknown setting 'stages.0.update.max_inner'"),
    "wrong value": ({"name": "aggressive", "max_inner": 0}, "'stages.0.update.max_inner' = 0"),
}


@pytest.mark.parametrize(("update", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_in_the_update_rule_are_found_before_training(update: dict[str, Any], message: str) -> None:
    settings = content({"name": "elbo"}, "gaussian", "standard_normal")
    settings["stages"][0]["update"] = update
    with pytest.raises(ZentenceError, match=message.replace("?", r"\?")):
        complete_updates(complete(settings_from(settings)))


def test_aggressive_updates_are_refused_where_they_cannot_work() -> None:
    assert set(UPDATES) == {"joint", "aggressive"}
    settings = content({"name": "elbo"}, "planar", "standard_normal")
    settings["stages"][0]["update"] = {"name": "aggressive"}
    with pytest.raises(ZentenceError, match="posterior 'planar' knows it at its own samples only"):
        complete_updates(complete(settings_from(settings)))
    settings = content({"name": "likelihood"}, "gaussian", "standard_normal", encoder={"name": "none"})
    settings["stages"][0]["update"] = {"name": "aggressive"}
    with pytest.raises(ZentenceError, match="'aggressive' needs a code"):
        complete_updates(complete(settings_from(settings)))

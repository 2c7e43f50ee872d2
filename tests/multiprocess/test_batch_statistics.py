"""Statistics over a batch that is spread over two processes: those of one process, to the last digits."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from zentence.build import build_objective
from zentence.noise import Noise
from zentence.parts import Part
from zentence.settings import OptimizerSettings, StageSettings
from zentence.testing import random_batch, tiny_model
from zentence.training.optimizers import build_optimizer
from zentence.training.trainable import LatentTrainable
from zentence.training.updates import UPDATES
from zentence.types import Batch, Tokens

TIMEOUT = 120.0
SETTINGS = OptimizerSettings(name="sgd", learning_rate=0.1, clip=0.5)


def rule(name: str, **options: Any) -> dict[str, Any]:
    return {"name": "elbo", "rate_rule": {"name": name, **options}}


def free_bits(**options: Any) -> dict[str, Any]:
    return rule("free_bits", mean="batch", **options)


def information(**options: Any) -> dict[str, Any]:
    return free_bits(on="both", mismatch_weight=0.8, target_per_dimension=0.01, **options)


MIXTURE = ["prior.name=mixture", "prior.components=3"]
IAF = ["posterior.name=iaf", "posterior.context_size=8"]
CASES: dict[str, tuple[dict[str, Any], list[str], dict[str, Any]]] = {
    "plain": (rule("plain", weight=0.7), [], {}),
    "free bits, total, below": (free_bits(on="total", total_target=50.0), [], {}),
    "free bits, total, above": (free_bits(on="total", total_target=0.1), IAF, {}),
    "free bits, per dimension": (free_bits(total_target=0.8), [], {}),
    "free bits, both": (free_bits(on="both", total_target=0.3, target_per_dimension=0.1), [], {}),
    "free information, below": (information(total_target=9.0), [], {}),
    "free information, above": (information(total_target=0.01), [], {}),
    "soft free bits": (rule("soft_free_bits", target=0.3), [], {}),
    "minimum rate": (rule("minimum_rate", target=3.0, learning_rate=0.1), [], {}),
    "minimum rate, sgd": (rule("minimum_rate", target=3.0, learning_rate=0.1, optimizer="sgd"), MIXTURE, {}),
    "info_vae": ({"name": "info_vae", "mmd_weight": 5.0}, [], {}),
    "info_vae, mixture": ({"name": "info_vae", "kernel": "inverse_multiquadratic"}, MIXTURE + IAF, {}),
    "iwae": ({"name": "iwae", "num_codes": 3}, [], {}),
    "mim": ({"name": "mim"}, MIXTURE, {}),
    "autoencoder": ({"name": "autoencoder"}, [], {}),
    "averaged codes": (rule("plain"), ["averaged_codes=2"], {}),
    "aggressive": (rule("plain"), [], {"name": "aggressive", "max_inner": 7, "judge_every": 2}),
}


def part_of(batch: Batch, rank: int, world: int) -> Batch:
    """Return the rows that a process receives: rank, rank + world, …"""
    rows = slice(rank, None, world)
    source, target = (Tokens(t.ids[rows], t.lengths[rows]) for t in (batch.source, batch.target))
    own = batch._replace(source=source, target=target, inputs=batch.inputs[rows], index=batch.index[rows])
    return own._replace(total=batch.size, weight=0.8)


def outcome(name: str, rank: int, world: int) -> dict[str, Any]:
    """Update three times on batches of 5, 6 and 7 sentences; return losses, scalars, weights and the rule's state."""
    objective, overrides, update = CASES[name]
    stage = StageSettings(objective=Part.model_validate(objective))
    model = tiny_model(overrides, spread=0.5)
    trainable = LatentTrainable(model, build_objective(stage, 1.0, 1), lambda step: 0.2).train()
    chosen = UPDATES[update.get("name", "joint")]
    options = chosen.Options(**{key: value for key, value in update.items() if key != "name"})

    def batch(seed: int, rows: int) -> tuple[Batch, Noise]:
        own = part_of(random_batch(range(2, 2 + rows), seed=seed), rank, world)
        return own, Noise(seed, own.index)

    made = chosen(options, trainable, build_optimizer(model, SETTINGS), SETTINGS, lambda n: batch(100 + n, 5 + n % 2))
    losses, scalars = [], []
    for step in range(3):
        own, noise = batch(step, 5 + step)
        terms, loss = made(own, step, noise)
        losses.append(float(loss))
        scalars.append(dict(terms.scalars))
    made.after_validation({"mutual_information": 0.25 + rank})  # the main process's figure decides
    state = {key: value.tolist() for key, value in trainable.objective.state_dict().items()}
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return {"losses": losses, "scalars": scalars, "state": state, "rule": made.state(), "weights": weights}


def work(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    results = {name: outcome(name, rank, world) for name in CASES}
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    folder: Path = tmp_path_factory.mktemp("processes")
    context = mp.spawn(work, (2, str(folder)), nprocs=2, join=False)
    assert context is not None
    end = time.monotonic() + TIMEOUT
    try:
        while not context.join(timeout=max(0.1, end - time.monotonic())):
            assert time.monotonic() < end, "two processes did not finish in time"
    finally:
        for process in context.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_find_what_one_finds(name: str, spread: list[dict[str, Any]]) -> None:
    alone = outcome(name, 0, 1)
    for found in spread:
        result = found[name]
        assert result["losses"] == pytest.approx(alone["losses"], abs=1e-9)
        for mine, theirs in zip(result["scalars"], alone["scalars"], strict=True):
            assert mine == pytest.approx(theirs, abs=1e-9)
        assert result["state"] == pytest.approx(alone["state"], abs=1e-9)
        assert result["rule"] == alone["rule"]
        assert torch.allclose(result["weights"], alone["weights"], atol=1e-9)
    assert torch.equal(spread[0][name]["weights"], spread[1][name]["weights"])

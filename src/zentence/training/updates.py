"""Update rules: how one step moves the parameters."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from zentence import distributed
from zentence.errors import ZentenceError
from zentence.noise import Noise
from zentence.parts import Options as PartOptions
from zentence.parts import Part, find_part, parse_options, plain
from zentence.posteriors import POSTERIORS
from zentence.settings import OptimizerSettings, Settings
from zentence.training.accumulation import joined, parts_of
from zentence.training.optimizers import add_l2, split_parameters, trained_parameters
from zentence.training.trainable import Rows, Trainable
from zentence.types import Batch, Terms

FreshBatch = Callable[[int], tuple[Any, Noise]]
"""The n-th further training batch of a stage, beyond those that the loop hands out, with its noise: the same for
the same n, whatever came before."""


class NonFiniteLossError(Exception):
    """The loss of `batch`, or its gradient, is not a number."""

    def __init__(self, batch: Rows) -> None:
        super().__init__("the loss is not finite")
        self.batch = batch


class UpdateRule:
    """Moves parameters once per call, and may look at validation figures.

    `wants` names validation figures that the rule asks for beyond the usual ones. What must survive a restart is in
    `state`, as plain JSON values.
    """

    Options: ClassVar[type[PartOptions]]
    paper: ClassVar[str] = ""
    needs_code: ClassVar[bool] = False
    needs_density_elsewhere: ClassVar[bool] = False  # asks the posterior for log q(z|x) at other sentences' codes
    accumulate: int = 1  # parts of a batch whose gradients are added up

    def __init__(
        self,
        options: Any,
        trainable: Trainable,
        optimizer: torch.optim.Optimizer,
        settings: OptimizerSettings,
        fresh_batch: FreshBatch,
    ) -> None:
        self.options, self.fresh_batch = options, fresh_batch
        self.trainable, self.optimizer, self.settings = trainable, optimizer, settings
        self.parameters: list[nn.Parameter] = trained_parameters(trainable.model)

    @property
    def wants(self) -> frozenset[str]:
        """Validation figures asked for: `mutual_information` or nothing."""
        return frozenset()

    def __call__(self, batch: Rows, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        """Update once; return the terms and the loss of the whole batch."""
        raise NotImplementedError

    def after_validation(self, figures: dict[str, float]) -> None:
        """Take note of validation figures; called after every validation."""

    def state(self) -> dict[str, Any]:
        """Return what must survive a restart."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""

    def move(self, parameters: list[nn.Parameter], batch: Rows, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        """Take one optimiser step on some of the parameters; the norm that is clipped is theirs."""
        self.optimizer.zero_grad(set_to_none=True)  # the optimiser leaves parameters without a gradient alone
        terms = self._gradients(parameters, batch, step, noise)
        distributed.sum_gradients(parameters)
        loss = distributed.total(terms.loss)
        add_l2(self.trainable.model, self.settings.l2)
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(norm)):
            raise NonFiniteLossError(batch)
        if self.settings.clip is not None and float(norm) > self.settings.clip:  # else one pass over memory less
            nn.utils.clip_grads_with_norm_(parameters, self.settings.clip, norm)
        self.optimizer.step()
        return terms, loss

    def _gradients(self, parameters: list[nn.Parameter], batch: Rows, step: int, noise: Noise) -> Terms:
        """Add up the gradients of a batch, part by part if the rule accumulates; return the terms of all of it."""
        whole = self.accumulate == 1 or not isinstance(batch, Batch)
        found = []
        for part, own in [(batch, noise)] if whole else parts_of(batch, noise, self.accumulate):  # type: ignore[arg-type]
            found.append(self.trainable(part, step, own))
            (found[-1].loss * batch.weight).backward(inputs=parameters)  # type: ignore[no-untyped-call]
        return joined(found)


class Joint(UpdateRule):
    """All parameters at once."""

    paper = "all"

    class Options(PartOptions):
        pass

    def __call__(self, batch: Rows, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        """Update once; return the terms and the loss of the whole batch."""
        terms, loss = self.move(self.parameters, batch, step, noise)
        self.trainable.after_update(terms)
        return terms, loss


class Aggressive(UpdateRule):
    """While aggressive: encoder and posterior alone on fresh batches until the loss stops falling, then the rest once.

    The loss is judged on windows of `judge_every` inner steps, in nats per token over all processes, against the window
    before. The regime ends for good at the first validation whose mutual information is not above the best so far;
    from then on all parameters move at once. Parameters that the encoder shares with the decoder belong to the decoder.
    Multipliers of the objective move with the outer steps only; inner batches do not count as updates or epochs.
    """

    paper = "paper 4 (baseline); He et al. (2019)"
    needs_code = True
    needs_density_elsewhere = True

    class Options(PartOptions):
        max_inner: int = Field(100, ge=1, description="Most encoder steps before each step of the decoder.")
        judge_every: int = Field(10, ge=1, description="Encoder steps between two looks at whether the loss falls.")

    def __init__(
        self,
        options: Any,
        trainable: Trainable,
        optimizer: torch.optim.Optimizer,
        settings: OptimizerSettings,
        fresh_batch: FreshBatch,
    ) -> None:
        super().__init__(options, trainable, optimizer, settings, fresh_batch)
        self.inference, self.generation = split_parameters(trainable.model)
        self.aggressive = True
        self.best: float | None = None  # mutual information on validation, nats
        self.used = 0  # inner batches so far

    @property
    def wants(self) -> frozenset[str]:
        """The mutual information, as long as the regime lasts."""
        return frozenset({"mutual_information"} if self.aggressive else ())

    def __call__(self, batch: Rows, step: int, noise: Noise) -> tuple[Terms, Tensor]:
        """Train the encoder, then update decoder and prior once; or, after the regime, everything once."""
        inner = self._train_encoder(step) if self.aggressive else 0
        terms, loss = self.move(self.generation if self.aggressive else self.parameters, batch, step, noise)
        self.trainable.after_update(terms)
        return terms._replace(scalars={**terms.scalars, "inner_steps": float(inner)}), loss

    def _train_encoder(self, step: int) -> int:
        """Move encoder and posterior until the loss stops falling; return the number of steps."""
        before, nats, tokens = math.inf, 0.0, 0
        for count in range(1, self.options.max_inner + 1):
            batch, noise = self.fresh_batch(self.used)
            self.used += 1
            _, loss = self.move(self.inference, batch, step, noise)
            nats += float(loss) * batch.global_size
            tokens += int(batch.target.lengths.sum())
            if count % self.options.judge_every == 0:
                now = nats / distributed.total_number(tokens)
                if now >= before:
                    return count
                before, nats, tokens = now, 0.0, 0
        return int(self.options.max_inner)

    def after_validation(self, figures: dict[str, float]) -> None:
        """End the regime when the mutual information has not risen; the main process's figure decides."""
        if not self.aggressive:
            return
        found = distributed.gather(figures["mutual_information"])[0]
        if self.best is not None and not found > self.best:
            self.aggressive = False
        else:
            self.best = found

    def state(self) -> dict[str, Any]:
        """Return whether the regime lasts, the best mutual information, and the inner batches used."""
        return {"aggressive": self.aggressive, "best": self.best, "used": self.used}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self.aggressive, self.best, self.used = state["aggressive"], state["best"], state["used"]


UPDATES: dict[str, type[UpdateRule]] = {"joint": Joint, "aggressive": Aggressive}


def find_update(where: str, part: Part) -> tuple[type[UpdateRule], Any]:
    """Return the update rule that a stage's settings choose, and its options."""
    chosen = find_part("update rule", UPDATES, part.name)
    return chosen, parse_options(where, chosen.Options, part.options)


def complete_updates(settings: Settings) -> Settings:
    """Check every stage's update rule against the model; return the settings with its options written out.

    `zentence.build.complete` does the same for all other parts: it stands below this room, and cannot know the rules.
    """
    stages = []
    for number, stage in enumerate(settings.stages):
        where, name = f"stages.{number}.update", stage.update.name
        chosen, options = find_update(where, stage.update)
        if chosen.needs_code and not settings.has_code:
            raise ZentenceError(f"{where}: '{name}' needs a code; a language model takes 'joint'")
        if chosen.needs_density_elsewhere:
            posterior = find_part("posterior", POSTERIORS, settings.posterior.name)
            if not getattr(posterior, "density_elsewhere", True):
                need = f"'{name}' needs the mutual information, thus q(z|x) at any z"
                known = f"posterior '{settings.posterior.name}' knows it at its own samples only"
                raise ZentenceError(f"{where}: {need}; {known}")
        update = Part.model_validate({"name": name, **plain(options)})
        stages.append(stage.model_copy(update={"update": update}))
    return settings.model_copy(update={"stages": tuple(stages)})

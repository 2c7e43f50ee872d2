"""Running figures of training, for the log and for warnings."""

from collections import deque

import torch
from torch import Tensor

from zentence import distributed
from zentence.evaluation.information import active_units
from zentence.training.trainable import Rows
from zentence.types import Batch, Terms

WINDOW = 1024  # sentences whose posterior means tell which units are active
COLLAPSED_RATE = 0.1  # nats


class Tracker:
    """Collects terms between log lines."""

    def __init__(self) -> None:
        self.centers: deque[Tensor] = deque()
        self.warned = False
        self.last: dict[str, float] = {}
        self._clear()

    def _clear(self) -> None:
        self.sums: dict[str, float] = {}
        self.sentences = self.tokens = self.rows = 0
        self.loss = 0.0
        self.scalars: dict[str, float] = {}

    def record(self, terms: Terms, loss: Tensor, batch: Rows) -> None:
        """Count one update."""
        for name, values in terms.values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.sum())
        self.sentences += batch.size
        rows = batch.size
        if isinstance(batch, Batch):
            self.tokens += int(batch.target.lengths.sum())
            rows = batch.global_size
        self.loss += float(loss) * rows
        self.rows += rows
        self.scalars = terms.scalars
        if terms.center is not None:
            self.centers.append(terms.center)
            while len(self.centers) > 1 and sum(len(c) for c in self.centers) - len(self.centers[0]) >= WINDOW:
                self.centers.popleft()

    def summary(self) -> dict[str, float]:
        """Return means in nats per sentence since the last summary, over all processes."""
        count = distributed.total_number(self.sentences)
        result = {"loss": self.loss / max(1, self.rows)}
        result |= {name: distributed.total_number(value) / count for name, value in self.sums.items()}
        result |= self.scalars
        if tokens := distributed.total_number(self.tokens):
            result["tokens"] = tokens
        if self.centers:
            centers = torch.cat(list(self.centers))
            result["active_units"], result["code_size"] = active_units(centers)[0], centers.shape[1]
        self._clear()
        self.last = result
        return {name: round(value, 6) for name, value in result.items()}

    def collapse_warning(self, progress: float) -> str | None:
        """Return a warning, once, when the rate has gone to nothing while it is being charged."""
        rate, active = self.last.get("rate"), self.last.get("active_units")
        charged = self.last.get("beta", 0.0) > 0.0
        if self.warned or progress < 0.05 or rate is None or active is None or not charged:
            return None
        if rate > COLLAPSED_RATE or active > 0:
            return None
        self.warned = True
        return (
            f"rate {rate:.2f} nats, {int(active)} of {int(self.last['code_size'])} units active: the code is being "
            "ignored (posterior collapse). Use a rate rule with a target, for example "
            "--set stages.0.objective.rate_rule.name=free_bits --set stages.0.objective.rate_rule.total_target=8, "
            "or the default recipe."
        )

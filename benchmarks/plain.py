"""What zentence is measured against: the same model and batches in plain PyTorch, written as one usually does."""

import torch
from torch import nn

from benchmarks.shapes import CODE, EMBEDDING, HIDDEN, VOCABULARY
from zentence.types import Batch


class PlainVae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(VOCABULARY, EMBEDDING)
        self.encoder = nn.LSTM(EMBEDDING, HIDDEN, batch_first=True)
        self.to_posterior = nn.Linear(HIDDEN, 2 * CODE, bias=False)
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.decoder = nn.LSTM(EMBEDDING + CODE, HIDDEN, batch_first=True)
        self.start = nn.Linear(CODE, HIDDEN, bias=False)
        self.output = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.dropout = nn.Dropout(0.5)

    def forward(self, batch: Batch) -> torch.Tensor:
        _, (hidden, _) = self.encoder(self.source(batch.source.ids))
        mean, log_variance = self.to_posterior(hidden[0]).chunk(2, -1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        rate = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1.0).sum(1)
        embedded = self.dropout(self.embedding(batch.inputs))
        embedded = torch.cat((embedded, z[:, None].expand(-1, embedded.shape[1], -1)), -1)
        cell = self.start(z)[None]
        states, _ = self.decoder(embedded, (torch.tanh(cell), cell))
        scores = self.output(self.dropout(states))
        target = batch.target.ids
        distortion = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten(), reduction="none")
        return (distortion.view(target.shape).sum(1) + rate).mean()


def plain_step(sentences: int) -> tuple[object, int]:
    """Return a function that takes one training step, and the tokens it trains."""
    from benchmarks.shapes import batches

    torch.manual_seed(0)
    model, data = PlainVae(), batches(sentences, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    number = 0

    def step() -> None:
        nonlocal number
        optimizer.zero_grad()
        loss = model(data[number % len(data)])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        number += 1

    return step, int(data[0].target.lengths.sum())

import torch
from torch import nn

from zentence.initialise import InitialRanges, initialise


def test_forget_gates_remember() -> None:
    """The gate of a state that has seen nothing is sigmoid(bias); other parameters keep their range."""
    torch.manual_seed(0)
    recurrence = nn.LSTM(3, 5, 2, batch_first=True)
    initialise(recurrence, InitialRanges(recurrent=0.01, forget_bias=2.0))
    for layer in range(2):
        first, second = (getattr(recurrence, f"bias_{kind}_l{layer}").detach() for kind in ("ih", "hh"))
        assert torch.equal((first + second)[5:10], torch.full((5,), 2.0))
        others = torch.cat((first[:5], first[10:], second[:5], second[10:]))
        assert 0.0 < float(others.abs().max()) <= 0.01
        assert float(getattr(recurrence, f"weight_hh_l{layer}").detach().abs().max()) <= 0.01


def test_a_remembered_word_reaches_the_end() -> None:
    """Of a cell's content sigmoid(bias) is left after each word of no weight: 0.5^8 without a bias, 0.88^8 with 2."""
    left = []
    for bias in (None, 2.0):
        recurrence = nn.LSTM(1, 4)
        initialise(recurrence, InitialRanges(recurrent=1e-6, forget_bias=bias))
        _, (_, cell) = recurrence(torch.zeros(8, 1), (torch.zeros(1, 4), torch.ones(1, 4)))
        left.append(cell.detach())
    for found, gate in zip(left, (torch.tensor(0.0), torch.tensor(2.0)), strict=True):
        assert torch.allclose(found, torch.sigmoid(gate) ** 8, atol=1e-4)

"""How a code enters a transformer decoder (paper 5, Sec. 3.1): as memory, into the embeddings, or both.

*Memory*: W_M z is cut into one vector a layer; each stands before the first word as one more key and value, the same
vector as both, that every word can attend to. *Embedding*: W_D z is added to the embedding of every word. Neither map
has a bias.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from zentence.errors import ZentenceError
from zentence.huggingface import library


def memory_cache(memory: list[tuple[Tensor, Tensor]]) -> Any:
    """Return a cache of the library's kind that holds a memory [N, heads, 1, head size] a layer, and never more.

    Layers attend to it and to the words that they are given; these are not kept. So a layer that is run a second time,
    in the backward pass, finds what it found the first time.
    """
    return _memory_cache_class()(memory)


@cache
def _memory_cache_class() -> type[Any]:
    """Return the class, made once the library is loaded."""
    base: Any = library().DynamicCache

    class MemoryCache(base):  # type: ignore[misc]
        """A cache that stays as it is."""

        def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            """Return a layer's keys and values with the memory before them."""
            held = self.layers[layer]
            return torch.cat((held.keys, keys), dim=-2), torch.cat((held.values, values), dim=-2)

    return MemoryCache


class Injection(nn.Module):
    """The maps W_M and W_D from codes to what a transformer reads; `reset_parameters` gives them their values."""

    def __init__(self, code_size: int, config: Any, *, memory: bool, embedding: bool) -> None:
        super().__init__()
        heads = config.num_attention_heads
        self.layers: int = config.num_hidden_layers
        self.heads: int = getattr(config, "num_key_value_heads", None) or heads
        self.head_size: int = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.code_size = code_size
        if memory and "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise ZentenceError(
                f"Memory does not fit '{config.model_type}', whose words see only the last few: "
                "set decoder.memory = false"
            )
        width = self.layers * self.heads * self.head_size
        self.memory_map = nn.Linear(code_size, width, bias=False) if memory and code_size else None
        self.embedding_map = nn.Linear(code_size, config.hidden_size, bias=False) if embedding and code_size else None

    def reset_parameters(self, spread: float | None, word_spread: float) -> None:
        """Draw new initial values of standard deviation `spread`.

        None: 0.02 for W_M; for W_D what gives W_D z, of a standard normal code, the spread of the word embeddings.
        More of it, and at first the words drown in the noise of the code.
        """
        if self.memory_map is not None:
            nn.init.normal_(self.memory_map.weight, std=spread or 0.02)
        if self.embedding_map is not None:
            nn.init.normal_(self.embedding_map.weight, std=spread or word_spread / math.sqrt(self.code_size))

    @property
    def positions(self) -> int:
        """Positions before the first word."""
        return 0 if self.memory_map is None else 1

    def memory(self, code: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return keys and values [N, heads, 1, head size] of each layer for codes [N, D]; none without memory."""
        if self.memory_map is None:
            return []
        cut = self.memory_map(code).view(len(code), self.layers, self.heads, 1, self.head_size)
        return [(vector, vector) for vector in cut.unbind(1)]

    def added(self, code: Tensor) -> Tensor | None:
        """Return what is added to the embedding of every word, [N, H], for codes [N, D]."""
        return None if self.embedding_map is None else self.embedding_map(code)

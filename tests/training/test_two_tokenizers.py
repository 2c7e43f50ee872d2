"""A BERT and a GPT-2 with weights and tokenisers of their own, joined: training, resuming, loading, fine-tuning."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import zentence
from zentence.checkpoint import inherit
from zentence.errors import ZentenceError
from zentence.latent import LatentSpace
from zentence.parts import plain
from zentence.settings import load_settings

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")

STEPS = 6
QUICK = [
    "training.tensorboard=no",
    "training.threads=1",
    "training.batch_tokens=512",
    "training.checkpoint_seconds=0",
    "evaluation.samples=3",
    "evaluation.selection_sentences=8",
    "posterior.size=4",
]


def write_weights(folder: Path, text: list[str], network: Any, tokenizer: Any, trainer: Any) -> None:
    tokenizer.train_from_iterator(text, trainer)
    network(tokenizer.get_vocab_size()).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def weights(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories of random weights as the library writes them: bert (WordPiece) and gpt2 (byte-level BPE)."""
    folder, text = tmp_path_factory.mktemp("weights"), (captions / "train.txt").read_text(encoding="utf-8").splitlines()
    torch.manual_seed(1)
    reader = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    reader.normalizer, reader.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}

    def bert(size: int) -> Any:
        return transformers.BertModel(transformers.BertConfig(vocab_size=size, max_position_embeddings=64, **shape))

    write_weights(
        folder / "bert", text, bert, reader, trainers.WordPieceTrainer(vocab_size=150, special_tokens=special)
    )
    writer = Tokenizer(models.BPE())
    writer.pre_tokenizer, writer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()

    def gpt2(size: int) -> Any:
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        config = transformers.GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ends)
        return transformers.GPT2LMHeadModel(config)

    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    write_weights(folder / "gpt2", text, gpt2, writer, trainer)
    return folder


def trained(captions: Path, out: Path, recipe: str, *changes: str, **options: Any) -> Any:
    settings = load_settings(recipe, [*QUICK, *changes])
    return zentence.train(settings, captions / "train.txt", valid=[captions / "valid.txt"], out=out, **options)


def joined(weights: Path) -> list[str]:
    return [f"encoder.weights={weights / 'bert'}", f"decoder.weights={weights / 'gpt2'}"]


class Run:
    def __init__(self, captions: Path, weights: Path, folder: Path) -> None:
        self.folder, self.middle = folder / "whole", folder / "middle"
        changes = [*joined(weights), f"training.max_steps={STEPS}", "training.log_every=1"]
        result = trained(captions, self.folder, "optimus-small-pretrained", *changes, callbacks=[self._follow])
        self.figures = {m.name: m for m in result.measurements}

    def _follow(self, event: Any) -> None:
        if event["event"] == "step" and event["tick"] == STEPS - 1:
            shutil.copytree(self.folder, self.middle)


@pytest.fixture(scope="module")
def run(captions: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of both stages: the new maps alone, then everything."""
    return Run(captions, weights, tmp_path_factory.mktemp("joined"))


def test_it_starts_from_both_and_the_directory_needs_them_no_more(run: Run, captions: Path, weights: Path) -> None:
    assert {path.name for path in run.folder.glob("*tokenizer.json")} == {"tokenizer.json", "encoder_tokenizer.json"}
    space = LatentSpace.load(run.folder)
    theirs = transformers.BertModel.from_pretrained(weights / "bert")
    assert space.vocabulary.encoder is not None
    ours = space.model.encoder
    near = {"atol": 0.01}  # a few steps of 5e-5
    assert torch.allclose(
        ours.network.encoder.layer[1].output.dense.weight, theirs.encoder.layer[1].output.dense.weight, **near
    )
    ids = Tokenizer.from_file(str(weights / "bert" / "tokenizer.json")).get_vocab()
    rows = [
        ids[{"<pad>": "[PAD]", "<bos>": "[CLS]", "<eos>": "[SEP]", "<unk>": "[UNK]"}.get(w, w)]
        for w in space.vocabulary.encoder.words
    ]
    assert torch.allclose(ours.embedding.weight[1:], theirs.embeddings.word_embeddings.weight[rows][1:], **near)
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()[:7]
    codes = space.encode(lines)
    assert np.allclose(codes, np.concatenate([space.encode([line]) for line in lines]), atol=1e-5)
    assert len(space.reconstruct(lines)) == 7 and space.score(lines, samples=3).shape == (7,)


def test_figures_are_in_every_unit(run: Run, captions: Path) -> None:
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = LatentSpace.load(run.folder).vocabulary
    nats, tokens = run.figures["iw_nll"].value * len(lines), sum(map(len, vocabulary.encode_batch(lines)))
    expected = {"ppl_per_bpe_with_bos_eos": tokens + 2 * len(lines), "ppl_per_bpe_without_bos_eos": tokens}
    for name, count in expected.items():
        assert run.figures[name].value == pytest.approx(np.exp(nats / count), rel=1e-6)
        assert run.figures[name].details["tokens"] == tokens


def test_resuming_without_the_weights_gives_the_same_model(
    run: Run, captions: Path, weights: Path, tmp_path: Path
) -> None:
    hidden = weights.rename(tmp_path / "gone")
    try:
        content = zentence.checkpoint.load_settings_of(run.middle)
        zentence.train(content, out=run.middle, resume=True)
    finally:
        hidden.rename(weights)
    assert (run.middle / "model.safetensors").read_bytes() == (run.folder / "model.safetensors").read_bytes()


def test_a_shared_folder_has_both_tokenisers(run: Run, captions: Path, tmp_path: Path) -> None:
    space = LatentSpace.load(run.folder)
    space.save_pretrained(tmp_path / "shared")
    again = LatentSpace.from_pretrained(tmp_path / "shared")
    lines = (captions / "valid.txt").read_text(encoding="utf-8").splitlines()[:3]
    assert np.array_equal(again.encode(lines), space.encode(lines))


def test_fine_tuning_takes_over_parts_and_tokenisers(run: Run, captions: Path, tmp_path: Path) -> None:
    changes = [f"init_from={run.folder}", "training.max_steps=2", "encoder.dropout=0.25"]
    settings = load_settings("optimus-finetune", [change for change in QUICK if "posterior" not in change] + changes)
    result = zentence.train(settings, captions / "test.txt", valid=[captions / "valid.txt"], out=tmp_path / "tuned")
    tuned, before = LatentSpace.load(result.folder), LatentSpace.load(run.folder)
    assert tuned.vocabulary.hash == before.vocabulary.hash and tuned.size == 4
    assert tuned.settings.encoder.options["dropout"] == 0.25
    assert plain(tuned.settings)["decoder"] == plain(before.settings)["decoder"]
    weight, start = (space.model.decoder.network.lm_head.weight for space in (tuned, before))
    assert torch.allclose(weight, start, atol=0.01) and not torch.equal(weight, start)


def test_fine_tuning_refuses_what_does_not_fit_in_one_line(
    run: Run, captions: Path, weights: Path, tmp_path: Path
) -> None:
    start = f"init_from={run.folder}"
    cases = {
        "has another tokeniser": ("optimus-mini", [start, "corpus.bpe_size=300"]),
        "its codes have 4 dimensions, these 5": ("optimus-finetune", [start, "posterior.size=5"]),
        "is not a model directory": ("optimus-finetune", [f"init_from={tmp_path}"]),
        "give a model directory with --init-from": ("optimus-finetune", []),
    }
    for message, (recipe, changes) in cases.items():
        with pytest.raises(ZentenceError, match=message) as caught:
            trained(captions, tmp_path / "new", recipe, *changes)
        assert "\n" not in str(caught.value) and not (tmp_path / "new").exists()


def test_settings_without_inheritance_are_left_alone() -> None:
    settings = load_settings("default")
    assert inherit(settings) is settings


def test_a_name_of_the_hub_goes_the_same_way(weights: Path, captions: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """From the Hub's own cache, laid out as the Hub lays it out, without a network."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (extra 'hub')")
    commit = "0" * 40
    for name in ("bert", "gpt2"):
        cached = tmp_path / "cache" / f"models--someone--{name}"
        shutil.copytree(weights / name, cached / "snapshots" / commit)
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text(commit, encoding="utf-8")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    changes = ["encoder.weights=someone/bert", "decoder.weights=someone/gpt2", "training.max_steps=1"]
    trained(captions, tmp_path / "run", "optimus-small-pretrained", *changes)
    assert LatentSpace.load(tmp_path / "run").vocabulary.encoder is not None
    with pytest.raises(ZentenceError, match=r"decoder\.weights = 'someone/else'.*give a directory") as caught:
        trained(captions, tmp_path / "other", "optimus-small-pretrained", "decoder.weights=someone/else", *changes[:1])
    assert "\n" not in str(caught.value)


def test_an_encoder_given_as_decoder_is_refused(weights: Path, captions: Path, tmp_path: Path) -> None:
    changes = [f"encoder.weights={weights / 'bert'}", f"decoder.weights={weights / 'bert'}"]
    with pytest.raises(ZentenceError, match="'bert' is no decoder") as caught:
        trained(captions, tmp_path / "run", "optimus-small-pretrained", *changes)
    assert "\n" not in str(caught.value)


def test_a_sentence_beyond_the_positions_is_refused_before_training(
    weights: Path, captions: Path, tmp_path: Path
) -> None:
    long = tmp_path / "long.txt"
    long.write_text("x" * 1_000_000 + "\n", encoding="utf-8")
    settings = load_settings("optimus-small-pretrained", [*QUICK, *joined(weights)])
    with pytest.raises(
        ZentenceError, match=r"A sentence of valid has 1,000,000 tokens, the \w+ has positions"
    ) as caught:
        zentence.train(settings, captions / "train.txt", valid=[long], out=tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_weights_without_a_tokeniser_are_refused(weights: Path, captions: Path, tmp_path: Path) -> None:
    shutil.copytree(weights / "gpt2", tmp_path / "gpt2")
    (tmp_path / "gpt2" / "tokenizer.json").unlink()
    changes = [f"encoder.weights={weights / 'bert'}", f"decoder.weights={tmp_path / 'gpt2'}"]
    with pytest.raises(ZentenceError, match=r"has no tokenizer\.json: set corpus\.tokenizer = 'bpe'"):
        trained(captions, tmp_path / "run", "optimus-small-pretrained", *changes)

"""Models that are shared: folders, the Hub (played by a local folder) and the card."""

import json
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest

from zentence.checkpoint import save_model, save_settings
from zentence.corpora.vocabulary import build_vocabulary
from zentence.errors import ZentenceError
from zentence.evaluation.measurement import Measurement
from zentence.evaluation.verdict import verdict
from zentence.latent import LatentSpace, hub
from zentence.latent.card import in_words, model_card, plain_text
from zentence.settings import CorpusSettings, Settings
from zentence.testing import tiny_model, tiny_settings

SENTENCES = ["a cat sat .", "the dog ran to the cat .", "a dog ."]
SECRET = "/home/somebody/secret"


def measured(name: str, value: float, kind: Any = "estimate", split: str = "valid", **details: Any) -> Measurement:
    unit = "nats per sentence" if name.endswith("nll") else "nats"
    return Measurement(name, value, unit, kind, 0.125, 1234, 50, split, 0, details=details)


FIGURES = [
    measured("iw_nll", 23.456, "upper_bound"),
    measured("mutual_information", 3.71),
    measured("active_units", 7, of=16),
    measured("source_nll", 20.0, "exact"),
]


def settings_with_paths(*overrides: str) -> Settings:
    files = [f'corpus.train=["{SECRET}/my_text.txt"]', f"out={SECRET}/run", f"init_from={SECRET}/before"]
    return tiny_settings([*files, *overrides])


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    vocabulary = build_vocabulary(Counter(" ".join(SENTENCES).split()), CorpusSettings())
    save_settings(folder, settings_with_paths())
    vocabulary.save(folder / "tokenizer.json")
    save_model(folder, tiny_model(vocabulary=len(vocabulary), spread=0.8).float())
    (folder / "results.json").write_text(json.dumps([asdict(m) for m in FIGURES]), encoding="utf-8")
    (folder / "log.jsonl").write_text("{}\n", encoding="utf-8")
    return folder


class LocalHub:
    """Stands for huggingface_hub.HfApi: repositories are folders."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, list[dict[str, Any]]()

    def create_repo(self, repo_id: str, **options: Any) -> str:
        (self.root / repo_id).mkdir(parents=True, exist_ok=options["exist_ok"])
        return f"https://hub.example/{repo_id}"

    def upload_folder(self, *, repo_id: str, folder_path: str, allow_patterns: list[str], **options: Any) -> None:
        self.calls.append(options)
        for path in Path(folder_path).iterdir():
            assert path.name in allow_patterns
            shutil.copy(path, self.root / repo_id)

    def snapshot_download(self, repo_id: str, *, allow_patterns: list[str], **_: Any) -> str:
        """Copy what is asked for by name, as the real one does with patterns that have no wild cards."""
        assert not any(character in pattern for pattern in allow_patterns for character in "*?[/")
        cache = self.root / "cache" / repo_id
        cache.mkdir(parents=True, exist_ok=True)
        for path in (self.root / repo_id).iterdir():
            if path.name in allow_patterns:
                shutil.copy(path, cache)
        return str(cache)


def test_a_folder_round_trip_gives_identical_codes(model_dir: Path, tmp_path: Path) -> None:
    space = LatentSpace.load(model_dir)
    space.save_pretrained(tmp_path / "shared")
    assert {path.name for path in (tmp_path / "shared").iterdir()} == {*hub.FILES} - {
        "encoder_tokenizer.json"
    }  # both parts read with one tokeniser
    again = LatentSpace.from_pretrained(tmp_path / "shared")
    assert np.array_equal(again.encode(SENTENCES), space.encode(SENTENCES))
    assert again.sample(3, method="sample") == space.sample(3, method="sample")
    assert (tmp_path / "shared" / "results.json").read_bytes() == (model_dir / "results.json").read_bytes()
    again.save_pretrained(tmp_path / "twice")
    for name in ("model.safetensors", "tokenizer.json", "settings.toml", "results.json"):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "shared" / name).read_bytes()


def test_no_path_of_the_machine_is_shared(model_dir: Path, tmp_path: Path) -> None:
    LatentSpace.load(model_dir).save_pretrained(tmp_path / "shared")
    for path in (tmp_path / "shared").iterdir():
        content = path.read_bytes()
        assert b"secret" not in content and str(tmp_path).encode() not in content
    assert "my\\_text.txt" in (tmp_path / "shared" / "README.md").read_text(encoding="utf-8")


def test_nothing_is_overwritten_unasked(model_dir: Path, tmp_path: Path) -> None:
    space, shared = LatentSpace.load(model_dir), tmp_path / "shared"
    space.save_pretrained(shared)
    (shared / "README.md").write_text("mine\n", encoding="utf-8")
    with pytest.raises(ZentenceError, match="exists: choose another folder"):
        space.save_pretrained(shared)
    assert (shared / "README.md").read_text(encoding="utf-8") == "mine\n"
    (model_dir / "results.json").unlink()
    space.save_pretrained(shared, overwrite=True)
    assert not (shared / "results.json").exists()  # the figures of another model
    with pytest.raises(ZentenceError, match="where this model was read from"):
        space.save_pretrained(model_dir, overwrite=True)
    with pytest.raises(ZentenceError, match="Cannot write to"):
        space.save_pretrained(shared / "README.md" / "below")


def test_push_and_fetch(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space, local = LatentSpace.load(model_dir), LocalHub(tmp_path / "hub")
    assert space.push_to_hub("me/model", api=local, commit_message="One") == "https://hub.example/me/model"
    assert local.calls == [{"revision": None, "commit_message": "One"}]
    card = (tmp_path / "hub" / "me" / "model" / "README.md").read_text(encoding="utf-8")
    assert 'LatentSpace.from_pretrained("me/model")' in card
    (tmp_path / "hub" / "me" / "model" / "evil.py").write_text("raise SystemExit", encoding="utf-8")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", local.snapshot_download)
    monkeypatch.chdir(tmp_path)
    fetched = LatentSpace.from_pretrained("me/model")
    assert np.array_equal(fetched.encode(SENTENCES), space.encode(SENTENCES))
    assert fetched.folder is not None
    assert {path.name for path in fetched.folder.iterdir()} == {*hub.FILES} - {
        "encoder_tokenizer.json"
    }  # both parts read with one tokeniser


def test_a_fetched_model_brings_no_outside_parts(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LocalHub(tmp_path / "hub")
    LatentSpace.load(model_dir).push_to_hub("me/model", api=local)
    settings = tmp_path / "hub" / "me" / "model" / "settings.toml"
    whole = settings.read_text(encoding="utf-8")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", local.snapshot_download)
    monkeypatch.chdir(tmp_path)
    for old, name in (('[prior]\nname = "standard_normal"', "prior"), ('[stages.objective]\nname = "elbo"', "elbo")):
        assert whole.count(old) == 1, name
        settings.write_text(whole.replace(old, old.rpartition('"')[0].rpartition('"')[0] + '"os:Part"'), "utf-8")
        with pytest.raises(ZentenceError, match="uses 'os:Part' from outside"):
            LatentSpace.from_pretrained("me/model")
    with pytest.raises(ZentenceError, match="os"):  # now it is tried
        LatentSpace.from_pretrained("me/model", outside_parts=True)


def test_what_cannot_be_had_is_said_in_one_line(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise OSError("no network\nand more")

    space, local = LatentSpace.load(model_dir), LocalHub(tmp_path)
    monkeypatch.setattr(local, "upload_folder", fail)
    with pytest.raises(ZentenceError, match=r"^Cannot upload to me/model: no network$"):
        space.push_to_hub("me/model", api=local)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ZentenceError, match=r"the Hub does not give one: no network$"):
        LatentSpace.from_pretrained("nobody/nothing")
    for name in ("../up", "a/b/c", "a b", "", "-x", "a..b", "https://x.y/z"):
        with pytest.raises(ZentenceError, match="owner/name"):
            space.push_to_hub(name, api=local)
    with pytest.raises(ZentenceError, match="neither a model directory nor"):
        LatentSpace.from_pretrained("runs/no/such")


def test_the_card_states_figures_with_their_kinds() -> None:
    card = model_card("me/model", settings_with_paths(), FIGURES, 4321, 98765)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in card.splitlines() if line.startswith("| valid")
    ]
    assert rows[0] == ["valid", "iw\\_nll", "23.46", "0.12", "nats per sentence", "upper bound", "1,234", "50"]
    assert [row[2] for row in rows] == ["23.46", "3.71", "7 of 16", "20.00"]
    assert {len(row) for row in rows} == {8}
    for kind in ("exact", "upper bound", "estimate"):
        assert f"- *{kind}*: " in card
    assert "not a bound" not in card
    for said in ("4,321", "98,765", "at most 3.46 nats", "before", "codes of 2 dimensions"):
        assert said in card
    front = card.split("---\n")[1]
    assert front.startswith("library_name: zentence\n")


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ([measured("mutual_information", 0.02), measured("active_units", 0, of=16)], "do not rely on its codes"),
        ([measured("mutual_information", 3.0), measured("shuffled_code_gap", 0.01)], "do not rely on its codes"),
        ([measured("rate", 5.0, split="a_b")], "On a\\_b: "),
        ([], "No figures"),
    ],
)
def test_the_words_follow_the_figures(figures: list[Measurement], said: str) -> None:
    assert said in " ".join(in_words(tiny_settings(), figures))


def test_a_model_that_uses_its_code_is_not_warned_of() -> None:
    figures = [*FIGURES, measured("rate", 4.0), measured("shuffled_code_gap", 9.0)]
    said = " ".join(in_words(tiny_settings(), figures))
    assert verdict(figures).text in said and "rely" not in said


def test_a_language_model_has_its_own_verdict() -> None:
    figures = [measured("nll", 22.4, "exact"), measured("source_nll", 20.4, "exact")]
    said = in_words(tiny_settings(language_model=True), figures)
    assert "no code" in said[0] and said[1].startswith("It stands 2.00 nats")
    card = model_card("lm", tiny_settings(language_model=True), figures, 10, 20)
    assert "encode" not in card and "space.sample(5)" in card


def test_text_from_outside_cannot_break_the_card() -> None:
    strange = "a|b\n# <b>`x`</b> [y](z)"
    assert plain_text(strange) == "a\\|b \\# \\<b\\>\\`x\\`\\</b\\> \\[y\\](z)"
    card = model_card('x"\n"y', settings_with_paths(), [measured("rate", 1.0, split=strange)], 1, 1)
    row = next(line for line in card.splitlines() if line.startswith("| a"))
    assert row.replace("\\|", "").count("|") == 9
    assert 'from_pretrained("x\\"\\n\\"y")' in card

import shutil
from pathlib import Path

import pytest

TINY = [
    *("encoder.embedding_size=8", "encoder.hidden_size=12", "posterior.size=4"),
    *("decoder.embedding_size=8", "decoder.hidden_size=12"),
    *("training.batch_sentences=none", "training.batch_tokens=256", "training.tensorboard=no", "training.log_every=5"),
]


@pytest.fixture(scope="session")
def tiny_row() -> list[str]:
    """Options of `reproduce` that make any row of paper 4 train in a second."""
    return [word for change in TINY for word in ("--set", change)]


@pytest.fixture(scope="session")
def data(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose PTB is the built-in corpus."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "ptb").mkdir()
    for split in ("train", "valid"):
        shutil.copy(captions / f"{split}.txt", folder / "ptb" / f"ptb.{split}.txt")
    return folder

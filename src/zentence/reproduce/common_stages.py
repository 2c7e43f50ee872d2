"""First stages that rows have in common: trained once, and taken over by the rows that come later.

Paper 4's fix begins with the same auto-encoder for every λ. What a first stage leaves are checkpoints, which hold its
time as well, and a log; a row that takes them over goes on as an interrupted run would.
"""

import shutil
import tempfile
from pathlib import Path

from zentence.settings import Settings


def first_stage(settings: Settings) -> Settings | None:
    """Return the settings that the first of several stages depends on; none where its length depends on the others."""
    training = settings.training
    if len(settings.stages) < 2 or training.max_steps is not None or training.max_minutes is not None:
        return None
    return settings.model_copy(update={"stages": settings.stages[:1]})


def copy_stage(source: Path, target: Path) -> bool:
    """Copy what a first stage has left to a folder that holds nothing yet, whole or not at all; say whether it was."""
    if not (source / "checkpoints").is_dir() or (target.is_dir() and any(target.iterdir())):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        new = Path(folder) / "new"
        shutil.copytree(source / "checkpoints", new / "checkpoints")
        shutil.copy(source / "log.jsonl", new)
        try:
            new.replace(target)
        except OSError:  # another process was faster
            return False
    return True

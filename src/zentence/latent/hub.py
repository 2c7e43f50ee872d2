"""Sharing models: folders that hold a model and its card, and the Hugging Face Hub.

Nothing is pickled, and of a repository only the files below are ever fetched. The library `huggingface_hub` is
needed only where the Hub is.
"""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zentence.checkpoint import MODEL_FILES, load_settings_of, save_model, save_settings
from zentence.corpora.vocabulary import ENCODER_FILE
from zentence.errors import ZentenceError
from zentence.evaluation.measurement import read_results
from zentence.files import write_atomically
from zentence.latent.card import model_card
from zentence.settings import Settings

if TYPE_CHECKING:
    from zentence.latent.space import LatentSpace

RESULTS, CARD = "results.json", "README.md"
FILES = (*MODEL_FILES, ENCODER_FILE, RESULTS, CARD)  # all that is written, uploaded or downloaded
_REPOSITORY = re.compile(r"(?!.*(--|\.\.))(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)


def save_pretrained(space: "LatentSpace", folder: Path, *, name: str | None = None, overwrite: bool = False) -> None:
    """Write a model with its figures and its card into a folder; `name` is how the card says it is loaded.

    Paths of the machine it was trained on are left out of its settings: such a model can be used, not resumed.
    """
    if space.folder is not None and folder.resolve() == space.folder.resolve():
        raise ZentenceError(f"{folder} is where this model was read from: choose another folder")
    _make_room(folder, overwrite)
    results = space.folder / RESULTS if space.folder is not None else None
    known = results is not None and results.is_file()
    measurements = read_results(results) if results is not None and known else []
    save_settings(folder, public_settings(space.settings))
    space.vocabulary.save(folder / "tokenizer.json")
    save_model(folder, space.model)
    if results is not None and known:
        write_atomically(folder / RESULTS, results.read_bytes())
    else:
        (folder / RESULTS).unlink(missing_ok=True)  # of the model that was there before
    weights = sum(parameter.numel() for parameter in space.model.parameters())
    card = model_card(name or folder.resolve().name, space.settings, measurements, len(space.vocabulary), weights)
    write_atomically(folder / CARD, card)


def public_settings(settings: Settings) -> Settings:
    """Return settings without the paths of this machine."""
    corpus = settings.corpus.model_copy(update={"train": (), "valid": (), "test": ()})
    return settings.model_copy(update={"out": None, "init_from": None, "corpus": corpus})


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    outside_parts: bool = False,
    device: str = "auto",
    threads: int | None = None,
) -> "LatentSpace":
    """Read a model directory, or download a model `owner/name` of the Hub (once; then it is in the Hub's cache).

    Parts from outside the package (`module:Class` in settings.toml) run code of modules that are installed here: of a
    downloaded model they are refused unless `outside_parts` is set.
    """
    from zentence.latent.space import LatentSpace

    if Path(name).is_dir():
        return LatentSpace.load(name, device, threads)
    repository = str(name)
    if not _REPOSITORY.fullmatch(repository):
        raise ZentenceError(f"{name} is neither a model directory nor the name of a repository, owner/name")
    folder = Path(_download(repository, revision, token, cache_dir))
    strange = _outside_parts(load_settings_of(folder).model_dump(mode="json"))
    if strange and not outside_parts:
        raise ZentenceError(f"{repository} uses '{strange[0]}' from outside zentence: allow it with outside_parts=True")
    return LatentSpace.load(folder, device, threads)


def push_to_hub(
    space: "LatentSpace",
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str = "Upload model",
    api: Any = None,
) -> str:
    """Upload a model with its figures and its card; return its address.

    `api` is a `huggingface_hub.HfApi`, for another endpoint; the repository is made if it does not exist.
    """
    if not _REPOSITORY.fullmatch(repo_id):
        raise ZentenceError(f"'{repo_id}' is no name of a repository: write owner/name")
    if api is None:
        api = _hub().HfApi(token=token)
    with tempfile.TemporaryDirectory(prefix="zentence-") as place:
        save_pretrained(space, Path(place), name=repo_id, overwrite=True)
        try:
            address = str(api.create_repo(repo_id, private=private, exist_ok=True))
            api.upload_folder(
                repo_id=repo_id,
                folder_path=place,
                allow_patterns=list(FILES),
                revision=revision,
                commit_message=commit_message,
            )
        except Exception as error:  # the network's and the library's errors have no common kind
            raise ZentenceError(f"Cannot upload to {repo_id}: {_first_line(error)}") from error
    return address


def _make_room(folder: Path, overwrite: bool) -> None:
    present = [name for name in FILES if (folder / name).exists()]
    if present and not overwrite:
        raise ZentenceError(f"{folder / present[0]} exists: choose another folder, or overwrite it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZentenceError(f"Cannot write to {folder}: {error.strerror}") from error


def _download(repository: str, revision: str | None, token: str | bool | None, cache_dir: str | Path | None) -> str:
    try:
        return str(
            _hub().snapshot_download(
                repository, revision=revision, token=token, cache_dir=cache_dir, allow_patterns=list(FILES)
            )
        )
    except ZentenceError:
        raise
    except Exception as error:  # the network's and the library's errors have no common kind
        raise ZentenceError(
            f"No model directory {repository} is here, and the Hub does not give one: {_first_line(error)}"
        ) from error


def _outside_parts(value: Any) -> list[str]:
    """Return the names of all parts that are not the package's own."""
    if isinstance(value, dict):
        name = value.get("name")
        own = [name] if isinstance(name, str) and ":" in name else []
        return own + [found for entry in value.values() for found in _outside_parts(entry)]
    return [found for entry in value for found in _outside_parts(entry)] if isinstance(value, list) else []


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ZentenceError("The library huggingface_hub is missing: pip install huggingface_hub") from None
    return huggingface_hub


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__

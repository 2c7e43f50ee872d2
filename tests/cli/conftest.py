from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def trained(
    zentence: Any, tiny: Any, files: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Any]]:
    """Return a function from a recipe's name to a tiny model trained with it and what `train --json` printed."""
    models: dict[str, tuple[Path, Any]] = {}

    def model(recipe: str) -> tuple[Path, Any]:
        if recipe not in models:
            folder = tmp_path_factory.mktemp("models") / recipe
            options = tiny(recipe, decoder__tied="false", optimizer__learning_rate=0.02)
            models[recipe] = folder, zentence("train", *files, *options, "--out", folder, "--json")
        return models[recipe]

    return model


@pytest.fixture(scope="session")
def model(trained: Any) -> Path:
    return trained("default")[0]


@pytest.fixture(scope="session")
def language_model(trained: Any) -> Path:
    return trained("language-model")[0]

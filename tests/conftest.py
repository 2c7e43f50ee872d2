from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def token_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests' token cache out of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZENTENCE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

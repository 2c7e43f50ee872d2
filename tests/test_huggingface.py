"""The library transformers is an extra: nothing but transformer parts needs it, and they say so."""

import subprocess
import sys

import pytest

from zentence.build import complete
from zentence.errors import ZentenceError
from zentence.settings import load_settings


def test_without_the_library_a_transformer_part_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zentence.huggingface.find_spec", lambda _name: None)
    complete(load_settings("default"))
    with pytest.raises(ZentenceError, match=r"needs the library transformers: pip install 'zentence\[transformers\]'"):
        complete(load_settings("optimus-small"))


def test_the_library_is_loaded_only_when_a_network_is_made() -> None:
    code = (
        "import sys; from zentence.build import complete; from zentence.settings import load_settings; "
        "import zentence.latent.space; complete(load_settings('optimus-small')); "
        "sys.exit('transformers' in sys.modules)"
    )
    pytest.importorskip("transformers", reason="transformers is not installed (extra 'transformers')")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

import re
from pathlib import Path

from tieline.shims import INTERCOM_CLIENT


def test_intercom_client_is_found_beside_the_package() -> None:
    """The path is absolute, and there is the module."""
    path = Path(INTERCOM_CLIENT)
    assert path.is_absolute()
    assert path.suffix == ".mjs"
    assert path.is_file()


def test_intercom_client_imports_nothing_but_node() -> None:
    """It needs no package: each import is one of Node's own."""
    text = Path(INTERCOM_CLIENT).read_text(encoding="utf-8")
    imported = re.findall(r'from "([^"]+)"', text)
    assert imported
    assert [name for name in imported if not name.startswith("node:")] == []
    assert "import(" not in text
    assert "require(" not in text

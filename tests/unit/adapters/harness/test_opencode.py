"""opencode: the configuration that is there, and the plugin beside it."""

from collections.abc import Callable
from pathlib import Path

from tieline.adapters.harness.base import Document, Place
from tieline.adapters.harness.opencode import HARNESS

Make = Callable[..., Place]


def test_files_are_those_that_are_there(place: Make, home: Path) -> None:
    """With comments, where a person chose that form."""
    (alone,) = HARNESS.files(place(TIELINE_HOME="/t"))
    assert isinstance(alone, Document)
    assert alone.entries[0].value["environment"] == {"TIELINE_HOME": "/t"}
    made = place(shims=("opencode",), TIELINE_HOME="/t")
    folder = home / ".config" / "opencode"
    config, plugin = HARNESS.files(made)
    assert (config.path, plugin.path) == (f"{folder}/opencode.json", f"{folder}/plugins/tieline.js")
    assert isinstance(config, Document)
    assert config.entries == (), "the plugin brings the tools"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text("{}")
    assert HARNESS.files(made)[0].path.endswith("opencode.jsonc")


def test_files_of_a_project_and_of_a_moved_folder(place: Make) -> None:
    """The plugin of a project is in its hidden folder."""
    paths = [file.path for file in HARNESS.files(place(shims=("opencode",), project="/p"))]
    assert paths == ["/p/opencode.json", "/p/.opencode/plugins/tieline.js"]
    assert HARNESS.files(place(XDG_CONFIG_HOME="/x"))[0].path == "/x/opencode/opencode.json"
    assert HARNESS.folder(place(OPENCODE_CONFIG_DIR="/o")) == "/o"

"""`tieline mute`: one peer, off and on."""

from collections.abc import Callable

from tests.unit.adapters.cli.fake import ESCAPE, FakeRoot, Result

Run = Callable[..., Result]
Make = Callable[..., FakeRoot]


def test_mute_peer_says_that_mail_is_kept(run: Run, fake_root: Make) -> None:
    """Muting and its end are told to the root, and to the person."""
    root = fake_root({"local.mute": lambda params: {"peer": "peer-1", "muted": params["muted"]}})
    result = run("mute", ":api")
    assert result.code == 0
    assert "kept" in result.out
    assert root.params("local.mute") == {"peer": "api", "muted": True}
    assert run("mute", "api", "--off", "--json").json["muted"] is False
    assert root.params("local.mute") == {"peer": "api", "muted": False}
    assert "\x1b" not in run("mute", ESCAPE).out

"""What is consumed, freed, or left alone around a block that prints."""

from typing import Any

import pytest

from tieline.adapters.cli.taking import settle
from tieline.errors import Refused


class Asked:
    """A client that records its calls, and fails those it is told to."""

    def __init__(self, *failing: str) -> None:
        self.methods: list[str] = []
        self._failing = failing

    def call(self, method: str, params: dict[str, Any], timeout_s: float = 1.0) -> dict[str, Any]:
        self.methods.append(method)
        assert params == {"token": "t"}
        if method in self._failing:
            raise Refused("NO_ROOT", "gone")
        return {}


@pytest.mark.clause("K33", "I9")
def test_settle_block_that_ended_well_is_taken_once() -> None:
    """The root is told after the block, and not before."""
    client = Asked()
    with settle(client, "t"):  # type: ignore[arg-type]
        assert client.methods == []
    assert client.methods == ["host.taken"]


@pytest.mark.clause("K33")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, BrokenPipeError, ValueError])
@pytest.mark.parametrize("failing", [(), ("host.refused",)])
def test_settle_block_that_failed_frees_and_tells_the_first_error(
    error: type[BaseException], failing: tuple[str, ...]
) -> None:
    """Whatever broke the printing, the mail is freed and that error is the one told."""
    client = Asked(*failing)
    with pytest.raises(error), settle(client, "t"):  # type: ignore[arg-type]
        raise error
    assert client.methods == ["host.refused"]


@pytest.mark.parametrize("token", [None, "", 3])
def test_settle_without_token_tells_nobody(token: object) -> None:
    """Nothing prepared, nothing settled."""
    client = Asked()
    with settle(client, token):  # type: ignore[arg-type]
        pass
    assert client.methods == []


def test_settle_untold_root_says_it_is_shown_again() -> None:
    """What was printed and could not be settled is told as that."""
    client = Asked("host.taken")
    with pytest.raises(Refused, match="shown again"), settle(client, "t"):  # type: ignore[arg-type]
        pass

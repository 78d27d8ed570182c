"""What opens our window, and as whom."""

import pytest

from tieline.runtime.windows.tokens import Tokens
from tieline.wire.peers.protocol import Grade


@pytest.mark.clause("pi-peers-23", "pi-peers-25", "pi-peers-26")
def test_token_proves_the_user_or_one_run_and_dies_with_it() -> None:
    """The key file's, the root's own child's, a run's; none of another, nothing after the end."""
    tokens = Tokens("peer", "child")
    tokens.begin("r-1", "kid")
    assert tokens.verify("peer") == Grade(is_child=False)
    assert tokens.verify("child") == Grade(is_child=True)
    assert tokens.verify("kid") == Grade(is_child=True, run="r-1")
    assert tokens.environment("/s", "r-1") == {"PI_PEERS_SOCKET": "/s", "PI_PEERS_TOKEN": "kid"}
    assert tokens.environment("/s", None) == {"PI_PEERS_SOCKET": "/s", "PI_PEERS_TOKEN": "child"}
    tokens.end("r-1")
    tokens.end("r-2")
    for wrong in ("kid", "", "pee", "peer ", "\udc00", "ö"):
        assert tokens.verify(wrong) is None

"""The synchronous client: what each way of not getting an answer means."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tieline.errors import OutcomeUnknown, RecoveryRequired, Refused, UsageError
from tieline.runtime import client as module
from tieline.runtime.client import Client, error_of

HELLO = {"jsonrpc": "2.0", "id": "hello", "result": {"version": 1, "product": "test"}}


class Root:
    """One scripted far end: answers each line with what the test's function returns."""

    def __init__(self, path: Path, answer: Callable[[dict[str, Any]], bytes | None]) -> None:
        self.path = str(path)
        self.lines: list[dict[str, Any]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(4)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5.0)

    def _serve(self) -> None:
        with self._listener:
            self._take_links()

    def _take_links(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link, link.makefile("rb") as file:
                for text in file:
                    self.lines.append(json.loads(text))
                    data = self._answer(self.lines[-1])
                    if data is None:
                        break
                    link.sendall(data)


def frame(request: dict[str, Any], **members: object) -> bytes:
    """Return an answer's line."""
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], **members}).encode() + b"\n"


def ordinary(request: dict[str, Any]) -> bytes | None:
    """Answer the hello, and every request with its own params."""
    if request["method"] == "control.hello":
        return json.dumps(HELLO).encode() + b"\n"
    return frame(request, result={"asked": request["params"]})


@pytest.fixture
def listen(private_home: Path) -> Iterator[Callable[[Callable[[dict[str, Any]], bytes | None]], Root]]:
    """Make scripted roots, and end them."""
    made: list[Root] = []

    def make(answer: Callable[[dict[str, Any]], bytes | None]) -> Root:
        made.append(Root(private_home / f"{len(made)}.control", answer))
        return made[-1]

    yield make
    for root in made:
        root.close()


def after_hello(answer: Callable[[dict[str, Any]], bytes | None]) -> Callable[[dict[str, Any]], bytes | None]:
    """Answer the hello as a root does, and the rest as told."""
    return lambda request: ordinary(request) if request["method"] == "control.hello" else answer(request)


def call(
    path: str, method: str, params: dict[str, Any] | None = None, timeout_s: float = 10.0
) -> dict[str, Any]:
    """Ask once, on a link of its own."""
    with Client(path) as client:
        return client.call(method, params, timeout_s)


def test_call_two_requests_compare_versions_once(listen: Any) -> None:
    """The version is compared before the first request, and not again on the same link."""
    root = listen(ordinary)
    with Client(root.path) as client:
        assert client.call("local.who", {"a": "ä\u2028\n"}) == {"asked": {"a": "ä\u2028\n"}}
        assert client.call("local.log") == {"asked": {}}
    assert [line["method"] for line in root.lines] == ["control.hello", "local.who", "local.log"]


def test_call_other_version_is_refused_before_the_request_counts(listen: Any) -> None:
    """A root of another version is told as such, and a send to it is no unknown outcome."""

    def skewed(request: dict[str, Any]) -> bytes | None:
        if request["method"] != "control.hello":
            return None
        return frame(
            request, error={"code": -32000, "message": "v9 speaks 2", "data": {"code": "VERSION_SKEW"}}
        )

    with pytest.raises(Refused) as caught:
        call(listen(skewed).path, "local.send", {"messageId": "m"})
    assert caught.value.code == "VERSION_SKEW"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("QUEUE_FULL", Refused),
        ("INVALID_PARAMS", UsageError),
        ("RECOVERY_REQUIRED", RecoveryRequired),
        ("DELIVERY_UNKNOWN", OutcomeUnknown),
        ("A_CODE_OF_LATER", OutcomeUnknown),
    ],
)
def test_call_typed_refusal_raises_its_branch(listen: Any, code: str, kind: type[Exception]) -> None:
    """A typed code raises the branch of the error tree that says what to do next."""

    def refusing(request: dict[str, Any]) -> bytes:
        data = {"code": code, "retryable": True}
        return frame(request, error={"code": -32000, "message": "why", "data": data})

    with pytest.raises(kind, match="why") as caught:
        call(listen(after_hello(refusing)).path, "local.log", {"messageId": "m-1"})
    if kind is Refused:
        assert caught.value.code == code  # type: ignore[attr-defined]
        assert caught.value.is_retryable  # type: ignore[attr-defined]


def test_call_send_cut_before_answer_is_unknown_with_its_id(listen: Any) -> None:
    """A send whose link died before the answer is unknown, under the id that may ask again."""
    root = listen(after_hello(lambda _: None))
    with pytest.raises(OutcomeUnknown) as caught:
        call(root.path, "local.send", {"messageId": "m-7"})
    assert caught.value.message_id == "m-7"


def test_call_read_cut_before_answer_is_a_plain_refusal(listen: Any) -> None:
    """A request that changes nothing is simply not answered."""
    root = listen(after_hello(lambda _: None))
    with pytest.raises(Refused) as caught:
        call(root.path, "local.log")
    assert caught.value.code == "NO_ROOT"


def test_call_silent_root_ends_at_its_deadline(listen: Any) -> None:
    """A root that says nothing holds a caller no longer than it asked for."""
    root = listen(after_hello(lambda _: b""))
    with pytest.raises(Refused) as caught:
        call(root.path, "local.log", timeout_s=0.2)
    assert caught.value.code == "WAIT_TIMEOUT"
    with pytest.raises(OutcomeUnknown):
        call(root.path, "local.ask", {"messageId": "m"}, timeout_s=0.2)


def test_call_answer_in_pieces_after_notifications_is_found(listen: Any) -> None:
    """Notifications and other ids are passed over; an answer may come in any pieces."""

    def chatty(request: dict[str, Any]) -> bytes:
        told = b'{"jsonrpc":"2.0","method":"wake","params":{}}\n'
        other = b'{"jsonrpc":"2.0","id":99,"result":{"wrong":true}}\n'
        return told + other + frame(request, result={"text": "x" * 200_000})

    with Client(listen(after_hello(chatty)).path) as client:
        assert client.call("local.log") == {"text": "x" * 200_000}


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b'{"jsonrpc":"2.0","id":1}\n'])
def test_call_unreadable_answer_is_never_a_result(listen: Any, line: bytes) -> None:
    """An answer that cannot be read leaves a send unknown and a read refused."""
    root = listen(after_hello(lambda _: line))
    with pytest.raises(OutcomeUnknown):
        call(root.path, "local.send", {"messageId": "m"}, timeout_s=1.0)
    with pytest.raises(Refused) as caught:
        call(root.path, "local.log", timeout_s=1.0)
    assert caught.value.code == "VERSION_SKEW"


def test_call_no_socket_or_no_listener_says_no_root(private_home: Path) -> None:
    """A socket that is not there and one that nobody listens at are an ended root."""
    dead = private_home / "dead.control"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(dead))
    for path in (dead, private_home / "none.control"):
        with pytest.raises(Refused) as caught:
            call(str(path), "local.send", {"messageId": "m"})
        assert caught.value.code == "NO_ROOT"


@pytest.mark.clause("K12")
def test_call_forbidden_socket_names_the_permission(listen: Any, private_home: Path) -> None:
    """A socket that may not be opened, as in a sandbox, is named as that and not as absence."""
    root = listen(ordinary)
    Path(root.path).chmod(0o000)
    with pytest.raises(Refused) as caught:
        call(root.path, "local.who")
    assert caught.value.code == "PERMISSION_DENIED"
    assert "MCP tool" in caught.value.action


@pytest.mark.clause("S7")
def test_call_far_end_of_another_user_gets_no_byte(listen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first byte is sent the kernel must say that the far end is ours."""
    root = listen(ordinary)
    monkeypatch.setattr(module.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Refused) as caught:
        call(root.path, "local.who")
    assert caught.value.code == "UNSAFE_ENDPOINT"
    assert root.lines == []


def test_error_of_unknown_method_says_version(listen: Any) -> None:
    """A method that a root does not know means that it is of another version."""
    error = error_of("METHOD_NOT_FOUND", "x")
    assert (error.code, type(error)) == ("VERSION_SKEW", Refused)


def test_error_of_an_ambiguous_name_keeps_its_candidates() -> None:
    """What a root offers to choose from reaches the person; anything that is no such list is left out."""
    found = error_of("AMBIGUOUS_TARGET", "x", candidates=[{"peerId": "peer-1"}, "odd"])
    assert isinstance(found, Refused)
    assert found.candidates == [{"peerId": "peer-1"}]
    for odd in (None, "peer-1", {"peerId": "peer-1"}):
        plain = error_of("AMBIGUOUS_TARGET", "x", candidates=odd)
        assert isinstance(plain, Refused)
        assert plain.candidates == []


def test_import_of_client_stays_light() -> None:
    """A short-lived process pays for neither an event loop nor msgspec."""
    heavy = "('asyncio', 'msgspec', 'socket', 'dataclasses')"
    text = f"import sys, tieline.runtime.client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.strip() == "[]"

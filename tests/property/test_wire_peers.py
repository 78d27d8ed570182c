"""Laws of the pi-peers wire: frames and texts survive it exactly, however they are cut or what they hold."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.wire.peers.frames import Frame, IdleNotice, Status, StatusFrame, UserFrame, decode, encode
from tieline.wire.peers.protocol import Authenticated, Closed, FrameReceived, Grade, Inbound, outbound
from tieline.wire.peers.wrapper import unwrap, wrap

TAG = re.compile(r"<\s*/?\s*cross-session-message", re.IGNORECASE)
PIECES = [
    *("<", "</", ">", "&lt;", "&amp;", "amp;", "lt;", "&", '"', "'", " ", "\n", "/", "from=", "é", "😀"),
    *(
        "cross-session-message",
        "Cross-Session-Message",
        "</cross-session-message>",
        "cro\u017fs-session-message",
    ),
    *('<cross-session-message from="/b" from-name="x">', "&lt;/cross-session-message>", "&AMP;", "&LT;"),
]
STATUSES: list[Status] = ["held", "delivered", "denied", "expired", "refused"]
TEXT = st.text(max_size=40)
BODY = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=16).map("".join) | TEXT
PATH = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30).map(
    lambda text: "/" + text
)


@pytest.mark.clause("pi-peers-31", "pi-peers-32", "pi-peers-U18")
@given(PATH, BODY, BODY)
def test_wrapped_body_survives_and_its_wrapper_is_the_only_one(address: str, name: str, body: str) -> None:
    """Whatever a text, a name or an address holds: one opening, one closing, and the exact text."""
    content = wrap(address, name, body)
    assert len(TAG.findall(content)) == 2
    assert unwrap(content, address) == body
    assert unwrap(content, address + "x") is None
    # A wrapped wrapper is a text like any other.
    assert unwrap(wrap(address, name, content), address) == content


@pytest.mark.clause("pi-peers-32", "pi-peers-U18")
@given(BODY, BODY, BODY)
def test_content_of_any_kind_never_yields_a_forged_wrapper(before: str, body: str, after: str) -> None:
    """A tag in what is handed on means that the sender wrote it as text, inside one whole wrapper."""
    content = before + wrap("/a", "n", body) + after
    text = unwrap(content, "/a")
    if before.strip(" \t\r\n") or after.strip(" \t\r\n"):
        assert text is None
    else:
        assert text == body
    bare = unwrap(before, "/a")
    assert bare is None or bare == before or TAG.search(before)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Draw a frame of the three shapes that carry foreign text."""
    message_id = str(draw(st.uuids()))
    address = draw(PATH)
    word = st.text(
        alphabet=st.characters(min_codepoint=32, exclude_characters="\x7f"), min_size=1, max_size=20
    )
    kind = draw(st.sampled_from(["user", "status", "notice"]))
    if kind == "status":
        status = draw(st.sampled_from(STATUSES))
        return StatusFrame(message_id, address, draw(word), status)
    if kind == "notice":
        return IdleNotice(message_id, address, draw(word))
    return UserFrame(
        message_id,
        address,
        draw(st.integers(1, 2**31)),
        draw(word),
        draw(TEXT),
        tuple(draw(st.lists(PATH, max_size=3))),
        draw(st.sampled_from(["now", "next"])),
        draw(BODY),
        draw(st.none() | word),
        draw(PATH),
    )


@pytest.mark.clause("pi-peers-27", "pi-peers-28")
@given(frames())
def test_frame_written_reads_as_the_same(frame: Frame) -> None:
    """Writing and reading are each other's inverse, on one line."""
    line = encode(frame)
    assert line.count(b"\n") == 1
    assert decode(line[:-1]) == frame


@pytest.mark.clause("pi-peers-22")
@given(st.lists(frames(), max_size=3), st.lists(st.integers(0, 2_000), max_size=12))
def test_connection_cut_anywhere_tells_the_same(sent: list[Frame], cuts: list[int]) -> None:
    """No way of cutting the bytes, inside a character either, changes what a connection tells."""
    data = outbound("token", sent)
    places = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    expected = [Authenticated(Grade(is_child=False)), *map(FrameReceived, sent), Closed("ended")]
    for pieces in ([data[a:b] for a, b in pairwise(places)], [bytes([byte]) for byte in data]):
        end = Inbound({"token": Grade(is_child=False)}.get, 0)
        for piece in pieces:
            end.receive_data(piece, 1)
        end.receive_eof()
        assert end.events_received() == expected


@pytest.mark.clause("pi-peers-22")
@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 9_000)), max_size=30))
def test_unfinished_line_never_outlives_its_budget(steps: list[tuple[bytes, int]]) -> None:
    """However bytes trickle, no line is still open thirty seconds after it began."""
    end = Inbound(lambda _token: None, 0)
    now_ms = 0
    for data, pause_ms in steps:
        now_ms += pause_ms
        end.receive_data(data.replace(b"\n", b" "), now_ms)
        assert end.is_closed or now_ms < 30_000
        assert end.deadline_ms in (None, 30_000)

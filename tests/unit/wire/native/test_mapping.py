"""Native frames and the commands, receipts and descriptors they stand for."""

from typing import Any

import msgspec
import pytest

from tieline.engine.contract import (
    AskDirectory,
    Asked,
    AskedStatus,
    AskStatus,
    Offer,
    PushReceipt,
    ReceiptTold,
    Recorded,
    Standing,
    Transmit,
)
from tieline.engine.directory import Run
from tieline.engine.probing import Probe
from tieline.errors import Refusal
from tieline.machine.admission import OUT_OF_SCOPE
from tieline.model.identity import Peer
from tieline.model.message import Attachment, Delivery, Envelope
from tieline.model.receipt import Durability, Receipt, State
from tieline.wire.native import mapping

ASKED = Asked(3, "rpc-7")
FAR, OURS = "far-instance", "our-instance"
STANDING = Standing(frozenset({"message.send"}), is_in_scope=True, alias="api", project="shop")
ROOT, RUN = Peer(OURS), Peer(OURS, "run-1")
CREATED, EXPIRES = "2026-01-01T00:00:00.000Z", "2026-01-01T00:10:00.250Z"
CREATED_MS, EXPIRES_MS = 1_767_225_600_000, 1_767_226_200_250
RECEIPT = Receipt(
    "m",
    Peer(FAR).id,
    ROOT.id,
    State.CONSUMED,
    12,
    accepted_ms=CREATED_MS,
    consumed_ms=EXPIRES_MS,
    durability=Durability.SYNCED,
)
SHAPE = {
    "messageId": "m",
    "from": Peer(FAR).id,
    "to": ROOT.id,
    "state": "consumed",
    "cursor": "12",
    "acceptedAt": CREATED,
    "consumedAt": EXPIRES,
}


def own_peer(peer_id: str) -> Peer | None:
    """Return our peer of that id."""
    return {ROOT.id: ROOT, RUN.id: RUN}.get(peer_id)


def ask(method: str, params: dict[str, Any], standing: Standing = STANDING) -> object:
    """Return what a request of the far end stands for."""
    return mapping.command(
        method, params, asked=ASKED, sender_instance=FAR, standing=standing, own_peer=own_peer
    )


def code_of(method: str, params: dict[str, Any], standing: Standing = STANDING) -> str:
    """Return the code that a request is refused with."""
    refusal = ask(method, params, standing)
    assert isinstance(refusal, Refusal), refusal
    return refusal.code


def send_params(**more: Any) -> dict[str, Any]:
    """Return the least that a send needs, and more."""
    return {"version": 1, "messageId": "m", "to": ROOT.id, "content": "hello", **more}


# --- what peers ask of us -----------------------------------------------------------------------------


@pytest.mark.clause("native-69", "native-77", "native-78", "native-80", "I47", "mutant-8")
def test_send_of_peer_is_an_offer_of_the_proved_sender() -> None:
    """Who sends is the instance the link proved; the attempt's id and the message's id stay apart."""
    offer = ask(
        "peer.send",
        send_params(
            to=RUN.id,
            topic="t",
            replyTo="r",
            correlationId="c",
            automaticDepth=2,
            senderRunId="child",
            createdAt=CREATED,
            expiresAt=EXPIRES,
        ),
    )
    assert offer == Offer(
        ASKED,
        FAR,
        STANDING,
        Envelope(
            message_id="m",
            sender=Peer(FAR, "child"),
            recipient=RUN,
            content="hello",
            topic="t",
            reply_to="r",
            correlation_id="c",
            automatic_depth=2,
            created_ms=CREATED_MS,
            expires_ms=EXPIRES_MS,
            sender_alias="api",
            sender_project="shop",
        ),
    )


def test_send_with_least_members_has_no_times() -> None:
    """A time that the sender did not give stays absent, so that an honest repeat is equal."""
    offer = ask("peer.send", send_params())
    assert isinstance(offer, Offer)
    envelope = offer.envelope
    assert (envelope.created_ms, envelope.expires_ms, envelope.automatic_depth) == (None, None, 0)
    assert envelope.sender == Peer(FAR)


def test_tieline_send_carries_what_only_tieline_says() -> None:
    """The further members of `tieline.send` come into the envelope."""
    offer = ask(
        "tieline.send",
        send_params(
            delivery="queue",
            thread="th",
            replace=True,
            ask=True,
            notifyWhenIdle=True,
            attachments=[{"name": "a.md", "mediaType": "text/markdown", "text": "# a"}],
        ),
    )
    assert isinstance(offer, Offer)
    plain = ask("peer.send", send_params())
    assert isinstance(plain, Offer)
    assert offer.envelope == msgspec.structs.replace(
        plain.envelope,
        delivery=Delivery.QUEUE,
        thread="th",
        replaces=True,
        is_ask=True,
        notify_when_idle=True,
        attachments=(Attachment("a.md", "# a", "text/markdown"),),
    )
    assert ask("tieline.send", send_params()) == plain


@pytest.mark.parametrize(
    "item", [{"name": "a\nb", "text": ""}, {"name": "a", "mediaType": "a\x1b", "text": ""}]
)
def test_attachment_with_control_characters_in_its_labels_is_refused(item: dict[str, str]) -> None:
    """Names that will be shown have no control characters."""
    assert code_of("tieline.send", send_params(attachments=[item])) == "INVALID_PARAMS"


@pytest.mark.parametrize("member", ["createdAt", "expiresAt"])
@pytest.mark.parametrize("text", ["", "soon", "2026-01-01", "2026-01-01T00:00:00+02:00", "9" * 50 + "Z"])
def test_send_with_time_that_is_none_is_refused(member: str, text: str) -> None:
    """A time is ISO-8601 in UTC."""
    refusal = ask("peer.send", send_params(**{member: text}))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, member in refusal.text) == ("INVALID_PARAMS", True)


@pytest.mark.clause("mutant-22", "mutant-28")
def test_send_to_peer_that_is_not_ours_is_refused_without_telling() -> None:
    """An unknown target is typed for those in scope; for others it looks like a known one."""
    for target in (ROOT.id[:-1], ROOT.id[:8], ROOT.id.upper(), "api", "*", "1234"):
        assert code_of("peer.send", send_params(to=target)) == "UNKNOWN_TARGET"
    assert code_of("peer.send", send_params(**{"from": Peer(FAR).id})) == "INVALID_PARAMS"
    outside = Standing(frozenset({"message.send"}), is_in_scope=False)
    # Word for word what admission says of a peer that exists.
    assert ask("peer.send", send_params(to="peer-x"), outside) == OUT_OF_SCOPE


@pytest.mark.clause("native-70", "native-71")
@pytest.mark.parametrize(
    ("method", "subscription"), [("peer.status", False), ("peer.subscribe", True), ("tieline.status", False)]
)
def test_status_question_is_of_the_proved_sender(method: str, subscription: bool) -> None:
    """Who asks for a receipt is the instance the link proved, whatever else is said."""
    params = {"messageId": "m", "to": ROOT.id}
    expected = AskedStatus(ASKED, FAR, "m", ROOT.id, is_subscription=subscription)
    assert ask(method, params) == expected
    assert ask(method, {**params, "from": Peer(FAR).id}) == expected
    of_run = {**params, "senderRunId": "child", "from": Peer(FAR, "child").id}
    assert ask(method, of_run) == msgspec.structs.replace(expected, sender_run="child")
    for other in (Peer(OURS).id, Peer(FAR, "child").id, "api"):
        assert code_of(method, {**params, "from": other}) == "SCOPE_DENIED"
    assert code_of(method, {"messageId": "m"}) == "INVALID_PARAMS"


@pytest.mark.clause("native-72", "native-73")
@pytest.mark.parametrize("method", ["peer.receipt", "tieline.receipt"])
def test_receipt_pushed_by_peer_is_told_with_its_instance(method: str) -> None:
    """A receipt comes with the instance that pushed it, for the engine to compare with the recipient."""
    told = ask(method, {"receipt": SHAPE})
    assert told == ReceiptTold(ASKED, FAR, msgspec.structs.replace(RECEIPT, durability=Durability.UNSTATED))
    assert code_of(method, {"receipt": {**SHAPE, "state": "pending"}}) == "INVALID_PARAMS"
    assert code_of(method, {"receipt": SHAPE, "more": 1}) == "INVALID_PARAMS"
    assert code_of(method, {"receipt": [SHAPE]}) == "INVALID_PARAMS"


@pytest.mark.clause("native-74", "native-75", "native-76", "I45")
@pytest.mark.parametrize("method", ["peer.read", "resource.status", "resource.set_controller", "resource.x"])
def test_inbox_and_resources_over_the_wire_are_refused(method: str) -> None:
    """No peer reads an inbox or controls a resource over the messaging endpoint, whatever it can do."""
    able = Standing(frozenset({"resource.control", "message.wait"}), is_in_scope=True)
    assert code_of(method, {}, able) == "CAPABILITY_DENIED"


@pytest.mark.parametrize("method", ["peer.nope", "tieline.nope", "peer.hello", "x", "resource"])
def test_method_that_nobody_knows_is_not_found(method: str) -> None:
    """An unknown method is METHOD_NOT_FOUND."""
    assert code_of(method, {}) == "METHOD_NOT_FOUND"


@pytest.mark.clause("native-68")
def test_directory_asked_lists_live_runs_up_to_its_bound() -> None:
    """The answer is the list of live runs, at most 256."""
    item = mapping.child(OURS, "run-1", "tester", frozenset({"message.send", "message.receive"}), "s", "shop")
    assert mapping.directory_asked({"version": 1}, lambda: [item]) == {"peers": [item]}
    many = mapping.directory_asked({}, lambda: [item] * 300)
    assert isinstance(many, dict)
    assert len(many["peers"]) == 256
    refusal = mapping.directory_asked({"page": 1}, lambda: [item])
    assert isinstance(refusal, Refusal)


@pytest.mark.clause("native-36", "native-38")
def test_descriptor_of_run_shows_its_safe_fields_alone() -> None:
    """A run's descriptor has its identity, label and capabilities, and no path, key or endpoint."""
    assert mapping.child(
        OURS, "run-1", "tester", frozenset({"message.send", "message.receive"}), "s", "shop"
    ) == {
        "peerId": RUN.id,
        "instanceId": OURS,
        "sessionId": "s",
        "runId": "run-1",
        "alias": "tester",
        "project": "shop",
        "kind": "run",
        "activity": "thinking",
        "availability": "available",
        "capabilities": ["message.receive", "message.send"],
    }


def test_hello_between_tieline_ends_tells_features() -> None:
    """Both ends say version and features; another version is told apart."""
    answer = mapping.hello_asked(mapping.hello())
    assert answer == {"version": 1, "features": ["last", "receipt", "send", "status", "wait_probe"]}
    assert isinstance(answer, dict)
    assert mapping.features_told(answer) == {"last", "receipt", "send", "status", "wait_probe"}
    for params, code in (
        ({"version": 2}, "UNSUPPORTED_PROTOCOL"),
        ({"version": "1"}, "INVALID_PARAMS"),
        ({}, "INVALID_PARAMS"),
    ):
        refusal = mapping.hello_asked(params)
        assert isinstance(refusal, Refusal)
        assert refusal.code == code


@pytest.mark.parametrize(
    ("result", "features"),
    [
        (None, set()),
        ({}, set()),
        ({"version": 2, "features": ["send"]}, set()),
        ({"version": True, "features": ["send"]}, set()),
        ({"version": 1}, set()),
        ({"version": 1, "features": "send"}, set()),
        ({"version": 1, "features": ["send", 7, None, "teleport"]}, {"send"}),
    ],
)
def test_features_of_far_end_are_those_both_know(result: dict[str, Any] | None, features: set[str]) -> None:
    """A foreign peer has none; of a newer Tieline those count that we know."""
    assert mapping.features_told(result) == features


def test_last_asked_names_whose_answer_and_from_where() -> None:
    """A question for a finished answer is read with its defaults."""
    assert mapping.last_asked({"to": ROOT.id}) == mapping.LastAsked(ROOT.id, None, 0)
    assert mapping.last_asked({"to": ROOT.id, "entry": "e", "offset": 7}) == (ROOT.id, "e", 7)
    assert isinstance(mapping.last_asked({"to": ROOT.id, "offset": -1}), Refusal)


# --- what we answer -----------------------------------------------------------------------------------


@pytest.mark.clause("native-70", "native-71")
def test_answer_has_the_shape_of_its_method() -> None:
    """Each method answers in its public shape; only `tieline.*` adds durability."""
    for method in ("peer.send", "peer.status"):
        assert mapping.answered(method, RECEIPT) == SHAPE
    assert mapping.answered("peer.subscribe", RECEIPT) == {"subscribed": True, "receipt": SHAPE}
    for method in ("tieline.send", "tieline.status"):
        assert mapping.answered(method, RECEIPT) == {**SHAPE, "durability": "synced"}
    assert mapping.answered("peer.receipt", Recorded()) == {"recorded": True}


def test_answer_leaves_out_what_is_not_known() -> None:
    """A receipt has only the members that are known."""
    bare = Receipt("m", "", ROOT.id, State.ACCEPTED, 1, replied_ms=CREATED_MS, outcome="TARGET_ENDED")
    assert mapping.answered("tieline.send", bare) == {
        "messageId": "m",
        "to": ROOT.id,
        "state": "accepted",
        "cursor": "1",
        "repliedAt": CREATED,
        "outcome": "TARGET_ENDED",
    }


# --- what we ask --------------------------------------------------------------------------------------


def envelope(**more: Any) -> Envelope:
    """Return a message of ours to the far end."""
    return Envelope("m", Peer(OURS, "run-1"), Peer(FAR), "hello", **more)


def transmit(told: Envelope) -> Transmit:
    """Return the order to hand a message over."""
    return Transmit(1, FAR, told, needs_tieline=told.needs_tieline)


@pytest.mark.clause("native-77", "native-79")
def test_message_to_foreign_peer_is_a_public_send() -> None:
    """To a foreign peer goes the public closed set, with the members that are set and no other."""
    method, params = mapping.spoken(transmit(envelope()), is_tieline=False)
    assert method == "peer.send"
    assert params == {
        "version": 1,
        "messageId": "m",
        "to": Peer(FAR).id,
        "content": "hello",
        "senderRunId": "run-1",
    }
    full = envelope(
        topic="t",
        reply_to="r",
        correlation_id="c",
        automatic_depth=3,
        created_ms=CREATED_MS,
        expires_ms=EXPIRES_MS,
        is_ask=True,
        sender_alias="api",
        sender_project="shop",
    )
    _, params = mapping.spoken(transmit(full), is_tieline=False)
    assert set(params) == {
        *("version", "messageId", "to", "content", "topic", "replyTo", "expiresAt", "createdAt"),
        *("senderRunId", "correlationId", "automaticDepth"),
    }
    assert (params["createdAt"], params["expiresAt"]) == (CREATED, EXPIRES)


def test_message_with_features_to_foreign_peer_is_our_own_defect() -> None:
    """What a foreign peer cannot be told is never left out in silence."""
    for told in (
        envelope(thread="t"),
        envelope(delivery=Delivery.PASSIVE),
        envelope(attachments=(Attachment("a", ""),)),
    ):
        with pytest.raises(AssertionError):
            mapping.spoken(transmit(told), is_tieline=False)


@pytest.mark.parametrize(
    "told",
    [
        envelope(),
        envelope(delivery=Delivery.QUEUE, thread="t", replaces=True, is_ask=True, notify_when_idle=True),
        envelope(attachments=(Attachment("a.md", "# a", "text/markdown"), Attachment("b", ""))),
        envelope(topic="t", reply_to="r", correlation_id="c", automatic_depth=3),
        envelope(created_ms=CREATED_MS, expires_ms=EXPIRES_MS),
    ],
)
def test_message_between_tieline_ends_arrives_as_it_was(told: Envelope) -> None:
    """What one end says and the other reads is the same envelope."""
    method, params = mapping.spoken(transmit(told), is_tieline=True)
    assert method == "tieline.send"
    far = Peer(FAR)
    offer = mapping.command(
        method,
        msgspec.json.decode(msgspec.json.encode(params)),
        asked=ASKED,
        sender_instance=OURS,
        standing=Standing(frozenset(), is_in_scope=True),
        own_peer={far.id: far}.get,
    )
    assert isinstance(offer, Offer)
    assert offer.envelope == told


def test_questions_and_receipts_go_to_their_methods() -> None:
    """Status, receipt and directory are asked in the words of the far end's kind."""
    status = AskStatus(1, FAR, "m", Peer(FAR).id, None)
    assert mapping.spoken(status, is_tieline=False) == ("peer.status", {"messageId": "m", "to": Peer(FAR).id})
    of_run = AskStatus(1, FAR, "m", Peer(FAR).id, "run-1")
    assert mapping.spoken(of_run, is_tieline=True) == (
        "tieline.status",
        {"messageId": "m", "to": Peer(FAR).id, "senderRunId": "run-1"},
    )
    push = PushReceipt(1, FAR, RECEIPT)
    assert mapping.spoken(push, is_tieline=False) == ("peer.receipt", {"receipt": SHAPE})
    assert mapping.spoken(push, is_tieline=True) == (
        "tieline.receipt",
        {"receipt": {**SHAPE, "durability": "synced"}},
    )
    for kind in (False, True):
        assert mapping.spoken(AskDirectory(1, FAR), is_tieline=kind) == ("peer.directory", {"version": 1})


# --- what peers answer --------------------------------------------------------------------------------


def test_receipt_of_tieline_end_round_trips() -> None:
    """A receipt with its durability comes back as it was stated."""
    assert mapping.receipt_told(mapping.answered("tieline.send", RECEIPT)) == RECEIPT


@pytest.mark.parametrize("more", [{}, {"durability": "carved"}, {"durability": None}, {"unheard": [1]}])
def test_receipt_of_foreign_peer_has_unstated_durability(more: dict[str, Any]) -> None:
    """A foreign peer states nothing of its storage, and members that we do not know change nothing."""
    receipt = mapping.receipt_told({**SHAPE, **more})
    assert receipt == msgspec.structs.replace(RECEIPT, durability=Durability.UNSTATED)


def test_receipt_without_sender_has_an_empty_one() -> None:
    """The public shape may leave out who sent the message."""
    receipt = mapping.receipt_told({"messageId": "m", "to": "p", "state": "accepted", "cursor": "0"})
    assert receipt == Receipt("m", "", "p", State.ACCEPTED, 0, durability=Durability.UNSTATED)


@pytest.mark.parametrize(
    ("outcome", "retryable"),
    [("QUEUE_FULL", True), ("RATE_LIMITED", True), ("SCOPE_DENIED", False), (None, False)],
)
def test_receipt_of_refusal_is_retryable_by_its_outcome(outcome: str | None, retryable: bool) -> None:
    """Only the refusals that say "not now" let the same id try again."""
    receipt = mapping.receipt_told({**SHAPE, "state": "rejected", "outcome": outcome})
    assert receipt is not None
    assert receipt.is_retryable == retryable


@pytest.mark.parametrize(
    "change",
    [
        {"state": "pending"},
        {"state": "unknown"},
        {"state": "done"},
        {"cursor": 12},
        {"cursor": "-1"},
        {"cursor": "1.0"},
        {"cursor": "٣"},
        {"cursor": ""},
        {"cursor": "9" * 17},
        {"cursor": "9007199254740992"},
        {"acceptedAt": "then"},
        {"consumedAt": 7},
        {"messageId": ""},
        {"messageId": "a\nb"},
        {"to": "a\x7f"},
        {"outcome": "x" * 129},
    ],
)
def test_receipt_that_states_nothing_is_none(change: dict[str, Any]) -> None:
    """A state that is not the recipient's to say, and a malformed member, make it no receipt."""
    assert mapping.receipt_told({**SHAPE, **change}) is None
    assert mapping.receipt_told(None) is None


@pytest.mark.clause("native-28")
def test_directory_told_takes_the_runs_that_are_the_roots_own() -> None:
    """A run is taken with its checked identity, and its capabilities cut to those of its root."""
    told = mapping.child(FAR, "run-1", "tester", {"message.send", "resource.control"}, "s", "shop")
    able = frozenset({"message.send", "message.receive"})
    assert mapping.children_told({"peers": [told]}, FAR, able) == (
        Run("run-1", "tester", "thinking", ("message.send",)),
    )
    assert mapping.runs_told({"peers": [told]}, FAR) == {"run-1"}
    assert mapping.runs_told({"peers": []}, FAR) == set()
    many = [mapping.child(FAR, f"run-{at}", "t", (), "s", "p") for at in range(300)]
    names = mapping.runs_told({"peers": many}, FAR)
    assert names is not None
    assert len(names) == 256


@pytest.mark.parametrize(
    "change",
    [
        {"instanceId": OURS},
        {"instanceId": None},
        {"peerId": RUN.id},
        {"runId": ""},
        {"runId": 7},
        {"runId": "a\nb"},
        {"alias": "9lives"},
        {"alias": None},
        {"activity": 7},
        {"capabilities": "message.send"},
        {"capabilities": ["message.fly"]},
        {"capabilities": [["message.send"]]},
    ],
)
def test_directory_told_skips_descriptor_that_breaks_a_rule(change: dict[str, Any]) -> None:
    """A root cannot lend a name to another's run, nor to one with a wrong form."""
    good = mapping.child(FAR, "run-1", "tester", (), "s", "shop")
    bad = {**mapping.child(FAR, "run-2", "tester", (), "s", "shop"), **change}
    assert mapping.runs_told({"peers": [bad, "x", None, good]}, FAR) == {"run-1"}


@pytest.mark.parametrize("result", [{}, {"peers": None}, {"peers": {}}, {"peers": "run-1"}])
def test_directory_told_in_another_form_is_none(result: dict[str, Any]) -> None:
    """An answer without a list says nothing of runs."""
    assert mapping.runs_told(result, FAR) is None


def test_probe_is_taken_from_whom_the_link_proved_and_from_nobody_else() -> None:
    """What a probe says is read back; its last peer must be the sender's, itself or one of its runs."""
    root, run = Peer("far-1"), Peer("far-1", "r-1")
    first, own = Peer("first").id, Peer("own").id
    for sender in (root, run):
        sent = Probe("id-1", own, (first, sender.id), ("ask", "resource"))
        assert mapping.probe_asked(mapping.probe(sent, sender), "far-1") == sent
    params = mapping.probe(Probe("id-1", own, (first, root.id), ("ask", "ask")), root)
    for wrong in (
        {"path": [first, Peer("other").id]},
        {"path": [root.id, first]},
        {"senderRunId": "r-2"},
        {"path": []},
        {"path": [root.id] * 33},
        {"path": ["peer-x", root.id]},
        {"kinds": ["ask"]},
        {"kinds": ["ask", "mutex"]},
        {"to": "peer-1"},
        {"id": ""},
        {"from": first},
    ):
        refused = mapping.probe_asked({**params, **wrong}, "far-1")
        assert isinstance(refused, Refusal), wrong
        assert refused.code == "INVALID_PARAMS"

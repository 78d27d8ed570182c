"""The rules of the teammate channel."""

import pytest

from tieline.adapters.attach.teammate import (
    CLEAN_UP,
    COMMIT_MS,
    OPERATIONS,
    PENDING_MAX,
    REQUEST_MS,
    SELECTIONS_MAX,
    Address,
    Request,
    Teammates,
    read_address,
    read_request,
)
from tieline.errors import Refusal

IDS = {"taskId": "t", "runId": "e", "targetRunId": "r", "requestId": "1"}


def at(request: str = "1", *, task: str = "t", run: str = "e", target_run: str = "r") -> Address:
    """Return an address."""
    return Address(task, run, target_run, request)


def bound() -> Teammates:
    """Return rules with one task bound."""
    teammates = Teammates()
    assert isinstance(teammates.admit(at("0"), "bind", {}, 0), Request)
    teammates.settle(at("0"))
    return teammates


def code(answer: object) -> str:
    """Return the code of a refusal, or nothing."""
    return answer.code if isinstance(answer, Refusal) else ""


@pytest.mark.clause("native-141")
@pytest.mark.parametrize("member", list(IDS))
@pytest.mark.parametrize("bad", [None, "", 1, "a" * 257, "a\nb"])
def test_address_without_one_of_its_ids_is_refused(member: str, bad: object) -> None:
    """Every frame carries all four."""
    assert code(read_address({**IDS, member: bad})) == "INVALID_PARAMS"
    assert read_address(IDS) == at()
    assert at().members() == IDS


def test_request_shape_is_closed() -> None:
    """A field that nobody knows is refused, not ignored."""
    assert read_request({**IDS, "operation": "send", "params": {"to": "x"}}) == ("send", {"to": "x"})
    assert read_request({**IDS, "operation": "list"}) == ("list", {})
    assert code(read_request({**IDS, "operation": "list", "from": "y"})) == "INVALID_PARAMS"
    assert code(read_request({**IDS, "operation": "list", "params": []})) == "INVALID_PARAMS"
    assert code(read_request({**IDS, "operation": "read"})) == "METHOD_NOT_FOUND"
    assert code(read_request(IDS)) == "METHOD_NOT_FOUND"


def test_operations_are_those_of_the_channel() -> None:
    """Twenty operations, six of them clean-up."""
    assert len(OPERATIONS) == 20
    assert len(CLEAN_UP) == 6
    assert CLEAN_UP < OPERATIONS


@pytest.mark.clause("native-141")
@pytest.mark.parametrize("other", [at(run="e2"), at(target_run="r2"), at(task="t2")])
def test_request_of_another_execution_run_or_task_is_target_ended(other: Address) -> None:
    """A request is bound to task, execution and target run, all three."""
    teammates = bound()
    assert code(teammates.admit(other, "send", {}, 0)) == "TARGET_ENDED"
    assert isinstance(teammates.admit(at(), "send", {}, 0), Request)


@pytest.mark.clause("native-143")
@pytest.mark.parametrize("operation", sorted(OPERATIONS - {"bind"}))
def test_ended_task_is_served_clean_up_only(operation: str) -> None:
    """After the end anything else is TARGET_ENDED."""
    teammates = bound()
    assert isinstance(teammates.admit(at("end"), "end", {}, 0), Request)
    teammates.settle(at("end"))
    answer = teammates.admit(at("9"), operation, {}, 0)
    assert (code(answer) == "TARGET_ENDED") is (operation not in CLEAN_UP)


def test_bind_repeated_is_the_same_binding_and_another_is_refused() -> None:
    """One task, one execution at a time; one run, one task."""
    teammates = bound()
    assert isinstance(teammates.admit(at("2"), "bind", {}, 0), Request)
    assert code(teammates.admit(at("3", run="e2"), "bind", {}, 0)) == "RESOURCE_BUSY"
    assert code(teammates.admit(at("4", task="t2"), "bind", {}, 0)) == "REQUEST_ID_CONFLICT"
    assert isinstance(teammates.admit(at("5"), "end", {}, 0), Request)
    assert isinstance(teammates.admit(at("6", run="e2", target_run="r2"), "bind", {}, 0), Request)
    assert teammates.active() == (("t", "e2", "r2"),)


def test_end_of_an_old_execution_leaves_the_new_one_bound() -> None:
    """A late clean-up frame ends nothing that is not its own."""
    teammates = bound()
    assert isinstance(teammates.admit(at("2", run="old"), "end", {}, 0), Request)
    assert teammates.is_active(at())


def test_unbind_takes_back_only_its_own_binding() -> None:
    """A run that did not begin is not bound."""
    teammates = bound()
    teammates.unbind(at(run="other"))
    assert teammates.is_active(at())
    teammates.unbind(at())
    assert not teammates.is_active(at())


@pytest.mark.clause("native-143")
def test_requests_open_are_bounded_and_named_once() -> None:
    """32 on this side; an id again only after its answer."""
    teammates = bound()
    for number in range(PENDING_MAX):
        assert isinstance(teammates.admit(at(f"r{number}"), "list", {}, 0), Request)
    assert code(teammates.admit(at("r0"), "list", {}, 0)) == "REQUEST_ID_CONFLICT"
    assert code(teammates.admit(at("more"), "list", {}, 0)) == "RESOURCE_BUSY"
    teammates.settle(at("r0"))
    assert isinstance(teammates.admit(at("r0"), "list", {}, 0), Request)


def test_request_has_its_deadline_and_is_known_while_open() -> None:
    """35 s from its admission."""
    teammates = bound()
    request = teammates.admit(at(), "messages", {}, 1_000)
    assert isinstance(request, Request)
    assert request.deadline_ms == 1_000 + REQUEST_MS
    assert teammates.operation(at()) == "messages"
    assert teammates.open_requests(at("end")) == (request,)
    assert teammates.open_requests(at()) == ()
    teammates.settle(at())
    assert teammates.operation(at()) == ""


@pytest.mark.clause("native-143")
def test_context_commit_counts_once_in_time_and_for_its_own_request() -> None:
    """30 s; a late, repeated or foreign word consumes nothing."""
    teammates = bound()
    assert teammates.offer(at("a"), 1, 0) is None
    assert not teammates.commit(at("b"), 1)
    assert teammates.commit(at("a"), COMMIT_MS)
    assert not teammates.commit(at("a"), COMMIT_MS)
    assert teammates.offer(at("c"), 1, 0) is None
    assert not teammates.commit(at("c"), COMMIT_MS + 1)
    assert teammates.offer(at("d"), 1, 0) is None
    teammates.withdraw(at("d"))
    assert not teammates.commit(at("d"), 1)


def test_context_commit_after_the_end_of_the_task_counts_nothing() -> None:
    """An ended run records nothing."""
    teammates = bound()
    assert teammates.offer(at("a"), 1, 0) is None
    teammates.admit(at("end"), "end", {}, 0)
    assert not teammates.commit(at("a"), 1)


def test_contexts_are_bounded_in_number_and_size() -> None:
    """32 open, 128 messages each."""
    teammates = bound()
    assert code(teammates.offer(at("a"), SELECTIONS_MAX + 1, 0)) == "MESSAGE_TOO_LARGE"
    for number in range(PENDING_MAX):
        assert teammates.offer(at(f"c{number}"), SELECTIONS_MAX, 0) is None
    assert code(teammates.offer(at("more"), 1, 0)) == "RESOURCE_BUSY"

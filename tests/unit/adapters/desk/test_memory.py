import pytest

from tieline.adapters.desk.memory import Memory
from tieline.composer import Binding, Draft

BOUND = Draft(":api go", 7, (Binding("api", 0, 4, "p", "i"),))


@pytest.mark.clause("native-129")
def test_recall_goes_back_and_forth_and_keeps_what_was_typed() -> None:
    """Earlier drafts come with their bindings; behind the newest is what was being typed."""
    memory = Memory()
    typing = Draft("half", 4)
    assert memory.recall(typing, -1) is None
    for draft in (Draft("one"), BOUND, BOUND):
        memory.sent_now(draft)
    assert memory.recall(typing, 1) is None
    assert memory.recall(typing, -1) == BOUND
    assert memory.recall(BOUND, -1) == Draft("one")
    assert memory.recall(Draft("one"), -1) is None
    assert memory.recall(Draft("one"), 1) == BOUND
    assert memory.recall(BOUND, 1) == typing
    assert memory.recall(typing, -1) == BOUND
    memory.edited()
    assert memory.recall(Draft("new"), -1) == BOUND


@pytest.mark.clause("native-125", "native-129")
def test_kept_shape_loads_equal_and_bounded() -> None:
    """A new desk has the draft and the history again; what is not ours loads as nothing."""
    memory = Memory()
    for number in range(150):
        memory.sent_now(Draft(f"n {number}"))
    other = Memory()
    assert other.load(memory.shape(BOUND)) == BOUND
    assert (len(other.sent), other.sent) == (100, memory.sent)
    assert Memory().load({}) == Draft()
    assert Memory().load({"version": 1, "draft": 7, "sent": 8}) == Draft()

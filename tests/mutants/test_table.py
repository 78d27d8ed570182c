"""The table of mutants fits the present sources; and a few short histories that some of them need.

Source: reference/reliability.md 2.5.
"""

import ast

import pytest

from tests.mutants.run import CHECKOUT, patched
from tests.mutants.table import MUTANTS, Mutant
from tests.sim.checker import check
from tests.sim.root import SimRoot
from tests.sim.test_found import later, pair, state, world
from tieline.config import Limits
from tieline.engine.contract import Asked, Offer, Outcome, ReceiptTold, Settle
from tieline.keys import PrivateKey, verify
from tieline.model.receipt import Receipt, State
from tieline.wire.native.handshake import transcript


@pytest.mark.clause("mutant-1", "mutant-2", "mutant-3", "mutant-4", "mutant-5", "mutant-6", "mutant-7")
@pytest.mark.clause("mutant-8", "mutant-9", "mutant-10", "mutant-11", "mutant-12", "mutant-13", "mutant-14")
@pytest.mark.clause("mutant-20", "mutant-21", "mutant-22", "mutant-23", "mutant-24", "mutant-25")
@pytest.mark.clause("mutant-26", "mutant-27", "mutant-28")
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.clause for mutant in MUTANTS])
def test_mutant_applies_to_the_present_sources(mutant: Mutant) -> None:
    """Each patch finds its text once, and gives a module that compiles; its witnesses are in their files."""
    texts = patched(mutant, CHECKOUT / "src" / "tieline")
    assert isinstance(texts, dict), texts
    for file, text in texts.items():
        ast.parse(text, file)
    for witness in mutant.witnesses:
        place, _, test = witness.partition("::")
        assert f"def {test.partition('[')[0] or 'test_'}" in (CHECKOUT / place).read_text(encoding="utf-8")


def test_proof_of_one_role_does_not_verify_for_the_other() -> None:
    """Whatever the bytes are, what the server signed is not what the client has to sign."""
    key = PrivateKey(bytes(32))
    names = ("a", "b", key.public, key.public, "n", "m")
    assert verify(key.public, transcript("server", *names), key.sign(transcript("server", *names)))
    assert not verify(key.public, transcript("client", *names), key.sign(transcript("server", *names)))


def test_message_repeated_after_a_restore_is_one_record() -> None:
    """A recipient that reopened its store answers a repeated message from it."""
    made = world(Limits(acknowledgement_ms=50), Limits())
    one, two = pair(made)
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 1_000)
    two.engine.restore(two.disk.load(), made.clock.now())
    record = one.engine.sent("m1", one.peer)[0]
    made.network.cut(one.name)
    two.driver.submit(_offer_again(one, two, record.envelope.message_id))
    later(made, 5_000)
    made._end()
    assert check(made.history.entries, ["I21"]).violations == []
    assert len(two.engine.held(two.peer, unread_only=False, count_max=9)) == 1


def _offer_again(one: SimRoot, two: SimRoot, message_id: str) -> Offer:
    """Return the offer that one makes when it has not heard the answer."""
    envelope = two.engine.held(two.peer, message_id=message_id, count_max=1)[0].envelope
    return Offer(Asked(99, "again"), one.name, one.world.standing(two, one.peer), envelope)


def test_late_receipt_takes_nothing_back() -> None:
    """An accepted that comes after consumed changes nothing."""
    made = world(Limits(), Limits())
    one, two = pair(made)
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 1_000)
    two.expose(two.peer, fate="taken")
    later(made, 1_000)
    assert state(one, "m1") is State.CONSUMED
    late = Receipt("m1", one.peer.id, two.peer.id, State.ACCEPTED, 1, accepted_ms=1)
    one.driver.submit(ReceiptTold(Asked(99, "late"), two.name, late))
    one.driver.submit(Settle(10_000, Outcome.ANSWERED, receipt=late))
    later(made, 1_000)
    made._end()
    assert state(one, "m1") is State.CONSUMED
    assert check(made.history.entries, ["I15"]).violations == []


def test_receipt_of_a_stranger_advances_nothing() -> None:
    """A receipt over a link that another instance proved is not believed."""
    made = world(Limits(), Limits(), Limits())
    one, two = pair(made)
    stranger = made.living()[2]
    made.hide(two.name, 1_000_000)
    one.say(one.peer, two.peer, "m1", "text")
    later(made, 1_000)
    forged = Receipt("m1", "", two.peer.id, State.REPLIED, 9, replied_ms=1)
    one.driver.submit(ReceiptTold(Asked(99, "forged"), stranger.name, forged))
    later(made, 1_000)
    made._end()
    assert state(one, "m1") is State.PENDING
    assert check(made.history.entries, ["I17", "I18"]).violations == []

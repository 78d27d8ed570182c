"""What one command has ordered so far."""

from tests.unit.engine.brokering.kit import turn
from tieline.engine.brokering.contract import Departed, Drop, Plan


def test_plan_keeps_the_order_of_what_was_ordered() -> None:
    """Outputs, rows and closes come out as they went in."""
    made = turn()
    made.say(2, Departed("b"))
    made.say(1, Departed("a"))
    made.rows.append(Drop("ask", "k"))
    made.closes.append(9)
    outputs = ((2, Departed("b")), (1, Departed("a")))
    assert made.plan(5, None) == Plan((Drop("ask", "k"),), outputs, (9,), 5, None)

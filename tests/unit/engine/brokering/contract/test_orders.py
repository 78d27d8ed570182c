"""All that the hub orders."""

import typing

from tieline.engine.brokering.contract import Output, Plan, orders
from tieline.wire.intercom.saying import FrameCodec


def test_empty_plan_orders_nothing() -> None:
    """A plan without anything keeps, says and closes nothing."""
    assert Plan() == Plan((), (), (), None, None)


def test_every_output_is_in_the_union() -> None:
    """Whatever may be said stands among the outputs, and the wire's codec is a codec."""
    rest = {"Output", "Put", "Drop", "Plan", "Codec"}
    assert {one.__name__ for one in typing.get_args(Output)} == set(orders.__all__) - rest
    codec: orders.Codec = FrameCodec()
    assert codec.parse(codec.dump({"a": 1})) == {"a": 1}

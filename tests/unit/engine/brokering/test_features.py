"""What a session is served with."""

from tieline.engine.brokering.features import DIRECT, RECORDED, Features


def test_the_two_bases_share_no_ability() -> None:
    """Each way to register has abilities of its own; capabilities are in neither."""
    names = Features.__struct_fields__
    assert not any(getattr(DIRECT, name) and getattr(RECORDED, name) for name in names)
    capabilities = ("guarded_delivery", "receipt_reads", "last_reads", "wake_outcomes")
    assert not any(getattr(base, name) for base in (DIRECT, RECORDED) for name in capabilities)
    assert all(getattr(DIRECT, name) or getattr(RECORDED, name) for name in names if name not in capabilities)

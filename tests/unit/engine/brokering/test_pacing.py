"""How fast one socket may speak."""

import pytest

from tieline.engine.brokering.pacing import BUCKET_FRAMES, Bucket


@pytest.mark.clause("intercom-30")
def test_bucket_gives_its_frames_and_fills_with_time() -> None:
    """240 frames at once, then 120 in a second, and never more than it holds."""
    bucket = Bucket()
    assert [bucket.take(0) for _ in range(BUCKET_FRAMES + 1)] == [True] * BUCKET_FRAMES + [False]
    assert not bucket.take(8)
    assert bucket.take(9)
    assert [bucket.take(1_009) for _ in range(121)].count(True) == 120
    assert [bucket.take(99_999) for _ in range(241)].count(True) == BUCKET_FRAMES
    assert not bucket.take(99_000)

"""Names and params of the intercom's methods, and that who is not on it pays and gets nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.runtime.roots import call
from tieline.errors import Refused
from tieline.runtime.intercom.methods import TABLE
from tieline.runtime.options import RootOptions
from tieline.runtime.root import open_root


def test_root_that_is_on_no_intercom_imports_nothing_of_it() -> None:
    """A person without the wire does not pay its start."""
    program = (
        "import sys, tieline.runtime.root; "
        "print([name for name in sys.modules if 'wire.intercom' in name or 'shell.intercom' in name "
        "or 'brokering' in name or 'shell.hub' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.asyncio
async def test_methods_of_a_wire_that_is_off_say_how_to_turn_it_on(private_home: Path) -> None:
    """Each of them; but a token that proves no run is refused first."""
    assert set(TABLE) == {
        "intercom", "intercom.context", "intercom.guard", "intercom.provenance", "intercom.turn_failed",
        "intercom.wake_outcome",
    }  # fmt: skip
    async with await open_root(
        RootOptions(home=str(private_home / "h"), workspace=str(private_home))
    ) as root:
        for params, code in (
            ({"action": "list"}, "CAPABILITY_DENIED"),
            ({"action": "list", "run": "x"}, "TARGET_ENDED"),
        ):
            with pytest.raises(Refused) as caught:
                await call(root, "intercom", **params)
            assert caught.value.code == code

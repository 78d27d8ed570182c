"""What the operations on shared resources take."""

import subprocess
import sys

import msgspec
import pytest

from tieline.errors import Refused
from tieline.runtime.coordination_tools import FIELDS, TABLE, CoordinateResource

VALUES = {
    "resource": "machine/x",
    "reason": "r",
    "requestId": "i",
    "epoch": 1,
    "controller": "me",
    "participants": [],
    "profile": "build",
}
WIRE = {"request_id": "requestId"}


def asked(operation: str, names: set[str]) -> CoordinateResource:
    """Return the params with these fields."""
    shape = {"operation": operation, **{name: VALUES[name] for name in names}}
    return msgspec.convert(shape, CoordinateResource, strict=True)


@pytest.mark.clause("native-136")
@pytest.mark.parametrize("operation", FIELDS)
def test_operation_takes_its_fields_and_no_others(operation: str) -> None:
    """Required, optional and foreign fields, each by itself."""
    required, optional = ({WIRE.get(name, name) for name in names} for names in FIELDS[operation])
    asked(operation, required).check()
    asked(operation, required | optional).check()
    for missing in required:
        with pytest.raises(Refused, match=missing):
            asked(operation, required - {missing}).check()
    for foreign in set(VALUES) - required - optional:
        with pytest.raises(Refused, match=foreign):
            asked(operation, required | {foreign}).check()


def test_operations_are_the_six_of_the_specification() -> None:
    """No other one is read."""
    assert set(FIELDS) == {"status", "request", "grant", "release", "cancel_request", "set_controller"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"operation": "recover"}, CoordinateResource, strict=True)


def test_table_names_no_operation_that_recovers() -> None:
    """What nothing proves is answered for by a person at the command line, not through a door."""
    assert not [name for name in TABLE if "recover" in name]


def test_table_loads_nothing_of_the_coordination() -> None:
    """Most roots never touch a resource."""
    code = (
        "import sys; import tieline.runtime.operations;"
        "sys.exit(any(name.startswith(('tieline.engine.coordination', 'tieline.store.resources'))"
        " for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0

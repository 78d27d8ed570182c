"""Errors: thirty public codes, and a next action for every code."""

import pytest

from tieline.errors import (
    CODES,
    LOCAL_CODES,
    WIRE_CODES,
    OutcomeUnknown,
    RecoveryRequired,
    Refusal,
    Refused,
    UsageError,
    next_action,
)

PUBLIC = """PEER_OFFLINE TARGET_ENDED UNKNOWN_TARGET AMBIGUOUS_TARGET SCOPE_DENIED CAPABILITY_DENIED
UNSUPPORTED_PROTOCOL QUEUE_FULL MESSAGE_TOO_LARGE DELIVERY_UNKNOWN CONTROLLER_UNAVAILABLE RESOURCE_BUSY
RECOVERY_REQUIRED INVALID_PARAMS INVALID_RPC PARSE_ERROR FRAME_TOO_LARGE AUTHENTICATION_FAILED UNSAFE_ENDPOINT
COMMUNICATION_DISABLED MESSAGE_ID_CONFLICT INVALID_REPLY RATE_LIMITED STALE_POLICY REQUEST_ID_CONFLICT
RESERVATION_EXPIRED RESOURCE_WAIT_TIMEOUT METHOD_NOT_FOUND AUTOMATIC_REPLY_LIMIT UNSUPPORTED_PLATFORM"""


@pytest.mark.clause(
    "native-208",
    "native-209",
    "native-210",
    "native-211",
    "native-212",
    "native-213",
    "native-214",
    "native-215",
    "native-216",
    "native-217",
)
def test_codes_are_the_thirty_of_the_profile_each_with_an_action() -> None:
    """A stranger's reader knows every code that we send; a person gets a next action for each."""
    assert set(WIRE_CODES) == set(PUBLIC.split())
    assert len(WIRE_CODES) == 30
    assert not set(WIRE_CODES) & set(LOCAL_CODES)
    assert all(len(action) > 10 and not action.endswith(".") for action in CODES.values())


def test_errors_carry_code_and_action() -> None:
    """The branch says what to do, the code what would help."""
    refused = Refused.of(Refusal("QUEUE_FULL", "full", is_retryable=True))
    assert (refused.code, str(refused), refused.is_retryable) == ("QUEUE_FULL", "full", True)
    assert refused.action == WIRE_CODES["QUEUE_FULL"]
    assert OutcomeUnknown("x", "m").message_id == "m"
    assert OutcomeUnknown("x").code == "DELIVERY_UNKNOWN"
    assert RecoveryRequired("x").code == "RECOVERY_REQUIRED"
    assert UsageError("x").code == "USAGE"
    assert "doctor" in next_action("NO_SUCH_CODE")

"""What peers ask of us over their links: turned into commands, or answered at once.

Rule 1: who asks is whom the link proved, and may do what presence says now: read again after a heartbeat.
Rule 2: nothing is decided about messages here; what needs a decision goes to the driver.
Rule 3: an answer goes to the link that asked, if it is still there; a lost one is asked for again.

Source: reference/native.md 2.6, 2.6b, 75, 81; reference/reliability.md S16, S18, K19.
"""

from typing import Any

from tieline.config import HEARTBEAT_MS, Limits
from tieline.engine.contract import Answer, Asked
from tieline.errors import Refusal
from tieline.shell.switchboard.budget import Budget
from tieline.shell.switchboard.circuit import Circuit
from tieline.shell.switchboard.ports import Far, World
from tieline.wire.native import mapping
from tieline.wire.native.protocol import Connection, RequestReceived

__all__ = ["Serving"]


class Serving:
    """The answering side of one root's links."""

    def __init__(self, world: World, limits: Limits) -> None:
        self.limited_count = 0
        self._world, self._budget = world, Budget(limits)

    def asked_by(self, circuit: Circuit, event: RequestReceived) -> None:
        """Take one request of a proved far end."""
        far, connection = self._far(circuit), _connection(circuit)
        if far is None:
            connection.refuse(
                event.id, Refusal("AUTHENTICATION_FAILED", "this instance is no longer advertised")
            )
        elif not self._budget.charge(circuit.instance, self._world.now().mono_ms):
            self.limited_count += 1
            connection.refuse(event.id, Refusal("RATE_LIMITED", "too many requests", is_retryable=True))
        elif event.method == "peer.directory":
            live = mapping.directory_asked(event.params, lambda: self._world.directory(far))
            _respond(connection, event, live)
        elif event.method == mapping.HELLO:
            _respond(connection, event, mapping.hello_asked(event.params))
        elif event.method == mapping.LAST:
            _respond(connection, event, self._world.last(event.params, far))
        elif event.method == mapping.PROBE:
            _respond(connection, event, self._world.probed(event.params, far))
        else:
            self._submit(circuit, event, far)

    def _submit(self, circuit: Circuit, event: RequestReceived, far: Far) -> None:
        """Give the driver what the request stands for."""
        circuit.methods[event.id] = event.method
        command = mapping.command(
            event.method,
            event.params,
            asked=Asked(circuit.number, event.id),
            sender_instance=circuit.instance,
            standing=far.standing,
            own_peer=self._world.own_peer,
        )
        if isinstance(command, Refusal):
            del circuit.methods[event.id]
            _connection(circuit).refuse(event.id, command)
        else:
            self._world.submit(command)

    def answer(self, circuit: Circuit, answer: Answer) -> None:
        """Write the answer to a request that became a command."""
        method = circuit.methods.pop(answer.asked.request, "")
        if isinstance(answer.body, Refusal):
            _connection(circuit).refuse(answer.asked.request, answer.body)
        else:
            _connection(circuit).respond(answer.asked.request, mapping.answered(method, answer.body))

    def _far(self, circuit: Circuit) -> Far | None:
        """Return what presence says of the far end, read again after one heartbeat."""
        now_ms = self._world.now().mono_ms
        if now_ms - circuit.far_read_ms > HEARTBEAT_MS:
            circuit.far = self._world.lookup(circuit.instance, is_fresh=False) or circuit.far
            circuit.far_read_ms = now_ms
        return circuit.far


def _respond(connection: Connection, event: RequestReceived, body: dict[str, Any] | Refusal) -> None:
    if isinstance(body, Refusal):
        connection.refuse(event.id, body)
    else:
        connection.respond(event.id, body)


def _connection(circuit: Circuit) -> Connection:
    assert circuit.connection is not None, "a request comes over a protocol"
    return circuit.connection

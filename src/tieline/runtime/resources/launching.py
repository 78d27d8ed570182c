"""The ledger as a supervisor tells it: started, members, failed, ended; and the supervisor's own program.

Rule 1: what a resource's document says of a command is stored before its record leaves the ledger.
Rule 2: every step presents nonce and fences; a supervisor whose grant was given on is refused.

Source: reference/native.md 2.14, 190, 191; reference/reliability.md I32, I40.
"""

import os
import sys
import time

import msgspec

from tieline.engine import coordination
from tieline.engine.coordination import Complete, SpawnFailed, Started
from tieline.errors import RecoveryRequired, Refusal, Refused
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Ledger, Probe, ResourceKey
from tieline.runtime.resources.coordinator import Change, Coordinator
from tieline.shell.supervisor.holding import serve
from tieline.shell.tree import CompletionProof, LaunchEvidence, LaunchSpec, SpawnFailure

__all__ = ["SupervisorLedger", "main"]

START_PATIENCE_S = 120.0
"""So long a crowd at the locks may hold up a start whose right is used already."""


class SupervisorLedger:
    """One launch's entries; the coordination directory stands in the specification's `context`."""

    def __init__(self, spec: LaunchSpec) -> None:
        self._coordinator = Coordinator(spec.context)
        self._launch_id, self._nonce = spec.launch_id, spec.nonce
        self._fences: dict[ResourceKey, int] = {
            ResourceKey(key): fence for key, fence in zip(spec.resources, spec.fences, strict=True)
        }

    def record_started(self, evidence: LaunchEvidence) -> None:
        """Record what was started; refuse it when the right has ended. A crowd at the locks is waited for."""
        until = time.monotonic() + START_PATIENCE_S
        while True:
            try:
                self._record(evidence)
            except Refused as refused:
                is_crowded = refused.code == "RESOURCE_BUSY" and refused.is_retryable
                if not is_crowded or time.monotonic() >= until:
                    raise
            else:
                return

    def _record(self, evidence: LaunchEvidence) -> None:
        processes = _processes(evidence)
        started = Started(self._launch_id, self._nonce, self._fences, processes, evidence.ownership)

        def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
            return coordination.identify_launch(
                ledger,
                self._launch_id,
                self._nonce,
                processes,
                evidence.ownership,
                evidence.cgroup,
                evidence.limit_mark,
            )

        self._decide(started, change)

    def record_members(self, evidence: LaunchEvidence) -> None:
        """Record the processes that left the session."""
        self._record(evidence)

    def spawn_failed(self, failure: SpawnFailure) -> None:
        """Record that the command never ran: its right is given back."""
        failed = SpawnFailed(self._launch_id, self._nonce, self._fences)

        def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
            return coordination.drop_launch(ledger, self._launch_id, self._nonce)

        try:
            self._decide(failed, change)
        except Refused as refused:
            if refused.code != "RESOURCE_BUSY" or refused.is_retryable:
                raise
            # Its process was published, and could not become the program: it was waited for since.
            self._end((f"it was never executed: {failure.text}", "its one process was reaped"))

    def complete(self, proof: CompletionProof) -> None:
        """Record that nothing of the launch runs any more."""
        self._end(proof.lines)

    def _end(self, lines: tuple[str, ...]) -> None:
        gone = Probe("gone", evidence=lines)
        try:
            self._complete(self._fences, gone)
        except RecoveryRequired:
            believed = {document.resource for document in self._coordinator.readable(self._fences)}
            if believed.issuperset(self._fences):
                raise
            # A damaged record is told nothing: who begins it anew asks this launch's processes. The others
            # are free now.
            self._complete({key: self._fences[key] for key in believed}, gone)

    def _complete(self, fences: dict[ResourceKey, int], gone: Probe) -> None:
        complete = Complete(self._launch_id, self._nonce, fences, gone)

        def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
            return coordination.drain_launch(ledger, self._launch_id, self._nonce, gone)

        self._decide(complete, change)

    def _decide(self, command: Started | SpawnFailed | Complete, change: Change) -> None:
        if not isinstance(command, Started) and not os.path.isdir(self._coordinator.store.path):
            return  # the whole place was removed: nobody is left to be told, and nothing is made anew
        try:
            self._coordinator.decide(command.fences, command, change=change)
        except Refused as refused:
            if refused.code == "RESERVATION_EXPIRED" and not isinstance(command, Started):
                return  # an operator answered for it meanwhile: there is nothing left to tell
            raise


def _processes(evidence: LaunchEvidence) -> tuple[ProcessIdentity, ...]:
    first = () if evidence.command is None else (evidence.command,)
    return first + tuple(one for one in evidence.members if one not in first)


def main(descriptor: int) -> int:
    """Run as a supervisor: wait for the front end's word on `descriptor`, hold the tree, tell its end."""
    msgspec.json.Decoder(str)  # loaded while the front end waits for its grant
    return serve(descriptor, SupervisorLedger)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

"""Beginning a damaged record anew, on a person's word: what is known is shown first, and what lives refuses.

Rule 1: one record is damage to its own resource. It is shown as such, and every other resource goes on.
Rule 2: a record is begun anew only where nothing of its commands is seen alive, by who names the damage
    that was shown; the bytes are kept aside, and the resource's history says who answered, and why.
Rule 3: index and ledger are made again from all that names a resource or a command: that frees nothing.

Source: reference/native.md 3.5 "operator recovery", 180, 195 to 197; reference/reliability.md I31, I34, I37.
"""

from typing import Any

from tieline.engine import coordination
from tieline.engine.coordination.commands import REASON_CHARACTERS_MAX
from tieline.errors import Refused
from tieline.model.identity import Principal
from tieline.model.resource import Launch, Ledger, ResourceKey
from tieline.runtime.resources import viewing
from tieline.runtime.resources.coordinator import Coordinator, now
from tieline.store.resources import Damage

__all__ = ["SHARED_RECORDS", "evidence_of_damage", "mend", "rebuild"]

SHARED_RECORDS = ("index", "ledger")


def evidence_of_damage(coordinator: Coordinator, damage: Damage) -> tuple[list[str], bool]:
    """Return what is known of a damaged resource, a sentence each, and whether anything of it lives.

    Raises:
        RecoveryRequired: the ledger is damaged too, and comes first.
    """
    lines = [damage.text, f"record id {damage.record_id}"]
    if damage.document is not None:
        lines.append("only its mark is lost: the record itself is confirmed by its witness and stays")
        return lines, False
    is_alive = False
    launches = _launches(damage, coordinator.store.read_ledger())
    for launch in launches:
        seen = coordinator.probe(launch)
        is_alive = is_alive or seen.state == "alive"
        claimed = f"{launch.executable}, claimed by :{launch.claimant.alias}"
        lines.append(f"launch {launch.launch_id} ({claimed}): {seen.state}")
        lines += [f"  {text}" for text in seen.evidence]
    if not launches:
        lines.append("no command is known to hold it")
    if damage.is_mark_known:
        lines.append(f"its grants go on above fence {damage.mark.fence}")
    else:
        lines.append("nothing remembers its numbers: they go on above the clock's milliseconds")
    if damage.policy is not None:
        lines.append("its policy is known and stays, under the next epoch; who waited asks again")
    elif damage.is_policy_known:
        lines.append("it was open and stays so; who waited asks again")
    else:
        lines.append("whether it had a policy is not known: it is open afterwards, until one is installed")
    return lines, is_alive


def mend(
    coordinator: Coordinator, key: ResourceKey, record_id: str, text: str, caller: Principal
) -> dict[str, Any]:
    """Begin a damaged record anew on the operator's word; return the resource afterwards.

    `record_id` is that of the damage that was shown, `text` says on what evidence.

    Raises:
        Refused: RESOURCE_BUSY while anything of it is seen alive; INVALID_PARAMS.
        RecoveryRequired: index or ledger are damaged.
    """
    if not 0 < len(text) <= REASON_CHARACTERS_MAX:
        raise Refused("INVALID_PARAMS", f"the evidence has 1 to {REASON_CHARACTERS_MAX} characters")

    def answered(damage: Damage, ledger: Ledger) -> Ledger:
        if damage.document is not None:
            return ledger
        for launch in _launches(damage, ledger):
            # Looked at under the locks: a command of this resource cannot start meanwhile.
            if coordinator.probe(launch).state == "alive":
                raise Refused(
                    "RESOURCE_BUSY",
                    f"launch {launch.launch_id} is alive: wait for its end, or end it yourself",
                )
            if all(one == key for one, _ in launch.resources):
                ledger = coordination.answer_for_launch(ledger, launch.launch_id)
        return ledger

    note = f"{caller.peer.id}: begun anew after damage; {text}"
    coordinator.store.mend(key, record_id, note, now().wall_ms, answered)
    return viewing.glimpse(coordinator, key, caller)


def rebuild(coordinator: Coordinator, record: str) -> str:
    """Make the index or the ledger again; return what it holds now, for a person.

    Raises:
        Refused: INVALID_PARAMS when it is whole.
        RecoveryRequired: the ledger is asked for, and the index is damaged.
    """
    if record == "index":
        return f"the index names {len(coordinator.store.rebuild_index().resources)} resources"
    return f"the ledger has {len(coordinator.store.rebuild_ledger().launches)} commands"


def _launches(damage: Damage, ledger: Ledger) -> list[Launch]:
    """Return the commands that may hold the resource; the ledger knows more of those that both name."""
    found = {launch.launch_id: launch for launch in damage.launches}
    found |= {
        launch.launch_id: launch
        for launch in ledger.launches
        if launch.launch_id in found or any(key == damage.resource for key, _ in launch.resources)
    }
    return list(found.values())

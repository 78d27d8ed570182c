"""What is still known of a resource whose record is lost, damaged or older than it was.

Rule 1: every number goes on above the highest that anything remembers. Where nothing does, it goes on above
the clock's milliseconds, which no count of grants reaches: no fence is given twice.
Rule 2: policy, enrolment and blockers are taken from the witness, claims from nowhere: who waited asks again.
Rule 3: a ledger or an index is made of everything that names a command or a resource. That may know one too
many, which ends by its proof, and never one too few.
Rule 4: this module touches no file and no process.

Source: reference/native.md 3.5; reference/reliability.md I31, I34, I37, I38.
"""

import hashlib
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from tieline.errors import RecoveryRequired, Refused
from tieline.model.resource import (
    Blocker,
    Document,
    Launch,
    LaunchState,
    Ledger,
    Mark,
    Policy,
    ResourceEvent,
    ResourceKey,
    TicketState,
)
from tieline.store.resources.formats import Index, Witness, decode

__all__ = [
    "Damage",
    "damage_of",
    "held_launches",
    "readable",
    "rebuilt_index",
    "rebuilt_ledger",
    "recover_action",
    "restored",
]

RECORD_ID_CHARACTERS = 12
_USED = frozenset({TicketState.STARTING, TicketState.RUNNING})


class Damage(msgspec.Struct, frozen=True):
    """One record that cannot be believed, and what is known beside it.

    Attributes:
        text: What is wrong, for a person.
        record_id: Names this very damage: other bytes have another one.
        mark: The highest numbers that anything remembers.
        is_mark_known: Whether anything but the damaged record remembers them.
        is_policy_known: Whether anything remembers who was to claim and to grant.
        document: The record, where only its mark is lost and the witness confirms it.
        launches: Commands that held the resource, or may still.
    """

    resource: ResourceKey
    text: str
    record_id: str
    mark: Mark
    is_mark_known: bool
    is_policy_known: bool = False
    document: Document | None = None
    policy: Policy | None = None
    enrolment: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    launches: tuple[Launch, ...] = ()

    @property
    def action(self) -> str:
        """What ends it."""
        return recover_action(self.resource)


def recover_action(key: ResourceKey) -> str:
    """Return what ends the damage of one record."""
    return (
        f"`tieline resource recover {key}` shows what is known of it, and begins its record anew once nothing"
        " of it runs; other resources go on"
    )


_Kind = TypeVar("_Kind", Document, Mark, Ledger, Index)


def readable(data: bytes, kind: type[_Kind]) -> _Kind | None:
    """Return the record in `data`, None when there is none that can be read."""
    try:
        return decode(data, kind, "a record") if data else None
    except (RecoveryRequired, Refused):
        return None


def damage_of(
    key: ResourceKey, text: str, data: bytes, mark_data: bytes, witness: Witness | None, seen: Mark
) -> Damage:
    """Return what is known of a resource whose record was not believed, because of `text`."""
    document, mark = readable(data, Document), readable(mark_data, Mark)
    highest = _highest([seen, mark or Mark(), witness.mark if witness else Mark()])
    if document is not None and document.resource != key:
        document = None
    is_confirmed = document is not None and witness is not None and highest.admits(document)
    if document is not None:
        highest = _highest([highest, Mark.of(document)])
    launches = witness.launches if witness is not None else ()
    fences = [fence for launch in launches for one, fence in launch.resources if one == key]
    highest = msgspec.structs.replace(highest, fence=max([highest.fence, *fences]))
    digest = hashlib.sha256(b"\0".join((key.encode(), data, mark_data))).hexdigest()
    return Damage(
        resource=key,
        text=text,
        record_id=digest[:RECORD_ID_CHARACTERS],
        mark=highest,
        is_mark_known=seen.revision > 0 or mark is not None or witness is not None,
        is_policy_known=witness is not None,
        document=document if is_confirmed else None,
        policy=witness.policy if witness is not None else None,
        enrolment=witness.enrolment if witness is not None else (),
        blockers=witness.blockers if witness is not None else (),
        launches=launches,
    )


def restored(damage: Damage, note: str, now_ms: int) -> Document:
    """Return the record that takes the damaged one's place, before its revision is raised.

    Args:
        damage: What is known.
        note: Who answered for it, and on what evidence.
        now_ms: Wall time.
    """
    base = damage.document
    if base is None:
        floor = 0 if damage.is_mark_known else now_ms
        base = Document(
            resource=damage.resource,
            **{name: max(floor, getattr(damage.mark, name)) for name in Mark.__struct_fields__},
            policy=damage.policy,
            enrolment=damage.enrolment,
            blockers=damage.blockers,
        )
        # What was granted under the lost record and not used is void, as under any earlier policy.
        base = msgspec.structs.replace(base, epoch=base.epoch + 1, events_dropped=base.event_sequence)
    event = ResourceEvent(
        resource=damage.resource,
        sequence=base.event_sequence + 1,
        epoch=base.epoch,
        state="recovered",
        at_ms=now_ms,
        audience=base.enrolment,
        controller=base.policy.controller if base.policy is not None else None,
        note=note,
    )
    return msgspec.structs.replace(base, events=(*base.events, event), event_sequence=event.sequence)


def held_launches(documents: Iterable[Document]) -> tuple[Launch, ...]:
    """Return the commands that hold these resources, as far as their records tell."""
    found: dict[str, Launch] = {}
    for document in documents:
        holder = document.holder
        if holder is None or holder.state not in _USED or holder.launch_id is None or not holder.reservation:
            continue
        right = holder.reservation
        before = found.get(holder.launch_id)
        found[holder.launch_id] = Launch(
            launch_id=holder.launch_id,
            nonce=right.nonce,
            digest=holder.digest or "",
            executable=holder.executable,
            directory_digest="",
            claimant=holder.claimant,
            created_ms=right.granted_ms,
            boot_id=right.boot_id,
            state=LaunchState.IDENTIFIED if right.processes else LaunchState.ADMITTED,
            resources=(*(before.resources if before else ()), (document.resource, right.fence)),
            supervisor=right.supervisor,
            processes=right.processes,
            ownership=right.ownership or "group",
        )
    return tuple(found.values())


def rebuilt_ledger(
    readable: Ledger | None, witnesses: Iterable[Witness], documents: Iterable[Document], revision: int
) -> Ledger:
    """Return a ledger of every command that anything names, not older than `revision`.

    Args:
        readable: The ledger that was found, where it is older than it was.
        witnesses: Of every resource.
        documents: Every record that can be believed.
        revision: How far the ledger had come, as far as it is known.
    """
    launches = {launch.launch_id: launch for launch in held_launches(documents)}
    if readable is not None:
        launches |= {launch.launch_id: launch for launch in readable.launches}
        revision = max(revision, readable.revision)
    launches |= {launch.launch_id: launch for witness in witnesses for launch in witness.launches}
    return Ledger(revision=revision, launches=tuple(launches.values()))


def rebuilt_index(keys: Iterable[ResourceKey], ledger_revision: int) -> Index:
    """Return an index of these resources."""
    return Index(resources=tuple(sorted(set(keys))), ledger_revision=ledger_revision)


def _highest(marks: Iterable[Mark]) -> Mark:
    found = tuple(marks)
    return Mark(**{name: max(getattr(one, name) for one in found) for name in Mark.__struct_fields__})

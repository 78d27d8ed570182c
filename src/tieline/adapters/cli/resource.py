"""`tieline resource`: who holds what, who waits, what to do next; and to request, grant, govern, recover.

Rule 1: what acts as a peer goes through that peer's root; what only looks reads the files where no root
hosts this command, and is then shown what anybody of this OS user may see.
Rule 2: a recovery is a person's: never below an agent, with the launch id typed or passed, and it ends
nothing but the record.
Rule 3: a takeover is asked for by name and never implied.

Source: DESIGN.md 4; reference/native.md 2.13, 3.5 "operator recovery", "status visibility".
"""

import os
import sys
from argparse import Namespace
from shlex import quote
from typing import Any

from tieline.adapters.cli.arguments import Alone, Parser, add_root_options
from tieline.adapters.cli.door import OWN, OwnRoot, identity, reach, run_of
from tieline.adapters.cli.output import clock, flush, line, note, paint, write, write_json, write_json_line
from tieline.errors import Refused, UsageError

__all__ = ["parser", "run"]

ACTIONS = ("list", "status", "request", "grant", "release", "cancel", "policy", "watch", "recover")
CHANGE_S = 30.0
USAGE = "tieline resource ACTION [KEY | ID] [options]"
DETAILS = """list             every resource that was ever used, one line each
status [KEY]     who holds it, since when, who waits, and what to do next; all of them without KEY
request KEY      get in line; --reason says what for, `tieline run --ticket ID` uses the grant
grant ID         give a waiting ticket the right, as the controller
release ID       give back a right that was not used
cancel ID        leave the line
policy KEY       --controller me|ALIAS --participant ALIAS ..., --open, --enrol or --unenrol ALIAS ...
watch [KEY]      follow what happens, until interrupted
recover KEY      show the evidence, and answer for a command whose end nothing proves (--launch ID), or
                 begin a damaged record anew (--record ID); what stood there is kept aside
recover index    make the index again from the records; `recover ledger` likewise the list of commands

KEY is machine/NAME or repository/NAME (the id of this repository is filled in). ID is a ticket's id as
`status` and `request` show it. A resource that nobody configured is open: `tieline run` needs no policy.
policy needs `allow_resource_control = true` at its root (or TIELINE_ALLOW_RESOURCE_CONTROL=1)."""


def parser(sub: Alone) -> Parser:
    """Return the parser of this command."""
    made = sub.add_parser(
        "resource", "Show, request and govern what only one may use at a time.", DETAILS, USAGE
    )
    made.add_argument("action", choices=ACTIONS, metavar="ACTION", help="one of: " + ", ".join(ACTIONS))
    made.add_argument("subject", nargs="?", metavar="KEY|ID", help="the resource, or the ticket's id")
    made.add_argument("--reason", metavar="TEXT", help="request: what the others in line are shown")
    made.add_argument("--id", metavar="ID", help="request: the request id; the same id is the same ticket")
    made.add_argument(
        "--epoch", metavar="N", type=int, help="grant, policy: only under this version of the policy"
    )
    made.add_argument("--controller", metavar="PEER", help="policy: who grants; me, an alias or a peer id")
    made.add_argument(
        "--participant",
        metavar="PEER",
        action="append",
        default=[],
        help="policy: who may claim; repeat (default: who may now)",
    )
    made.add_argument(
        "--profile",
        choices=("strict", "build"),
        help="policy: which commands need it (default: as now, else strict)",
    )
    made.add_argument(
        "--auto-grant", action="store_true", help="policy: the controlling root grants in order by itself"
    )
    made.add_argument("--open", action="store_true", help="policy: first come, first served again")
    made.add_argument(
        "--enrol", metavar="PEER", action="append", default=[], help="policy: one more who may claim; repeat"
    )
    made.add_argument(
        "--unenrol", metavar="PEER", action="append", default=[], help="policy: take a peer out; repeat"
    )
    made.add_argument(
        "--takeover", action="store_true", help="policy: replace a controller that is not proven gone"
    )
    made.add_argument("--launch", metavar="ID", help="recover: the launch that you answer for")
    made.add_argument("--record", metavar="ID", help="recover: the damaged record that you answer for")
    made.add_argument("--evidence", metavar="TEXT", help="recover: why it is safe; kept with the record")
    made.add_argument(
        "--after", metavar="N", type=int, default=None, help="watch: events after this sequence of KEY"
    )
    add_root_options(made)
    return made


def run(options: Namespace) -> int:
    """Carry the action out, and return the exit code."""
    match options.action:
        case "list" | "status":
            return _status(options)
        case "request" | "grant" | "release" | "cancel":
            return _act(options)
        case "policy":
            return _policy(options)
        case "watch":
            from tieline.adapters.cli.resource_watch import watch

            return watch(options)
        case _:
            return _recover(options)


# ---------------------------------------------------------------- looking


def _status(options: Namespace) -> int:
    if options.action == "list" and options.subject:
        raise UsageError("list takes no KEY; `tieline resource status KEY` shows one")
    found, root = _looked(options)
    if options.json:
        write_json("resource", {"action": options.action, "resources": found, "root": root})
    elif options.action == "list":
        for shape in found:
            write(_headline(shape))
    else:
        for shape in found:
            _show(shape)
    if not found and not options.json:
        note("no resource was used here yet; `tieline run --resource machine/NAME -- COMMAND` makes one")
    flush()
    return 0


def _looked(options: Namespace) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return what is to be seen, from the root of this command, or from the files where there is none."""
    try:
        client, found, _ = reach(options, may_change=False)
    except Refused as error:
        is_passed = error.code in ("NO_ROOT", "AMBIGUOUS_TARGET", "FOREIGN_NAMESPACE")
        if not is_passed or options.instance or options.run:
            raise
        return _read(options), None
    if found.rule == "workspace":
        return _read(options), None  # another agent's root: what it may see is not ours to show
    with client:
        if options.subject:
            key = _key(options.subject)
            asked = {"operation": "status", "resource": key, **run_of(options)}
            return [client.call("coordinate_resource", asked)["resource"]], identity(found)
        listed = client.call("resource.list", run_of(options))["resources"]
    return [shape for shape in listed if isinstance(shape, dict)], identity(found)


def _read(options: Namespace) -> list[dict[str, Any]]:
    from tieline.runtime.locate import places
    from tieline.runtime.resources.coordinator import Coordinator
    from tieline.runtime.resources.viewing import local_viewer, status, status_of_all

    coordinator = Coordinator(places(os.environ).coordination)
    try:
        if options.subject:
            return [status(coordinator, _key(options.subject), local_viewer())]
        return status_of_all(coordinator, local_viewer())
    finally:
        coordinator.close()


def _key(text: str) -> Any:
    """Return the full key; the short `repository/NAME` is completed for the current directory."""
    from tieline.runtime.locate import here
    from tieline.runtime.resources.claims import full_key

    return full_key(text, here())


def _headline(shape: dict[str, Any]) -> str:
    holder = shape.get("holder") or {}
    who = f"  :{line(holder['alias'], 64)} ({line(holder.get('executable', '?'), 64)})" if holder else ""
    if shape.get("controllerLife") == "gone":
        who += "  its controller has ended"
    waiting = len(shape.get("queue") or ())
    line_text = f"  {waiting} waiting" if waiting else ""
    if shape.get("fault"):
        line_text = f"  next: {line(shape.get('nextAction', ''), 400)}"
    return f"{line(shape['resource'], 256)}  {line(shape['state'], 16)}{who}{line_text}"


def _show(shape: dict[str, Any]) -> None:
    """Show one resource on one screen."""
    write(paint(f"{line(shape['resource'], 256)}  {line(shape['state'], 16)}", "bold"))
    if shape.get("configured") and shape.get("enrolled") and not shape.get("fault"):
        name = line(shape.get("controllerAlias") or shape.get("controller", "?"), 64)
        life = {"gone": " (has ended)", "unknown": " (whether it lives is not known)"}
        doubt = life.get(str(shape.get("controllerLife")), "")
        write(
            f"  policy    epoch {shape.get('epoch')}, :{name}{doubt} grants, profile {shape.get('profile')}"
        )
    elif shape.get("enrolled") and not shape.get("fault"):
        write("  policy    none: first come, first served")
    if shape.get("fault"):
        write(f"  damaged   {line(shape['fault'], 400)}")
    for living in shape.get("living") or ():
        write(
            f"  alive     :{line(living['alias'], 64)} ({line(living['executable'], 64)}),"
            f" launch {line(living['launchId'], 64)}, supervisor {living.get('supervisor')}"
        )
    holder = shape.get("holder")
    if holder:
        _show_holder(holder)
    for blocker in shape.get("blockers") or ():
        write(
            f"  blocked   by :{line(blocker['alias'], 64)} ({line(blocker['executable'], 64)})"
            f" from before the policy, launch {line(blocker['launchId'], 64)}"
        )
    for place, entry in enumerate(shape.get("queue") or (), 1):
        write(
            f"  {place}. waits  :{line(entry['alias'], 64)} for {_span(entry['waitMs'])}:"
            f" {line(entry['reason'], 80)}  [{line(entry['requestId'], 64)}]"
        )
    write(f"  next      {line(shape.get('nextAction', ''), 400)}")


def _show_holder(holder: dict[str, Any]) -> None:
    what = line(holder.get("executable") or "a command", 64)
    since = f"since {clock(holder['since'])} ({_span(holder['heldMs'])})"
    state = f"{line(holder['state'], 16)}, fence {holder['fence']}"
    write(f"  holder    :{line(holder['alias'], 64)} ({what}), {state}, {since}")
    if holder.get("launchId"):
        supervisor = f", supervisor {holder['supervisor']}" if holder.get("supervisor") else ""
        write(f"  launch    {line(holder['launchId'], 64)}{supervisor}")
    if holder.get("isOrphan"):
        stop = f"`kill -TERM {holder.get('supervisor')}`"
        write(f"  orphan    its agent has ended; {stop} asks its command to stop")
    for text in holder.get("evidence") or ():
        write(f"  seen      {line(text, 200)}")


def _span(milliseconds: Any) -> str:
    seconds = int(milliseconds) // 1_000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


# ---------------------------------------------------------------- acting


def _act(options: Namespace) -> int:
    """Ask this command's root for one operation on a ticket."""
    if not options.subject:
        what = "KEY" if options.action == "request" else "the ticket's ID"
        raise UsageError(f"{options.action} needs {what}; see `tieline resource --help`")
    asked: dict[str, Any] = {"operation": "cancel_request" if options.action == "cancel" else options.action}
    if options.action == "request":
        asked |= {"resource": _key(options.subject), "reason": options.reason or "asked by a person"}
        if options.id:
            asked["requestId"] = options.id
    else:
        asked["requestId"] = options.subject
        if options.action == "grant" and options.epoch is not None:
            asked["epoch"] = options.epoch
    try:
        client, found, _ = reach(options, may_change=True)
    except Refused as error:
        if error.code == "NO_ROOT" and options.action == "request":
            error.advising(
                f"outside agents, `tieline run --resource {asked['resource']} -- COMMAND` waits for its turn"
            )
        raise
    with client:
        answer = client.call("coordinate_resource", {**asked, **run_of(options)}, CHANGE_S)
    return _tell(options, answer, identity(found))


def _tell(options: Namespace, answer: dict[str, Any], root: dict[str, Any]) -> int:
    if options.json:
        body: dict[str, Any] = {name: answer[name] for name in ("resource", "ticket") if name in answer}
        write_json("resource", {"action": options.action, **body, "root": root})
    else:
        ticket = answer.get("ticket")
        if ticket:
            write(f"ticket {line(ticket['requestId'], 64)}  {line(ticket['state'], 16)}")
        _show(answer["resource"])
    flush()
    return 0


def _policy(options: Namespace) -> int:
    if not options.subject:
        raise UsageError("policy needs KEY; see `tieline resource --help`")
    if sum((options.open, bool(options.unenrol), bool(options.enrol), options.controller is not None)) != 1:
        raise UsageError("policy takes one of --controller, --open, --enrol and --unenrol")
    asked: dict[str, Any] = {"resource": _key(options.subject), **run_of(options)}
    if options.open:
        asked["isOpen"] = True
    elif options.unenrol:
        asked["unenrol"] = options.unenrol
    elif options.enrol:
        asked["enrol"] = options.enrol
    else:
        asked["controller"] = options.controller
        if options.participant:
            asked["participants"] = options.participant
        if options.profile:
            asked["profile"] = options.profile
        asked["isAutoGrant"] = options.auto_grant
    asked["isTakeover"] = options.takeover
    if options.epoch is not None:
        asked["epoch"] = options.epoch
    try:
        client, found, where = reach(options, may_change=True)
    except Refused as error:
        is_passed = error.code in ("NO_ROOT", "FOREIGN_NAMESPACE")
        if not is_passed or options.instance or options.run or options.controller == "me":
            raise
        from tieline.runtime.locate import places

        where = places(os.environ)
        with OwnRoot(where) as own:
            return _tell(options, own.call("resource.policy", asked, CHANGE_S), OWN)
    with client:
        return _tell(options, client.call("resource.policy", asked, CHANGE_S), identity(found))


# ---------------------------------------------------------------- answering for what nothing proves


def _recover(options: Namespace) -> int:
    if not options.subject:
        raise UsageError("recover needs KEY, index or ledger; see `tieline resource --help`")
    _require_person(options)
    from tieline.runtime.locate import places
    from tieline.runtime.resources.coordinator import Coordinator
    from tieline.runtime.resources.mending import SHARED_RECORDS, rebuild

    coordinator = Coordinator(places(os.environ).coordination)
    try:
        if options.subject in SHARED_RECORDS:
            said = rebuild(coordinator, options.subject)
            body: dict[str, Any] = {"record": options.subject}
        else:
            body = _answer(options, coordinator, _key(options.subject))
            said = f"recovered {line(options.subject, 256)}; its history says who answered, and why"
    finally:
        coordinator.close()
    if options.json:
        write_json("resource", {"action": "recover", **body, "root": None})
    else:
        write(said)
        if "resource" in body:
            _show(body["resource"])
    flush()
    return 0


def _answer(options: Namespace, coordinator: Any, key: Any) -> dict[str, Any]:
    """Show the evidence and take the person's answer; return what came of it."""
    from tieline.runtime.resources.viewing import evidence, local_viewer, recover

    said = options.evidence or "an operator looked at the evidence and answers for it"
    damage = coordinator.store.damage(key)
    if damage is not None:
        return _answer_for_record(options, coordinator, damage, said)
    launch = options.launch or _only_launch(coordinator, key)
    lines = evidence(coordinator, key, launch)
    for text in lines:
        note("  " + line(text, 400))
    if not options.launch:
        _require_typed(key, "launch", launch)
    shape = recover(coordinator, key, launch, said, local_viewer())
    return {"launchId": launch, "evidence": lines, "resource": shape}


def _answer_for_record(options: Namespace, coordinator: Any, damage: Any, said: str) -> dict[str, Any]:
    from tieline.runtime.resources.mending import evidence_of_damage, mend
    from tieline.runtime.resources.viewing import local_viewer

    key, record = damage.resource, damage.record_id
    lines, is_alive = evidence_of_damage(coordinator, damage)
    for text in lines:
        note("  " + line(text, 400))
    if is_alive:
        refused = Refused("RESOURCE_BUSY", f"a command of {key} is alive; nothing was changed")
        raise refused.advising(f"wait for its end, or end it yourself; then `tieline resource recover {key}`")
    if not options.record:
        _require_typed(key, "record", record)
    shape = mend(coordinator, key, options.record or record, said, local_viewer())
    return {"recordId": record, "evidence": lines, "resource": shape}


def _require_person(options: Namespace) -> None:
    """Refuse an agent: what nothing proves is answered for by the person who can look."""
    try:
        client, found, _ = reach(options, may_change=False)
    except Refused:
        return
    client.close()
    if found.is_below_host and found.rule == "ancestor":
        refused = Refused("CAPABILITY_DENIED", "recovery is a person's act, and this terminal is an agent's")
        raise refused.advising("run it yourself, in a terminal that no agent has started")


def _only_launch(coordinator: Any, key: Any) -> str:
    """Return the launch that holds or blocks the resource; refused where it is not one."""
    document = coordinator.store.read(key)
    found = {one.launch_id for one in document.blockers}
    holder = document.holder
    if holder is not None and holder.launch_id is not None and holder.state != "reserved":
        found.add(holder.launch_id)
    if len(found) == 1:
        return str(found.pop())
    if not found:
        refused = Refused("INVALID_PARAMS", f"no command holds or blocks {key}: there is nothing to recover")
        raise refused.advising("see `tieline resource list` for what was used here, and what is damaged")
    names = ", ".join(sorted(found))
    refused = Refused("AMBIGUOUS_TARGET", f"{len(found)} commands block {key}: {names}")
    raise refused.advising(f"name one: `tieline resource recover {key} --launch {quote(min(found))}`")


def _require_typed(key: Any, what: str, name: str) -> None:
    """Return when the person typed the id of what is answered for; without a terminal nobody can."""
    if sys.stdin is not None and sys.stdin.isatty():
        note(f"type the {what} id to answer for it ({name}):")
        if sys.stdin.readline().strip() == name:
            return
    refused = Refused("RECOVERY_REQUIRED", f"the {what} id {name} was not typed; nothing was changed")
    raise refused.advising(
        f"when you have looked, type it, or pass it: `tieline resource recover {key} --{what} {quote(name)}"
        " --evidence TEXT`"
    )


def write_event(event: dict[str, Any], *, as_json: bool) -> None:
    """Write one event of a resource on a line of its own."""
    if as_json:
        write_json_line({"version": 1, "command": "resource", "action": "watch", "event": event})
        return
    who = f"  {line(event['principal'], 64)}" if event.get("principal") else ""
    fence = f"  fence {event['fence']}" if event.get("fence") is not None else ""
    note_text = f"  {line(event['note'], 200)}" if event.get("note") else ""
    write(
        f"{clock(event['at'])}  {line(event['resource'], 256)}  #{event['sequence']}"
        f"  {line(event['state'], 32)}{who}{fence}{note_text}"
    )

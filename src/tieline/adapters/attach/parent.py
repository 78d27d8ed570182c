"""`attach --parent`: the root serves the host's teammates, whose frames the host passes on.

Rule 1: what may be asked, and when, is decided in `teammate`; this file carries it out.
Rule 2: a child acts as its own run and as nobody else: the run comes from the binding, never from params.
Rule 3: mail that a child consumes was recorded in its context first, by its own word, in time.
Rule 4: the end of a task lets its admitted sends end and cuts its waits, then ends the run.

Source: reference/native.md 141 to 144, 2.9, 2.15.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from tieline.adapters.attach import teammate
from tieline.adapters.attach.teammate import Address, Request, Teammates
from tieline.adapters.stdio.calls import Root, error_data, report
from tieline.errors import OutcomeUnknown, Refusal, Refused, TielineError
from tieline.model.identity import Peer

__all__ = ["METHODS", "Parent"]

METHODS: Final = frozenset({"team.peerRequest", "team.peerContextCommit", "team.peerCancel"})
"""What the host may pass on to us; we say `team.peerResult`, `team.peerEvent`, `team.peerContext` and
`team.peerCancel`."""

_WAITS: Final = frozenset(
    {"list", "resolve", "messages", "status", "consume", "resource.requirements", "resource.wait"}
)
_PAGES_MAX: Final = 32


class Parent:
    """The teammates of one host."""

    def __init__(
        self,
        root: Root,
        group: asyncio.TaskGroup,
        put: "Callable[[str, dict[str, Any]], asyncio.Future[bool]]",
    ) -> None:
        """Serve children of `root`; `put(method, params)` writes a notification."""
        self._root = root
        self._group = group
        self._put = put
        self._teammates = Teammates()
        self._tasks: dict[Address, asyncio.Task[None]] = {}
        self._commits: dict[Address, asyncio.Future[bool]] = {}

    def take(self, method: str, params: dict[str, Any]) -> Refusal | None:
        """Take one frame; a refusal is for the host, because the frame names no request to answer."""
        address = teammate.read_address(params)
        if isinstance(address, Refusal):
            return address
        match method:
            case "team.peerRequest":
                self._ask(address, params)
            case "team.peerContextCommit":
                self._commit(address, is_recorded=params.get("recorded") is True)
            case _:
                task = self._tasks.get(address)
                if task is not None and self._operation(address) in _WAITS:
                    task.cancel()
        return None

    def tell(self, params: dict[str, Any]) -> None:
        """Pass an event on to the run that it concerns."""
        event = params.get("event")
        if not isinstance(event, dict):
            return
        place = event.get("cursor", "0")
        if event.get("type") == "resource":
            place = f"{event.get('resource')}-{event.get('sequence')}"
        for task, run, target_run in self._teammates.active():
            if self._child(target_run).id in (event.get("to"), event.get("from")):
                address = Address(task, run, target_run, f"event-{place}"[: teammate.ID_CHARACTERS_MAX])
                self._put("team.peerEvent", {**address.members(), "event": event})

    async def close(self, seconds: float) -> None:
        """Cut waits, let the rest end within `seconds`, end what still runs."""
        for address, task in list(self._tasks.items()):
            if self._operation(address) in _WAITS:
                task.cancel()
        for _turn in range(2):
            if self._tasks:
                await asyncio.wait(list(self._tasks.values()), timeout=seconds)
            for task in self._tasks.values():
                task.cancel()

    # --- requests -----------------------------------------------------------------------------

    def _ask(self, address: Address, params: dict[str, Any]) -> None:
        asked = teammate.read_request(params)
        if not isinstance(asked, Refusal):
            admitted = self._teammates.admit(address, *asked, _now_ms())
            if isinstance(admitted, Request):
                self._tasks[address] = self._group.create_task(self._serve(admitted))
                return
            asked = admitted
        self._refuse(address, Refused.of(asked))

    async def _serve(self, request: Request) -> None:
        address = request.address
        try:
            async with asyncio.timeout(teammate.time_ms(request.operation, request.params) / 1000):
                result = await self._carry_out(request)
            self._put("team.peerResult", {**address.members(), "result": result})
        except (TimeoutError, asyncio.CancelledError):
            if request.operation in _WAITS:
                self._refuse(address, Refused("WAIT_TIMEOUT", "the wait ended without an answer"))
            else:
                self._refuse(address, OutcomeUnknown("the request ended before its outcome was known"))
        except TielineError as error:
            self._refuse(address, error)
        except Exception as error:  # noqa: BLE001 - one defect must not end the custody of everything else
            report(request.operation, error)
            self._refuse(address, OutcomeUnknown("an internal error; the outcome is not known"))
        finally:
            self._teammates.settle(address)
            self._tasks.pop(address, None)

    async def _carry_out(self, request: Request) -> dict[str, Any]:
        address, params = request.address, request.params
        match request.operation:
            case "list":
                return await self._call(address, "list_peers", params)
            case "send":
                return await self._call(address, "send_peer_message", params)
            case "messages":
                return await self._call(address, "peer_messages", {**params, "consume": False})
            case "status":
                return await self._status(address, params)
            case "resolve":
                return await self._resolve(address, params)
            case "record":
                return await self._record(address, params)
            case "consume":
                return await self._consume(address, params)
            case "bind":
                return await self._begin(address, params)
            case "end":
                return await self._end(address)
            case "resource.coordinate":
                return await self._call(address, "coordinate_resource", params)
            case operation:  # of a launch: the root publishes what the child does
                return await self._call(address, operation, params)

    async def _call(self, address: Address, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation as the child."""
        if "run" in params:
            raise Refused("INVALID_PARAMS", "a teammate acts as its own run and names no other")
        actor = self._root.operations.root_actor._replace(peer=self._child(address.target_run), is_host=False)
        reply = await self._root.operations.call(actor, method, params)
        if reply.taken is not None:
            await self._root.operations.unflushed(reply.taken)
        result: dict[str, Any] = reply.result
        return result

    async def _resolve(self, address: Address, params: dict[str, Any]) -> dict[str, Any]:
        name = params.get("to")
        if not isinstance(name, str) or not name or set(params) - {"to", "scope"}:
            raise Refused("INVALID_PARAMS", "resolve takes to, and scope where it is not the default")
        found: list[dict[str, Any]] = []
        asked = {**params, "query": name}
        del asked["to"]
        for _page in range(_PAGES_MAX):
            page = await self._call(address, "list_peers", asked)
            found += [peer for peer in page["peers"] if name in (peer["peerId"], peer["alias"])]
            if "cursor" not in page:
                break
            asked["cursor"] = page["cursor"]
        exact = [peer for peer in found if peer["peerId"] == name] or found
        if len(exact) == 1:
            return {"peer": exact[0]}
        if exact:
            raise Refused("AMBIGUOUS_TARGET", "several peers have this alias")
        raise Refused("UNKNOWN_TARGET", "no peer has this peer id or alias")

    async def _status(self, address: Address, params: dict[str, Any]) -> dict[str, Any]:
        """Return what is known of a message that the child itself sent or got."""
        known = await self._call(address, "local.status", params)
        own = self._child(address.target_run).id
        sent = [item for item in known["sent"] if item["receipt"]["from"] == own]
        received = [item for item in known["received"] if item["message"]["to"] == own]
        if not sent and not received:
            raise Refused("UNKNOWN_TARGET", "this run has no such message")
        return {"sent": sent, "received": received}

    async def _record(self, address: Address, params: dict[str, Any]) -> dict[str, Any]:
        """Consume messages that the child has read with `messages` and recorded in its context."""
        ids = params.get("messageIds")
        if (
            not isinstance(ids, list)
            or not all(isinstance(value, str) for value in ids)
            or set(params) != {"messageIds"}
        ):
            raise Refused("INVALID_PARAMS", "record takes messageIds, a list of texts")
        if len(ids) > teammate.SELECTIONS_MAX:
            raise Refused("INVALID_PARAMS", f"messageIds has at most {teammate.SELECTIONS_MAX} entries")
        actor = self._root.operations.root_actor._replace(peer=self._child(address.target_run), is_host=False)
        consumed = 0
        for message_id in ids:
            reply = await self._root.operations.call(actor, "peer_messages", {"messageId": message_id})
            if reply.taken is not None:
                consumed += await self._root.operations.flushed(reply.taken)
        return {"consumed": consumed}

    async def _consume(self, address: Address, params: dict[str, Any]) -> dict[str, Any]:
        """Offer the mail of a boundary to the child; it is consumed when the child recorded it in time."""
        host = self._root.operations.root_actor
        asked = {"kind": params.get("kind", "tool"), "run": address.target_run}
        boundary = (await self._root.operations.call(host, "host.boundary", asked)).result
        token = boundary["token"]
        counts = {"generation": boundary["generation"], "remaining": boundary["remaining"]}
        if not boundary["text"]:
            return {"messageIds": [], "consumed": 0, **counts}
        consumed = 0
        is_recorded = False
        try:
            is_recorded = await self._offered(address, boundary)
        finally:
            if token is not None:  # a text without one only says that a long message waits to be read
                settle = self._root.operations.flushed if is_recorded else self._root.operations.unflushed
                consumed = await settle(token)
        if not is_recorded:
            raise Refused("WAIT_TIMEOUT", "the context was not recorded; its messages stay unread")
        return {"messageIds": boundary["messageIds"], "consumed": consumed, **counts}

    async def _offered(self, address: Address, boundary: dict[str, Any]) -> bool:
        refusal = self._teammates.offer(address, len(boundary["messageIds"]), _now_ms())
        if refusal is not None:
            raise Refused.of(refusal)
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._commits[address] = committed
        try:
            context = {"text": boundary["text"], "messageIds": boundary["messageIds"]}
            self._put("team.peerContext", {**address.members(), **context})
            async with asyncio.timeout(teammate.COMMIT_MS / 1000):
                return await committed
        except TimeoutError:
            self._put("team.peerCancel", address.members())
            return False
        finally:
            self._teammates.withdraw(address)
            del self._commits[address]

    def _commit(self, address: Address, *, is_recorded: bool) -> None:
        is_in_time = self._teammates.commit(address, _now_ms())
        waiting = self._commits.get(address)
        if waiting is not None and not waiting.done():
            waiting.set_result(is_recorded and is_in_time)

    async def _begin(self, address: Address, params: dict[str, Any]) -> dict[str, Any]:
        if set(params) - {"alias", "capabilities"}:
            raise Refused("INVALID_PARAMS", "bind takes alias and capabilities")
        try:
            host = self._root.operations.root_actor
            asked = {**params, "run": address.target_run}
            begun = (await self._root.operations.call(host, "host.run_begin", asked)).result
        except BaseException:
            self._teammates.unbind(address)
            raise
        # The token stays here: the child's identity is its place in the host's own pipe.
        return {name: value for name, value in begun.items() if name != "token"}

    async def _end(self, address: Address) -> dict[str, Any]:
        open_tasks = []
        for request in self._teammates.open_requests(address):
            task = self._tasks.get(request.address)
            if task is None:
                continue
            if request.operation in _WAITS:
                task.cancel()
            open_tasks.append(task)
        if open_tasks:
            await asyncio.wait(open_tasks)
        host = self._root.operations.root_actor
        await self._root.operations.call(host, "host.run_end", {"run": address.target_run})
        return {}

    # --- small things -------------------------------------------------------------------------

    def _child(self, target_run: str) -> Peer:
        return Peer(self._root.operations.root_actor.peer.instance, target_run)

    def _operation(self, address: Address) -> str:
        return self._teammates.operation(address)

    def _refuse(self, address: Address, error: TielineError) -> None:
        self._put(
            "team.peerResult", {**address.members(), "error": {**error_data(error), "text": str(error)}}
        )


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)

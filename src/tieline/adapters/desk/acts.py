"""What a person does at the desk: write, reply, mark, let in, grant, cancel, recover, break a ring.

Rule 1: an act that is refused says its code, why, and what to do next; what was typed comes back.
Rule 2: a letter goes to the exact incarnation that was picked or answered, or to nobody.
Rule 3: looking is no act: nothing is marked as read but by the key that says so.

Source: reference/native.md 1N (129 to 131), 2.11, 2.13; reference/reliability.md I40.
"""

from collections.abc import Coroutine
from typing import Any

import msgspec
from textual.app import App
from textual.screen import Screen
from textual.widgets import Input

from tieline.adapters.desk.boxes import Answer, Reading
from tieline.adapters.desk.lines import Lines
from tieline.adapters.desk.memory import Memory
from tieline.adapters.desk.model import Model
from tieline.adapters.desk.past import exported
from tieline.adapters.desk.port import Port
from tieline.adapters.desk.waiting import way_of
from tieline.adapters.desk.words import Piece, Row, fit, named, safe
from tieline.adapters.desk.writing import Writer
from tieline.composer import Binding, Draft, Instruction, Letter, read
from tieline.errors import Refusal, TielineError, next_action

__all__ = ["Acts"]

PICKS_MAX = 50
SENT_WAIT_MS = 3_000
BREAKING = "You are in a ring of waits: {ring}. You can {way}. Please do, so that the others go on."


class Acts(App[int]):
    """The acts of the desk; the screen is in `app`."""

    port: Port
    model: Model
    memory: Memory
    is_question: bool
    pane: str
    _closed_pick: int | None = None
    _shown_text = ""

    writer: Writer

    @property
    def base(self) -> Screen[Any]:
        """The desk itself, also while a box is over it."""
        return self.screen_stack[0]

    @property
    def draft(self) -> Draft:
        """What is being typed."""
        return self.writer.draft

    def lines(self, part: str) -> Lines:
        """Return the list of a pane."""
        raise NotImplementedError

    def draw(self, part: str) -> None:
        """Draw one part."""
        raise NotImplementedError

    def action_pane(self, name: str) -> None:
        """Show a pane."""
        raise NotImplementedError

    def _frame(self) -> None:
        raise NotImplementedError

    def _is_old(self, part: str) -> None:
        raise NotImplementedError

    def act(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out an act; a refusal becomes one line."""

        async def carried_out() -> None:
            try:
                await work
            except TielineError as error:
                self.model.fail(error)

        self.run_worker(carried_out(), group="acts", exit_on_error=False)

    # ------------------------------------------------------------ writing

    def action_write(self) -> None:
        """Go to the composer; in an empty one the list of recipients opens."""
        writer = self.writer
        self.base.set_focus(writer)
        if not writer.draft.text and writer.draft.to is None:
            self._closed_pick = None
            writer.insert(":")

    def write_to(self, peer: Binding, *, reply_to: str | None = None, text: str | None = None) -> None:
        """Address the draft to an exact peer; its text stays unless another is given."""
        writer = self.writer
        draft = msgspec.structs.replace(writer.draft, to=peer, reply_to=reply_to)
        if text is not None:
            draft = msgspec.structs.replace(draft, text=text, cursor=len(text), bindings=(), pasted=())
        elif draft.text == ":":
            draft = msgspec.structs.replace(draft, text="", cursor=0)
        writer.load(draft)
        self.base.set_focus(writer)
        self._frame()

    def action_question(self) -> None:
        """Let the next letter be a question, or not."""
        self.is_question = not self.is_question
        self._frame()

    def on_writer_drafted(self) -> None:
        """Open, change or close the list of recipients, as the draft is now."""
        writer, picker = self.writer, self.base.query_one("#picker", Lines)
        draft = writer.draft
        if draft.text != self._shown_text:
            self._shown_text = draft.text
            self.memory.edited()
        place = draft.picking() if draft.to is None and writer.has_focus else None
        if place is None or place.start != self._closed_pick:
            self._closed_pick = None
        picks = (
            []
            if place is None or self._closed_pick is not None
            else self.model.agents.picks(place.alias, PICKS_MAX)
        )
        writer.is_picking = bool(picks)
        picker.set_class(bool(picks), "open")
        if picks:
            found = {str(one["peerId"]): one for one in picks}
            picker.show(list(found), lambda peer: _pick_row(found[peer], self.size.width - 1))
        self._frame()

    def on_writer_picking(self, event: Writer.Picking) -> None:
        """Move in the list of recipients, take one, or close it."""
        picker, writer = self.base.query_one("#picker", Lines), self.writer
        place = writer.draft.picking()
        if event.key in ("up", "down"):
            picker.action_step(-1 if event.key == "up" else 1)
        elif event.key == "take" and place is not None and picker.key is not None:
            peer = self.model.agents.binding(picker.key)
            if peer is not None:
                writer.load(writer.draft.picked(place, peer))
        elif place is not None:
            self._closed_pick = place.start
            writer.is_picking = False
            picker.set_class(False, "open")

    def on_writer_recalling(self, event: Writer.Recalling) -> None:
        """Show what was sent before, or what was being typed."""
        writer = self.writer
        found = self.memory.recall(writer.draft, event.step)
        if found is not None:
            self._shown_text = found.text
            writer.load(msgspec.structs.replace(found, cursor=len(found.text)))

    def on_writer_left(self) -> None:
        """Give the keys back to the pane; the draft stays."""
        self.base.set_focus(self.lines(self.pane))
        self.base.query_one("#picker", Lines).set_class(False, "open")
        self._frame()

    def forget_target(self) -> None:
        """Let the draft be to nobody again; its text stays."""
        writer = self.writer
        self.is_question = False
        writer.load(msgspec.structs.replace(writer.draft, to=None, reply_to=None))

    def on_writer_submitted(self) -> None:
        """Send the letter that the draft is; say why it is none."""
        writer = self.writer
        draft = writer.draft
        if not draft.text.strip():
            return
        if draft.reply_to is not None and draft.to is not None:
            self._send(draft, draft.to.peer_id, draft.to.alias, draft.text.strip())
            return
        meant = read(draft, self.model.agents.known())
        if isinstance(meant, Letter):
            self._send(draft, meant.to.peer_id, meant.to.alias, meant.content)
        elif isinstance(meant, Instruction):
            named = ", ".join(":" + one.alias for one in meant.references)
            about = f" It names {named}; they were told nothing." if named else ""
            self.model.say(f"This is for nobody: begin it with :name, on one line.{about}")
        else:
            self._refused(draft, meant)

    def _refused(self, draft: Draft, refusal: Refusal) -> None:
        self.model.say(f"{refusal.code}: {refusal.text}. Next: {next_action(refusal.code)}.")
        if refusal.code != "PEER_OFFLINE":
            return
        writer = self.writer
        if draft.to is not None:
            self.forget_target()
            return
        there = {one.peer_id: one for one in self.model.agents.known()}
        for mention, picked in draft.bound():
            if picked is not None and picked.peer_id not in there:
                left = tuple(one for one in draft.bindings if one != picked)
                self._closed_pick = None
                writer.load(msgspec.structs.replace(draft, bindings=left, cursor=mention.end))
                return

    def _send(self, draft: Draft, peer_id: str, alias: str, content: str) -> None:
        writer, is_question = self.writer, self.is_question
        self.memory.sent_now(draft)
        self.is_question = False
        writer.load(Draft())
        if draft.to is not None:  # begun by a key of the pane: the next one is the pane's again
            self.on_writer_left()

        async def send() -> None:
            try:
                told = await self.port.call(
                    "local.send", to=peer_id, content=content, replyTo=draft.reply_to,
                    scope=draft.scope or "all", ask=True if is_question else None, waitMs=SENT_WAIT_MS,
                )  # fmt: skip
            except TielineError as error:
                self.model.fail(error)
                self._give_back(draft)
                return
            self._is_old("talk")
            for failed in told["errors"]:
                self.model.say(f"{failed['code']}: {failed['text']}. Next: {failed['action']}.")
                self._give_back(draft)
            for receipt in told["receipts"]:
                self.model.say(f"To {named(alias)}: {receipt['state']}. {receipt['text']}")

        self.run_worker(send(), group="acts", exit_on_error=False)

    def _give_back(self, draft: Draft) -> None:
        writer = self.writer
        if not writer.draft.text:
            writer.load(draft)

    # ------------------------------------------------------------ conversations

    def _thread(self) -> Any:
        chain = self.lines("talk").key if self.pane == "talk" else None
        return None if chain is None else self.model.talk.threads.get(chain)

    def action_reply(self) -> None:
        """Answer the conversation under the cursor: its oldest open question, else its newest message."""
        thread = self._thread()
        message = None if thread is None else thread.answerable()
        if message is None:
            return
        sender = str(message["from"])
        alias = self.model.agents.alias(sender, str(message.get("fromAlias") or ""))
        known = self.model.agents.binding(sender)
        peer = known or Binding(alias, 0, 0, sender, str(message.get("fromInstance") or ""))
        self.write_to(peer, reply_to=str(message["messageId"]))

    def action_mark(self) -> None:
        """Mark what is unread in the conversation as read: its senders are told so."""
        thread = self._thread()
        if thread is None:
            return

        async def mark() -> None:
            unread = thread.unread()
            for message in unread:
                given = {"messageId": message["messageId"], "from": message["from"]}
                await self.port.call("peer_messages", **given)
            self.model.say(f"marked as read: {len(unread)}")
            self._is_old("talk")

        self.act(mark())

    def action_consent(self, is_accepted: bool) -> None:  # noqa: FBT001 - an action's parameter
        """Let the held message in, or send it away."""
        thread = self._thread()
        message = None if thread is None else thread.held()
        if message is None:
            return

        async def consent() -> None:
            await self.port.call("local.consent", messageId=message["messageId"], accept=is_accepted)
            self.model.say("let in" if is_accepted else "sent away; its sender is told")
            self._is_old("talk")

        self.act(consent())

    def action_talk(self) -> None:
        """Show the newest conversation with the agent under the cursor."""
        peer = self.lines("agents").key if self.pane == "agents" else None
        chain = None if peer is None else self.model.talk.with_peer(str(peer))
        if chain is None:
            self.model.say("nothing was said with it yet; Enter writes to it")
            return
        self.action_pane("talk")
        self.lines("talk").go(chain)

    def action_last(self) -> None:
        """Show the last finished answer of the agent under the cursor, without waking it."""
        peer = self.lines("agents").key if self.pane == "agents" else None
        if peer is None:
            return

        async def last() -> None:
            told = await self.port.call("local.last", to=str(peer))
            name = safe(self.model.agents.alias(str(peer)))
            if told.get("entry") is None:
                self.model.say(f":{name} has finished no answer yet")
            else:
                self.push_screen(Reading(f"The last finished answer of :{name}", str(told.get("text") or "")))

        self.act(last())

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        """Enter on a row."""
        where, key = event.lines.id, event.lines.key
        if where == "agents-list":
            peer = self.model.agents.binding(str(key))
            if peer is not None and self.model.agents.is_there(str(key)):
                self.write_to(peer)
            elif peer is not None:
                self.model.say("it has ended; what it left is under Talk and Timeline")
        elif where in ("talk-list", "timeline-list"):
            self.base.set_focus(self.base.query_one(f"#{self.pane}-view", Lines))
        elif where == "waits-list":
            self.action_free()
        elif where == "picker":
            self.on_writer_picking(Writer.Picking("take"))

    # ------------------------------------------------------------ searching

    def action_search(self) -> None:
        """Filter the agents, or search what happened."""
        if self.pane == "agents":
            field = self.base.query_one("#agents-filter", Input)
            field.add_class("open")
            self.base.set_focus(field)
            return
        if self.pane != "timeline":
            self.action_pane("timeline")
        self.base.set_focus(self.base.query_one("#timeline-search", Input))

    def close_filter(self) -> None:
        """Show all agents again."""
        field = self.base.query_one("#agents-filter", Input)
        field.value = ""
        field.remove_class("open")
        self.base.set_focus(self.lines("agents"))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        if event.input.id == "agents-filter":
            self.model.agents.filter = event.value
            self.draw("agents")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, or go on in what was filtered."""
        if event.input.id == "timeline-search":
            self.model.searched = event.value
            self._is_old("timeline")
        if event.input.id in ("agents-filter", "timeline-search"):
            self.base.set_focus(self.lines(self.pane))

    def action_export(self) -> None:
        """Write what the timeline shows as JSON lines."""
        if self.pane != "timeline":
            return

        async def export() -> None:
            page = self.model.page
            path = await self.port.export(f"timeline-{self.port.now_ms()}.jsonl", exported(page))
            said = (
                f"{len(page.entries)} lines are in {path}"
                if path
                else "PERMISSION_DENIED: it was not written"
            )
            self.model.say(said)

        self.act(export())

    # ------------------------------------------------------------ resources and rings

    def _resource_key(self) -> tuple[str, ...] | None:
        return self.lines("resources").key if self.pane == "resources" else None

    def _ticket(self) -> str | None:
        """Return the request under the cursor, or the first that waits for the resource under it."""
        key = self._resource_key()
        if key is None or key[0] == "none":
            return None
        if key[0] == "ticket":
            return key[2]
        shape = next((one for one in self.model.resources if one["resource"] == key[1]), {})
        queue = shape.get("queue") or ()
        return str(queue[0]["requestId"]) if queue else None

    def _operate(self, operation: str, request: str | None, done: str) -> None:
        if request is None:
            self.model.say("nobody waits for the resource under the cursor")
            return

        async def operate() -> None:
            told = await self.port.call("coordinate_resource", operation=operation, requestId=request)
            self.model.say(str(told.get("text") or done))
            self._is_old("resources")
            self._is_old("waits")

        self.act(operate())

    def action_grant(self) -> None:
        """Grant the request under the cursor, where this root is the controller."""
        if self.pane == "resources":
            self._operate("grant", self._ticket(), "granted")

    def action_cancel(self) -> None:
        """Cancel the request under the cursor, where it is this root's."""
        if self.pane == "resources":
            self._operate("cancel_request", self._ticket(), "cancelled")

    def action_recover(self) -> None:
        """Answer for the command under the cursor: its evidence is shown, and its launch id typed."""
        key = self._resource_key()
        if key is None or key[0] != "launch":
            if self.pane == "resources":
                self.model.say("put the cursor on a holder or a blocker")
            return
        resource, launch = key[1], key[2]

        async def ask() -> None:
            facts = await self.port.evidence(resource, launch)
            title = f"Answer for a command of {safe(resource)}"
            self.push_screen(
                Answer(title, facts, launch), lambda said: self._recovered(resource, launch, said)
            )

        self.act(ask())

    def _recovered(self, resource: str, launch: str, said: str | None) -> None:
        if said is None:
            self.model.say("nothing was changed")
            return

        async def recover() -> None:
            evidence = "a person looked at the evidence at the desk and answers for it"
            await self.port.recover(resource, launch, evidence)
            self.model.say(f"recovered {safe(resource)}; its history says who answered")
            self._is_old("resources")

        self.act(recover())

    def action_free(self) -> None:
        """Break the ring under the cursor: do what this root can, or write to whom can."""
        found = way_of(self.model.waits, self.lines("waits").key) if self.pane == "waits" else None
        if found is None:
            if self.pane == "waits":
                self.model.say("put the cursor on a ring")
            return
        ring, way = found
        if way["peer"] != self.model.who["peerId"]:
            peer = self.model.agents.binding(str(way["peer"]))
            if peer is None:
                self.model.say(f"whoever can break it is not seen from here: {way['text']}")
                return
            self.write_to(peer, text=BREAKING.format(ring=safe(ring["text"]), way=safe(way["text"])))
        elif way["act"] == "cancel":
            self._operate("cancel_request", way.get("request"), "cancelled")
        elif way["act"] == "answer":
            self._answer(str(way.get("subject") or ""))
        else:
            self.model.say(f"you can {way['text']}")

    def _answer(self, message_id: str) -> None:
        talk = self.model.talk
        for chain, thread in talk.threads.items():
            if any(one["messageId"] == message_id for one in thread.messages.values()):
                self.action_pane("talk")
                self.lines("talk").go(chain)
                self.action_reply()
                return
        self.model.say("that question is not here any more")


def _pick_row(peer: dict[str, Any], width: int) -> Row:
    """Return one peer of the list of recipients, with what tells it from another of its name."""
    maker = " ".join(str(peer[part]) for part in ("harness", "model") if peer.get(part))
    said = f"{maker}, {peer.get('project') or ''}, {'busy' if peer.get('busy') else 'idle'}"
    return (
        Piece(fit(" :" + str(peer.get("alias") or ""), 22), "strong"),
        Piece(fit(said, max(10, width - 22 - 15)) + " ", ""),
        Piece(fit(str(peer["peerId"])[5:17], 14), "weak"),
    )

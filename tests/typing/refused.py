"""What a caller may not do: each is an error of `mypy --strict`, and one that passes is an error, too."""

from tieline import Message, Peer, Receipt, Root, Scope, State


async def root_is_opened_with_names_and_awaited() -> None:
    """Options have names and types; opening and closing are awaited."""
    Root.open().peers()  # type: ignore[attr-defined]
    await Root.open("alias")  # type: ignore[call-arg]
    await Root.open(alias=1)  # type: ignore[arg-type]
    await Root.open(aliases="x")  # type: ignore[call-arg]
    with await Root.open():  # type: ignore[attr-defined]
        pass


async def root_takes_texts_and_seconds(opened: Root) -> None:
    """A target and a text; times are numbers of seconds, options have names."""
    await opened.send("builder")  # type: ignore[call-arg]
    await opened.send("builder", b"bytes")  # type: ignore[arg-type]
    await opened.send("builder", "x", "topic")  # type: ignore[call-arg]
    await opened.send(["a", "b"], "x")  # type: ignore[arg-type]
    await opened.ask("builder", "x", timeout_s="60")  # type: ignore[arg-type]
    await opened.inbox(True)  # type: ignore[call-arg]


async def answer_may_be_none(opened: Root) -> str:
    """An ask without a look at None does not pass."""
    reply = await opened.ask("builder", "x")
    return reply.content  # type: ignore[union-attr]


def values_do_not_change(message: Message, peer: Peer, receipt: Receipt) -> None:
    """What was received is a value."""
    message.content = "other"  # type: ignore[misc]
    peer.instance = "other"  # type: ignore[misc]
    receipt.state = State.CONSUMED  # type: ignore[misc]


def words_are_closed_sets(state: State) -> Scope:
    """A text is no scope and no state, and a state is no scope."""
    state = "consumed"  # type: ignore[assignment]
    if not state:
        return State.CONSUMED  # type: ignore[return-value]
    return "machine"  # type: ignore[return-value]

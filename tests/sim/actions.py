"""What each kind of step does to the world.

Rule 1: a step resolves its numbers against whoever lives now; where nobody fits it does nothing.
Rule 2: one function a kind, in the table `ACTIONS`.

Source: reference/reliability.md 2.3.
"""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.disk import Disk, FakeDisk, RealDisk
from tests.sim.plan import FAULTS, Step, hostile_act
from tests.sim.root import SimRoot
from tieline.config import Limits, Scope
from tieline.engine import directory
from tieline.engine.contract import Act, Row
from tieline.engine.directory import Place
from tieline.engine.messaging import Messaging
from tieline.errors import Refusal
from tieline.model.identity import Peer
from tieline.store import recovery

if TYPE_CHECKING:
    from tests.sim.world import SimWorld

__all__ = ["ACTIONS", "act", "recover"]

TEXTS = ("hello", "a longer text with ünïcode ☂ and\nlines", "x" * 900, "y" * 8_000, "z" * 8_001)
EXPIRIES_MS = (None, None, None, 1_000, 5_000, 60_000)


def act(world: "SimWorld", step: Step) -> None:
    """Let one step happen."""
    if step.kind in FAULTS:
        world.count_fault(step.kind)
    ACTIONS[step.kind](world, step)


def _root(world: "SimWorld", number: int) -> SimRoot | None:
    """Return a living root that runs, or None."""
    living = [root for root in world.living() if not world.clock.is_stopped(root.name)]
    return living[number % len(living)] if living else None


def _target(world: "SimWorld", root: SimRoot, number: int) -> Peer:
    """Return whom to write to: mostly somebody else who lives, sometimes the dead, runs, or oneself."""
    peers = [peer for other in world.living() if other is not root for peer in other.peers()]
    if world.hostile is not None and number % 7 == 0:
        return world.hostile.peer
    if world.dead and number % 11 == 0:
        return world.dead[-1].peer
    if number % 13 == 0 or not peers:
        own = root.peers()
        return own[number % len(own)]
    return peers[number % len(peers)]


def _say(world: "SimWorld", step: Step, act_of: Act = Act.PERSON, *, is_ask: bool = False) -> None:
    root = _root(world, step.a)
    if root is None:
        return
    senders = root.peers()
    sender = senders[step.n % len(senders)]
    recipient = _target(world, root, step.b)
    _post(world, root, sender, recipient, step, act_of, is_ask=is_ask)


def _post(
    world: "SimWorld", root: SimRoot, sender: Peer, recipient: Peer, step: Step, act_of: Act, *, is_ask: bool
) -> None:
    number = world.next_call()
    message = f"m-{number}" if step.n % 17 else "m-same"  # two senders may use one id
    text = f"{TEXTS[step.n % len(TEXTS)]}"
    content = text if len(text) > 1_000 else f"{number}:{text}"
    topic = None if step.n % 3 else f"topic-{step.n % 5}"
    world.messages.append((message, sender, recipient, content, topic))
    root.say(
        sender,
        recipient,
        message,
        content,
        act=act_of,
        topic=topic,
        is_ask=is_ask,
        expiry_ms=EXPIRIES_MS[step.b % len(EXPIRIES_MS)],
    )


def _again(world: "SimWorld", step: Step, *, is_changed: bool) -> None:
    """Send a former message once more, as it was or changed."""
    root = _root(world, step.a)
    if root is None:
        return
    mine = [one for one in world.messages if one[1].instance == root.name]
    if mine:
        message, sender, recipient, content, topic = mine[step.b % len(mine)]
        root.say(sender, recipient, message, content + "!" if is_changed else content, topic=topic)


def _burst(world: "SimWorld", step: Step) -> None:
    root = _root(world, step.a)
    if root is not None:
        recipient = _target(world, root, step.b)
        for place in range(3 + step.n % 40):
            _post(world, root, root.peer, recipient, step._replace(n=place * 5 + 1), Act.PERSON, is_ask=False)


def _cross_asks(world: "SimWorld", step: Step) -> None:
    """Two roots ask each other at once."""
    living = [root for root in world.living() if not world.clock.is_stopped(root.name)]
    if len(living) >= 2:
        one = living[step.a % len(living)]
        two = [root for root in living if root is not one][step.b % (len(living) - 1)]
        _post(world, one, one.peer, two.peer, step._replace(n=3), Act.PERSON, is_ask=True)
        _post(world, two, two.peer, one.peer, step._replace(n=3), Act.PERSON, is_ask=True)


def _reply(world: "SimWorld", step: Step) -> None:
    """Answer something received, or something that was not."""
    root = _root(world, step.a)
    if root is None:
        return
    owners = root.peers()
    owner = owners[step.n % len(owners)]
    found = root.engine.held(owner, unread_only=False, count_max=50)
    number = world.next_call()
    if found:
        envelope = found[step.b % len(found)].envelope
        act_of = Act.AGENT if step.n % 3 == 0 else Act.PERSON
        message, recipient, reply_to = f"m-{number}", envelope.sender, envelope.message_id
        if step.n % 19 == 0:
            reply_to = world.any_message(world.chance)
        world.messages.append((message, owner, recipient, f"re {number}", None))
        root.say(owner, recipient, message, f"re {number}", act=act_of, reply_to=reply_to)


def _expose(world: "SimWorld", step: Step, fate: str) -> None:
    root = _root(world, step.a)
    if root is not None:
        owners = root.peers()
        root.expose(owners[step.n % len(owners)], fate=fate)


def _finish(world: "SimWorld", step: Step, *, is_taken: bool) -> None:
    root = _root(world, step.a)
    if root is not None:
        root.finish(step.b, is_taken=is_taken)


def _with_root(do: Callable[["SimWorld", SimRoot, Step], None]) -> Callable[["SimWorld", Step], None]:
    """Return an action that needs a running root."""

    def action(world: "SimWorld", step: Step) -> None:
        root = _root(world, step.a)
        if root is not None:
            do(world, root, step)

    return action


def _mute(world: "SimWorld", root: SimRoot, step: Step) -> None:
    root.mute(world.any_peer(world.chance).id, is_muted=step.b % 2 == 0)


def _page(world: "SimWorld", root: SimRoot, step: Step) -> None:
    owners = root.peers()
    after = step.b % (root.engine.latest_cursor + 2) if step.b % 3 else 0
    root.read_page(owners[step.n % len(owners)], after, (1, 3, 1_000)[step.n % 3])


def _list(world: "SimWorld", root: SimRoot, step: Step) -> None:
    for owner in root.peers():
        root.read_list(owner)


def _resolve(world: "SimWorld", root: SimRoot, step: Step) -> None:
    """Ask what a name means."""
    roots = world.directory_roots(root)
    place = Place("/work", "", Scope.WORKSPACE)
    ids = [Peer(one.instance).id for one in roots]
    named = ids[step.n % len(ids)] if ids else "peer-0"
    target = ("agent-0", "agent-1", named, named[:12], "agent", "")[step.b % 6]
    answer = directory.resolve(place, roots, target)
    root.note(
        "resolve",
        target=target,
        bearers=[[Peer(one.instance).id, one.alias] for one in roots],
        chosen=None if isinstance(answer, Refusal) else answer.peer.id,
        code=answer.code if isinstance(answer, Refusal) else "",
    )


def _directory(world: "SimWorld", root: SimRoot, step: Step) -> None:
    """Read the whole directory, page by page."""
    roots = world.directory_roots(root)
    place = Place("/work", "", Scope.WORKSPACE)
    pages: list[list[str]] = []
    cursor: str | None = None
    size = 1 + step.n % 3
    while len(pages) < 20:
        page = directory.listing(place, roots, scope=Scope.WORKSPACE, query="", cursor=cursor, page_size=size)
        if isinstance(page, Refusal):
            break
        pages.append([one.peer.id for one in page.peers])
        cursor = page.cursor
        if cursor is None:
            break
    root.note("directory", size=size, pages=pages, there=sorted(Peer(one.instance).id for one in roots))


# ------------------------------------------------------------ faults


def _crash(world: "SimWorld", step: Step) -> None:
    living = world.living()
    if living:
        root = living[step.a % len(living)]
        world.forget(root)
        root.crash()
        if step.b % 2:
            world.start(root.slot)


def _restart(world: "SimWorld", step: Step) -> None:
    """Start somebody where nobody is; nobody missing, kill one first."""
    empty = [slot for slot, root in enumerate(world.roots) if root is None]
    if not empty:
        _crash(world, step._replace(b=0))
        empty = [slot for slot, root in enumerate(world.roots) if root is None]
    if empty:
        world.start(empty[step.n % len(empty)])


def _close(world: "SimWorld", root: SimRoot, step: Step) -> None:
    if not root.driver.is_closed:
        root.close()


def _stop(world: "SimWorld", root: SimRoot, step: Step) -> None:
    world.clock.stop(root.name)
    world.clock.after((100, 3_000, 20_000)[step.b % 3], "", lambda: world.clock.go_on(root.name))


def _pair(world: "SimWorld", step: Step) -> tuple[str, str] | None:
    names = [root.name for root in world.living()] + (["evil-1"] if world.hostile else [])
    if len(names) < 2:
        return None
    one = names[step.a % len(names)]
    two = [name for name in names if name != one][step.b % (len(names) - 1)]
    return min(one, two), max(one, two)


def _part(world: "SimWorld", step: Step) -> None:
    pair = _pair(world, step)
    if pair is not None:
        world.network.weather.parted[pair] = world.clock.mono_ms + (500, 5_000, 60_000)[step.n % 3]
        world.network.cut(*pair)


def _swallow(world: "SimWorld", step: Step) -> None:
    pair = _pair(world, step)
    if pair is not None:
        world.network.swallow(*pair)


def _deaf(world: "SimWorld", root: SimRoot, step: Step) -> None:
    world.network.weather.deaf[root.name] = world.clock.mono_ms + (500, 5_000, 30_000)[step.b % 3]
    world.network.cut(root.name)


def _cut(world: "SimWorld", root: SimRoot, step: Step) -> None:
    world.network.cut(root.name)


def _slow_net(world: "SimWorld", step: Step) -> None:
    world.network.weather.delay_ms_max = (0, 5, 200, 1_500)[step.a % 4]


def _one_byte(world: "SimWorld", step: Step) -> None:
    weather = world.network.weather
    weather.piece_bytes_max = (1, 16, 200, 70_000)[step.a % 4 if weather.piece_bytes_max > 200 else 3]


def _disk_full(world: "SimWorld", root: SimRoot, step: Step) -> None:
    disk = root.disk
    disk.is_full = True

    def freed() -> None:
        disk.is_full = False

    world.clock.after((50, 2_000, 30_000)[step.b % 3], "", freed)


def _disk_doubt(world: "SimWorld", root: SimRoot, step: Step) -> None:
    root.disk.doubts = 1


def _disk_slow(world: "SimWorld", root: SimRoot, step: Step) -> None:
    root.disk.slow_ms = (0, 100, 3_000)[step.b % 3]


def _reopen_fails(world: "SimWorld", root: SimRoot, step: Step) -> None:
    if isinstance(root.disk, FakeDisk):
        root.disk.reopen_failures = 1 + step.b % 3
    root.disk.doubts = 1


def _wall_jump(world: "SimWorld", step: Step) -> None:
    year_ms = 31_557_600_000
    jumps = (3_600_000, -3_600_000, 10 * year_ms, -10 * year_ms, -world.clock.now().wall_ms, 60 * year_ms)
    world.clock.jump(jumps[step.a % len(jumps)])


def _hide(world: "SimWorld", root: SimRoot, step: Step) -> None:
    world.hide(root.name, (500, 20_000)[step.b % 2])


def _unproven(world: "SimWorld", step: Step) -> None:
    world.are_deaths_proven = step.a % 2 == 0


def _hostile(world: "SimWorld", root: SimRoot, step: Step) -> None:
    if world.hostile is not None:
        world.hostile.act(hostile_act(step), root)


def _sleep(world: "SimWorld", step: Step) -> None:
    world.clock.run_until(world.clock.mono_ms + (5_000, 130_000, 1_900_000)[step.a % 3])


def _duplicate(world: "SimWorld", root: SimRoot, step: Step) -> None:
    """Let a lost answer be asked for again at once: cut the lines right after a send left."""
    _say(world, step)
    world.clock.run_until(world.clock.mono_ms + step.b % 12)
    world.network.cut(root.name)


ACTIONS: dict[str, Callable[["SimWorld", Step], None]] = {
    "send": _say,
    "agent_send": lambda world, step: _say(world, step, Act.AGENT),
    "ask": lambda world, step: _say(world, step, is_ask=True),
    "cross_asks": _cross_asks,
    "reply": _reply,
    "again": lambda world, step: _again(world, step, is_changed=False),
    "changed": lambda world, step: _again(world, step, is_changed=True),
    "burst": _burst,
    "expose": lambda world, step: _expose(world, step, ""),
    "expose_taken": lambda world, step: _expose(world, step, "taken" if step.b % 5 else "untaken"),
    "taken": lambda world, step: _finish(world, step, is_taken=True),
    "untaken": lambda world, step: _finish(world, step, is_taken=False),
    "prompt": _with_root(lambda world, root, step: root.prompt(root.peer)),
    "begin_run": _with_root(lambda world, root, step: root.begin_run()),
    "end_run": _with_root(lambda world, root, step: root.end_run(step.b)),
    "mute": _with_root(_mute),
    "page": _with_root(_page),
    "list": _with_root(_list),
    "resolve": _with_root(_resolve),
    "directory": _with_root(_directory),
    "wait": lambda world, step: world.clock.run_until(world.clock.mono_ms + step.a % 3_000),
    "outbox": _with_root(lambda world, root, step: root.read_outbox()),
    "duplicate": _with_root(_duplicate),
    "crash": _crash,
    "restart": _restart,
    "close": _with_root(_close),
    "stop": _with_root(_stop),
    "part": _part,
    "swallow": _swallow,
    "deaf": _with_root(_deaf),
    "cut": _with_root(_cut),
    "slow_net": _slow_net,
    "one_byte": _one_byte,
    "disk_full": _with_root(_disk_full),
    "disk_doubt": _with_root(_disk_doubt),
    "disk_slow": _with_root(_disk_slow),
    "reopen_fails": _with_root(_reopen_fails),
    "wall_jump": _wall_jump,
    "hide": _with_root(_hide),
    "unproven": _unproven,
    "hostile": _with_root(_hostile),
    "sleep": _sleep,
}
"""Every kind of step."""


# ------------------------------------------------------------ a dead root's mail


def recover(world: "SimWorld", name: str, disk: Disk, rows: list[Row]) -> None:
    """Read a dead store twice, and note what it said."""
    said: list[str] = []
    for _ in range(2):
        if isinstance(disk, RealDisk):
            found = recovery.recover(disk.home, name)
            lines = [f"{one.cursor} {one.receipt}" for one in found.unread]
            lines += [f"{one.cursor} {one.receipt}" for one in found.sends]
        else:
            engine = Messaging(name, Limits(), idle_behavior="notify")
            engine.restore(rows, world.clock.now())
            lines = [repr(one) for one in engine.held(Peer(name), unread_only=False, count_max=10_000)]
            lines += [repr(one) for one in engine.outbox(Peer(name))]
        said.append(hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16])
    world.history.add(world.clock.mono_ms, name, "recovered", first=said[0], second=said[1])

"""What is measured on running roots, part by part.

Rule 1: a figure and the limit that it is compared with are taken round by round in turn, never in two
runs: a machine that slows down slows both.
Rule 2: a part begins its own processes and ends them, so that no part pays for another.
Rule 3: every message that was said to be accepted is looked for in the recipient's store on disk.

Source: DESIGN.md 7; reference/substrate.md, head and 1; reference/native.md 2.17, 204 to 206.
"""

import time
from typing import Any, Final, NamedTuple

from tieline.adapters.bench.crew import Crew, Member
from tieline.adapters.bench.figures import Figure

__all__ = ["Paths", "Plan", "Run", "parts"]

RUNS: Final = 32
SENDERS: Final = 8
WINDOW: Final = 32
MICROSECONDS: Final = "us"
RATE: Final = "messages/s"


class Plan(NamedTuple):
    """How much is measured."""

    peers: int
    size_bytes: int
    samples: int
    rounds: int
    seconds: float
    stored: int

    @property
    def per_round(self) -> int:
        """Samples of one round."""
        return max(1, self.samples // self.rounds)


class Paths(NamedTuple):
    """Where the limit is measured: sockets of the echo servers ("" for none), and a file's path."""

    echo: str
    python_echo: str
    file: str


class Run:
    """One run: its plan, its processes, its figures."""

    def __init__(self, plan: Plan, crew: Crew, paths: Paths) -> None:
        self.plan, self.crew, self.paths = plan, crew, paths
        self.figures: dict[str, Figure] = {}
        self.counts = {"accepted": 0, "lost": 0, "duplicates": 0}
        self.processes: list[dict[str, Any]] = []
        self.loop = ""

    def put(self, name: str, samples: list[float], unit: str = MICROSECONDS) -> None:
        """Keep the figure of samples, if there are any."""
        if samples:
            self.figures[name] = Figure.of(samples, unit)

    def settle(self, *recipients: Member) -> None:
        """Count in the recipients' stores what was said to be accepted there; end nobody."""
        for recipient in recipients:
            counts = recipient.do("stored")["counts"]
            wanted = self.crew.accepted.pop(recipient.instance, [])
            self.counts["accepted"] += len(wanted)
            self.counts["lost"] += sum(1 for message_id in wanted if not counts.get(message_id))
            self.counts["duplicates"] += sum(count - 1 for count in counts.values())

    def weigh(self, part: str, *members: Member) -> None:
        """Keep what processes use now."""
        for member in members:
            self.processes.append({"part": part, "process": member.name, **member.do("resources")})


def serial(run: Run) -> None:
    """One message after the other: over a held link, and as a whole send; the limit beside both."""
    plan, crew = run.plan, run.crew
    recipient, prober, sender = crew.start("recipient"), crew.start("prober"), crew.start("sender")
    run.loop = recipient.loop
    taken: dict[str, list[float]] = {
        name: [] for name in ("echoUs", "pythonEchoUs", "syncUs", "accept", "accept_cold", "send")
    }
    offer = {"instance": recipient.instance, "bytes": plan.size_bytes}
    limit = {"echo": run.paths.echo, "pythonEcho": run.paths.python_echo, "file": run.paths.file}
    send = {"to": recipient.peer_id, "bytes": plan.size_bytes}
    first = crew.note(recipient, sender.do("send", count=1, **send))
    run.put("send_cold", first["tookUs"])
    for _ in range(plan.rounds):
        opened = prober.do("hold", instance=recipient.instance)["tookUs"]
        cold = crew.note(recipient, prober.do("offer", count=1, **offer))["tookUs"][0]
        taken["accept_cold"].append(opened + cold)
        result = crew.note(recipient, prober.do("offer", count=plan.per_round, **offer, **limit))
        for name in ("echoUs", "pythonEchoUs", "syncUs"):
            taken[name] += result[name]
        taken["accept"] += result["tookUs"]
        taken["send"] += crew.note(recipient, sender.do("send", count=plan.per_round, **send))["tookUs"]
    echo = taken["echoUs"] or taken["pythonEchoUs"]
    run.put("echo_c", taken["echoUs"])
    run.put("echo_python", taken["pythonEchoUs"])
    run.put("synced_write", taken["syncUs"])
    # Both in order of size: the sum's median is the sum of the medians, and so are the tails.
    run.put("limit", [sum(pair) for pair in zip(sorted(echo), sorted(taken["syncUs"]), strict=True)])
    for name in ("accept", "accept_cold", "send"):
        run.put(name, taken[name])
    run.settle(recipient)
    run.weigh("serial", recipient, sender)
    crew.end(sender, prober, recipient)


def ring(run: Run) -> None:
    """Each root sends to the next: the first message over each route, then more; when its host has it."""
    plan, crew = run.plan, run.crew
    members = [crew.start(f"peer{number}") for number in range(plan.peers)]
    for member in members:
        member.do("read")
    routes = list(zip(members, members[1:] + members[:1], strict=True))
    cold: list[float] = []
    warm: list[float] = []
    told: list[float] = []
    read: list[float] = []
    for sender, recipient in routes:
        send = {"to": recipient.peer_id, "bytes": plan.size_bytes}
        cold += crew.note(recipient, sender.do("send", count=1, **send))["tookUs"]
        recipient.do("arrivals", count=1)
    count = max(4, plan.samples // plan.peers)
    for sender, recipient in routes:
        send = {"to": recipient.peer_id, "bytes": plan.size_bytes}
        result = crew.note(recipient, sender.do("send", count=count, **send))
        warm += result["tookUs"]
        arrived = recipient.do("arrivals", count=len(result["accepted"]))
        told += arrived["toldUs"]
        read += arrived["readUs"]
    run.put("ring_cold", cold)
    run.put("ring_warm", warm)
    run.put("inbox_told", told)
    run.put("inbox_read", read)
    run.settle(*members)
    run.weigh("ring", members[0])
    crew.end(*members)


def throughput(run: Run) -> None:
    """How many a second: one route, one link with many under way, eight senders."""
    plan, crew = run.plan, run.crew
    recipient, prober = crew.start("recipient"), crew.start("prober")
    senders = [crew.start(f"sender{number}") for number in range(SENDERS)]
    flood = {"bytes": plan.size_bytes, "seconds": plan.seconds}
    one = crew.note(recipient, senders[0].do("flood", targets=[recipient.peer_id], **flood))
    run.put("rate_one_sender", [len(one["accepted"]) / one["seconds"]], RATE)
    many = crew.note(recipient, senders[0].do("flood", targets=[recipient.peer_id] * WINDOW, **flood))
    run.put("rate_one_route_pipelined", [len(many["accepted"]) / many["seconds"]], RATE)
    for sender in senders:
        sender.begin("flood", targets=[recipient.peer_id], **flood)
    results = [crew.note(recipient, sender.finish()) for sender in senders]
    run.put("rate_8_senders", [sum(len(one["accepted"]) / one["seconds"] for one in results)], RATE)
    prober.do("hold", instance=recipient.instance)
    fill = {"instance": recipient.instance, "bytes": plan.size_bytes, "window": WINDOW}
    filled = crew.note(recipient, prober.do("fill", count=max(500, 10 * plan.samples), **fill))
    run.put("rate_one_link_pipelined", [len(filled["accepted"]) / filled["seconds"]], RATE)
    run.settle(recipient)
    run.weigh("throughput", recipient, senders[0])
    crew.end(*senders, prober, recipient)


def routes(run: Run) -> None:
    """One root to 32 runs of another, against one after the other; a bystander pings meanwhile."""
    plan, crew = run.plan, run.crew
    recipient, sender, bystander = crew.start("recipient"), crew.start("sender"), crew.start("bystander")
    loader = crew.start("loader")
    runs = recipient.do("begin_runs", count=RUNS)["peerIds"]
    bystander.do("hold", instance=recipient.instance)
    loader.do("hold", instance=recipient.instance)
    flood = {"bytes": plan.size_bytes, "seconds": plan.seconds / 2}
    ping = {"seconds": plan.seconds / 2 - 0.1, "pauseMs": 2}
    rates: dict[str, list[float]] = {"routes_serial_rate": [], "routes_32_rate": []}
    pings: dict[str, list[float]] = {"ping_idle": [], "ping_no_store": [], "ping_at_routes": []}
    crew.note(
        recipient, sender.do("flood", targets=[recipient.peer_id, *runs], bytes=plan.size_bytes, seconds=0.3)
    )
    for _ in range(max(2, plan.rounds // 3)):
        one = crew.note(recipient, sender.do("flood", targets=[recipient.peer_id], **flood))
        rates["routes_serial_rate"].append(len(one["accepted"]) / one["seconds"])
        sender.begin("flood", targets=runs, **flood)
        time.sleep(0.05)
        pings["ping_at_routes"] += bystander.do("ping", **ping)["tookUs"]
        many = crew.note(recipient, sender.finish())
        rates["routes_32_rate"].append(len(many["accepted"]) / many["seconds"])
        pings["ping_idle"] += bystander.do("ping", **ping)["tookUs"]
        loader.begin("ping_flood", seconds=plan.seconds / 2, window=RUNS)
        time.sleep(0.05)
        pings["ping_no_store"] += bystander.do("ping", **ping)["tookUs"]
        loader.finish()
    for name, samples in rates.items():
        run.put(name, samples, RATE)
    for name, samples in pings.items():
        run.put(name, samples)
    run.settle(recipient)
    run.weigh("routes", recipient, sender)
    crew.end(loader, bystander, sender, recipient)


def history(run: Run) -> None:
    """The same acceptance with much stored and with little, in turn."""
    plan, crew = run.plan, run.crew
    little, much, prober = crew.start("little"), crew.start("much"), crew.start("prober")
    other = crew.start("other")
    for recipient, holder, count in ((little, other, 100), (much, prober, plan.stored)):
        holder.do("hold", instance=recipient.instance)
        left = count
        while left:
            now = min(left, 10_000)
            fill = {"instance": recipient.instance, "bytes": plan.size_bytes, "window": 256}
            crew.note(recipient, holder.do("fill", count=now, **fill))
            left -= now
    taken: dict[str, list[float]] = {"accept_little_stored": [], "accept_much_stored": []}
    cells = (("accept_little_stored", little, other), ("accept_much_stored", much, prober))
    for number in range(plan.rounds):
        for name, recipient, holder in cells if number % 2 else cells[::-1]:
            offer = {"instance": recipient.instance, "bytes": plan.size_bytes, "count": plan.per_round}
            taken[name] += crew.note(recipient, holder.do("offer", **offer))["tookUs"]
    for name, samples in taken.items():
        run.put(name, samples)
    run.weigh("history", little, much)
    run.settle(little, much)
    crew.end(other, prober, much, little)


def defaults(run: Run) -> None:
    """One row with the limits that everybody has: a burst of as many as is allowed at once."""
    plan, crew = run.plan, run.crew
    size_bytes = min(plan.size_bytes, 8_000)
    recipient, sender = crew.start("recipient", is_default=True), crew.start("sender", is_default=True)
    result = crew.note(recipient, sender.do("send", to=recipient.peer_id, bytes=size_bytes, count=20))
    run.put("send_at_defaults", result["tookUs"][1:])
    run.settle(recipient)
    crew.end(sender, recipient)


def parts() -> tuple[tuple[str, Any], ...]:
    """Return the parts in their order: (name, what measures it)."""
    return (
        ("serial", serial),
        ("ring", ring),
        ("throughput", throughput),
        ("routes", routes),
        ("history", history),
        ("defaults", defaults),
    )

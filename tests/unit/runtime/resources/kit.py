"""What the tests of the resources' rooms share: who claims, and the steps of a launch."""

from collections.abc import Mapping

from tieline.engine import coordination
from tieline.engine.coordination import Begin, Claim, Started
from tieline.errors import Refusal
from tieline.model.identity import Peer, Principal
from tieline.model.process import ProcessIdentity
from tieline.model.resource import Claimant, Document, Launch, Ledger, ResourceKey
from tieline.runtime.resources.coordinator import Coordinator
from tieline.shell.process import self_identity

KEY = ResourceKey("machine/build")
OTHER = ResourceKey("machine/database")
NONCE = "n" * 32


def principal(name: str, *capabilities: str) -> Principal:
    """Return a root of this name, which may request resources."""
    return Principal(Peer(name), frozenset({"resource.request", *capabilities}), alias=name)


def claimant(name: str, owner: ProcessIdentity | None = None) -> Claimant:
    """Return it as a claimant whose root and waiter are this process, or `owner`."""
    life = owner or self_identity()
    return Claimant(Peer(name).id, name, name, life, waiter=life)


def claim(coordinator: Coordinator, name: str, *keys: ResourceKey) -> None:
    """Claim these as a command of its own and let what is free be granted."""
    command = Claim(
        principal(name), claimant(name), f"launch-{name}", "digest", "make", "build", f"request-{name}"
    )
    coordinator.decide(keys, command)
    coordinator.observe(keys, principal(name))


def begin(
    coordinator: Coordinator,
    name: str,
    fence: int,
    supervisor: ProcessIdentity | None = None,
    key: ResourceKey = KEY,
) -> None:
    """Use the right and enter the ledger."""
    owner = claimant(name)
    launch = Launch(
        f"launch-{name}", NONCE, "digest", "make", "folder", owner, 1, owner.owner.boot_id,
        resources=((key, fence),), supervisor=supervisor,
    )  # fmt: skip

    def change(ledger: Ledger, documents: Mapping[ResourceKey, Document]) -> Ledger | Refusal:
        return coordination.admit(ledger, launch, documents)

    command = Begin(principal(name), f"launch-{name}", NONCE, "digest", {key: fence}, supervisor)
    coordinator.decide([key], command, change=change)


def start(coordinator: Coordinator, name: str, fence: int, process: ProcessIdentity) -> None:
    """Publish what was started."""

    def change(ledger: Ledger, _documents: object) -> Ledger | Refusal:
        return coordination.identify_launch(ledger, f"launch-{name}", NONCE, (process,), "group")

    command = Started(f"launch-{name}", NONCE, {KEY: fence}, (process,), "group")
    coordinator.decide([KEY], command, change=change)

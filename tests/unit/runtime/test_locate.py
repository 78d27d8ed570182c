"""Which root is meant: every rule, their order, and what is never guessed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tieline.errors import Refused, UsageError
from tieline.runtime import locate
from tieline.runtime.locate import Ambiguous, Found, NoRoot, ancestors, find_root, here, places, survey

ONE = "11111111-1111-4111-8111-111111111111"
TWO = "22222222-2222-4222-8222-222222222222"


def life(pid: int | None = None, **changes: object) -> dict[str, Any]:
    """Return the identity of a process in the form of an owner file; of this one by default."""
    number = os.getpid() if pid is None else pid
    fields = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")[2].split()
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "pid_namespace": os.stat("/proc/self/ns/pid").st_ino,
        "pid": number,
        "start_ticks": int(fields[19]),
        "pidfd_inode": None,
        "platform": "linux",
        **changes,
    }


STRANGER = {"start_ticks": 1, "pid": 1}
"""A host that is nobody's ancestor: the first process did not start at tick 1 of this boot."""


@pytest.fixture
def home(private_home: Path) -> Path:
    """A home with the two shared folders."""
    for name in ("peer-runtime", "active-agents", "peer-messages"):
        (private_home / name).mkdir(mode=0o700)
    return private_home


@pytest.fixture
def sleeper() -> Any:
    """A live process that is nobody's ancestor."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def put(path: Path, document: object) -> None:
    """Write a private file."""
    path.write_text(json.dumps(document))
    path.chmod(0o600)


def own(
    home: Path,
    instance: str,
    owner: dict[str, Any],
    *,
    host: dict[str, Any] | None = None,
    workspace: str = "",
    session: str = "",
) -> None:
    """Write the owner file of a root, and its presence where it has a workspace."""
    control = f"/c/{instance}.control"
    record = {
        "version": 1,
        "instance": instance,
        "owner": owner,
        "host": host,
        "sockets": {".control": control},
    }
    put(home / "peer-runtime" / f"{instance}.owner", record)
    if workspace or session:
        extension = {"instanceId": instance, "alias": "a-" + instance[:4]}
        presence = {"sessionId": session, "workspaceRoot": workspace, "communication": extension}
        put(home / "active-agents" / f"s.{instance}.json", presence)


def find(
    home: Path, *, may_change: bool = True, environment: dict[str, str] | None = None, **more: Any
) -> Found:
    """Ask for the root, with nothing in the environment by default."""
    return find_root(str(home), str(home), environment=environment or {}, may_change=may_change, **more)


def test_ancestors_of_this_process_begin_with_its_parent() -> None:
    """Ancestors are told apart by number and start, nearest first."""
    found = ancestors()
    assert found[0].pid == os.getppid()
    assert found[0].start_ticks == life(os.getppid())["start_ticks"]


@pytest.mark.clause("I47")
def test_find_hosted_command_gets_the_root_of_its_host(home: Path, sleeper: int) -> None:
    """A command below a host finds that host's root, though others run."""
    own(home, ONE, life(sleeper), host=life(os.getppid()))
    own(home, TWO, life(sleeper), host=life(sleeper))
    found = find(home)
    assert (found.root.instance, found.rule, found.is_below_host) == (ONE, "ancestor", True)
    assert found.root.control == f"/c/{ONE}.control"


def test_find_nearest_host_goes_before_a_farther_one(home: Path, sleeper: int) -> None:
    """Where two ancestors host roots, the nearer one is meant."""
    above = ancestors()
    own(home, ONE, life(sleeper), host=life(above[1].pid))
    own(home, TWO, life(sleeper), host=life(above[0].pid))
    assert find(home).root.instance == TWO


def test_find_recycled_host_number_is_not_the_host(home: Path, sleeper: int) -> None:
    """A host's process id alone proves nothing: with another start time it is another process."""
    own(home, ONE, life(sleeper), host=life(os.getppid(), start_ticks=1))
    with pytest.raises(Refused) as caught:
        find(home)
    assert caught.value.code == "NO_ROOT"


def test_find_ended_root_is_not_meant(home: Path) -> None:
    """An owner file whose process is proven gone is no root."""
    own(home, ONE, life(start_ticks=1), host=life(os.getppid()))
    with pytest.raises(Refused) as caught:
        find(home)
    assert caught.value.code == "NO_ROOT"


def test_find_two_roots_of_one_host_is_ambiguous_with_the_list(home: Path, sleeper: int) -> None:
    """Two roots of the same host are never guessed between; the list says what to name."""
    own(home, ONE, life(sleeper), host=life(os.getppid()), session="s1")
    own(home, TWO, life(sleeper), host=life(os.getppid()), session="s2")
    with pytest.raises(Ambiguous) as caught:
        find(home)
    assert [candidate["instance"] for candidate in caught.value.candidates] == [ONE, TWO]
    assert "--instance" in caught.value.action


def test_find_session_of_the_environment_breaks_the_tie(home: Path, sleeper: int) -> None:
    """The saved session that a host tells its commands decides between two roots of that host."""
    own(home, ONE, life(sleeper), host=life(os.getppid()), session="s1")
    own(home, TWO, life(sleeper), host=life(os.getppid()), session="s2")
    assert find(home, environment={"CLAUDE_CODE_SESSION_ID": "s2"}).root.instance == TWO
    with pytest.raises(Ambiguous):
        find(home, environment={"CLAUDE_CODE_SESSION_ID": "s3"})


@pytest.mark.clause("O18")
def test_find_inherited_variable_does_not_outrank_the_host(home: Path, sleeper: int) -> None:
    """An inherited TIELINE_INSTANCE counts only where no ancestor hosts a root."""
    own(home, ONE, life(sleeper), host=life(os.getppid()))
    own(home, TWO, life(sleeper))
    assert find(home, environment={"TIELINE_INSTANCE": TWO}).root.instance == ONE
    (home / "peer-runtime" / f"{ONE}.owner").unlink()
    found = find(home, environment={"TIELINE_INSTANCE": TWO})
    assert (found.root.instance, found.rule) == (TWO, "environment")


def test_find_named_instance_goes_first(home: Path, sleeper: int) -> None:
    """--instance goes before everything, and says whether we run below that root's host."""
    own(home, ONE, life(sleeper), host=life(os.getppid()))
    own(home, TWO, life(sleeper))
    assert find(home, instance=TWO)[1:] == ("instance", False)
    assert find(home, instance=ONE)[1:] == ("instance", True)


def test_find_named_instance_that_ended_points_to_its_mail(home: Path) -> None:
    """An ended instance is told from one that never was."""
    (home / "peer-messages" / ONE).mkdir()
    with pytest.raises(Refused, match="tieline recover " + ONE) as caught:
        find(home, instance=ONE)
    assert caught.value.code == "NO_ROOT"
    with pytest.raises(Refused, match="no root of instance"):
        find(home, instance=TWO)


def test_find_only_root_of_workspace_serves_what_changes_nothing(home: Path, sleeper: int) -> None:
    """The only root of a workspace answers questions; it never sends for a stranger."""
    own(home, ONE, life(sleeper), workspace=here())
    own(home, TWO, life(sleeper), workspace="/elsewhere")
    found = find(home, may_change=False)
    assert (found.root.instance, found.rule, found.is_below_host) == (ONE, "workspace", False)
    with pytest.raises(Refused) as caught:
        find(home, may_change=True)
    assert caught.value.code == "NO_ROOT"


@pytest.mark.clause("S15")
def test_find_run_capability_is_not_shown_to_a_stranger(home: Path, sleeper: int) -> None:
    """A run's capability goes to no root that only happens to share the workspace."""
    own(home, ONE, life(sleeper), workspace=here())
    with pytest.raises(Refused) as caught:
        find(home, may_change=False, run="secret")
    assert caught.value.code == "NO_ROOT"
    assert "secret" not in str(caught.value)


def test_find_two_roots_of_workspace_is_ambiguous(home: Path, sleeper: int) -> None:
    """Two roots of one workspace: the list, also for a question."""
    own(home, ONE, life(sleeper), workspace=here())
    own(home, TWO, life(sleeper), workspace=here())
    with pytest.raises(Ambiguous):
        find(home, may_change=False)


@pytest.mark.clause("K12")
def test_find_roots_of_another_container_are_named_as_that(home: Path) -> None:
    """Roots in a foreign process namespace are not shown as absence."""
    own(home, ONE, life(pid_namespace=1), host=life(os.getppid(), pid_namespace=1))
    with pytest.raises(Refused) as caught:
        find(home)
    assert caught.value.code == "FOREIGN_NAMESPACE"
    assert "MCP tool" in caught.value.action


def test_survey_of_damaged_and_foreign_files_counts_them(home: Path) -> None:
    """A damaged, linked, shared or misnamed owner file is counted, and is no root."""
    own(home, ONE, life())
    runtime = home / "peer-runtime"
    (runtime / "damaged.owner").write_text("{")
    (runtime / "linked.owner").symlink_to(runtime / f"{ONE}.owner")
    put(runtime / "shared.owner", {})
    (runtime / "shared.owner").chmod(0o644)
    put(runtime / f"{TWO}.owner", json.loads((runtime / f"{ONE}.owner").read_text()))
    found = survey(str(home))
    assert [root.instance for root in found.roots] == [ONE]
    assert found.fault_count == 4


@pytest.mark.clause("S1")
def test_survey_of_shared_directory_is_refused(home: Path) -> None:
    """A runtime directory that others may enter is not read."""
    (home / "peer-runtime").chmod(0o755)
    with pytest.raises(Refused) as caught:
        survey(str(home))
    assert caught.value.code == "UNSAFE_ENDPOINT"


def test_survey_tells_alive_gone_and_unknown_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only another boot, no process, or another start time prove an end."""
    cases = {
        "alive": life(),
        "gone": life(boot_id="another"),
        "unknown": life(pid_namespace=1),
    }
    for number, (expected, owner) in enumerate(cases.items()):
        instance = f"i{number}"
        own(home, instance, owner)
        assert {root.instance: root.life for root in survey(str(home)).roots}[instance] == expected
    monkeypatch.setattr(locate, "_status", lambda pid: None)  # /proc hides processes
    assert {root.instance: root.life for root in survey(str(home)).roots}["i0"] == "unknown"


def test_places_variables_go_before_the_file(home: Path) -> None:
    """Variables go before config.toml, that before the defaults."""
    base = {"TIELINE_HOME": str(home)}
    assert places(base) == (str(home), str(home), "workspace")
    (home / "config.toml").write_text(
        '[communication]\ncoordination_directory = "/shared"\nscope = "machine"\n'
    )
    assert places(base) == (str(home), "/shared", "machine")
    more = {"TIELINE_COORDINATION_DIRECTORY": "/other/", "TIELINE_SCOPE": "repository"}
    assert places({**base, **more}) == (str(home), "/other", "repository")


@pytest.mark.parametrize(
    "text",
    [
        '[communication]\nscope = "galaxy"\n',
        "[communication]\nscope = 3\n",
        '[communication]\ncoordination_directory = "relative"\n',
        "scope = = 1",
        "[communication",
        "[communication]\nalais = 'x'\n",
        "[limits]\ninbox_messages = 0\n",
        "[comunication]\n",
    ],
)
def test_places_wrong_setting_names_what_is_allowed(home: Path, text: str) -> None:
    """What a root would refuse to start with is an error here too, never a silent default."""
    (home / "config.toml").write_text(text)
    with pytest.raises(UsageError, match=r"must be|not TOML|unknown"):
        places({"TIELINE_HOME": str(home)})
    # A variable for each setting that is needed does not hide a file that no root could read.
    with pytest.raises(UsageError):
        places({
            "TIELINE_HOME": str(home),
            "TIELINE_SCOPE": "machine",
            "TIELINE_COORDINATION_DIRECTORY": "/c",
            "TIELINE_ALIAS": "0",
        })  # fmt: skip


def test_places_wrong_variable_is_refused_without_a_file(home: Path) -> None:
    """A variable is judged as by a root, also one that this command does not need."""
    for name, value in (
        ("SCOPE", "all"),
        ("COORDINATION_DIRECTORY", "c"),
        ("ALIAS", "0"),
        ("INBOX_MESSAGES", "x"),
    ):
        with pytest.raises(UsageError, match="TIELINE_" + name):
            places({"TIELINE_HOME": str(home), "TIELINE_" + name: value})


def test_find_outside_every_agent_says_who_is_here(home: Path, sleeper: int) -> None:
    """The refusal names the roots of this directory and how a person acts at one; others are counted."""
    own(home, ONE, life(), host=life(sleeper), workspace=here())
    own(home, TWO, life(), host=life(sleeper), workspace="/other")
    with pytest.raises(NoRoot, match="one root works in this directory") as caught:
        find(home)
    assert "each acts for its own agent" in str(caught.value)
    assert [item["instance"] for item in caught.value.candidates] == [ONE]
    assert f"--instance {ONE}" in caught.value.action
    assert find(home, instance=ONE).is_below_host is False
    with pytest.raises(NoRoot, match="2 run in other directories") as caught:
        find(home, workspace="/third")
    assert caught.value.candidates == []


@pytest.mark.clause("K15")
def test_root_that_ended_and_was_not_reaped_is_gone() -> None:
    """A killed root whose parent has not waited for it runs nothing; it is no other container's."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    fields = locate._fields(child.pid)
    life = locate.Life(locate._boot_id(), locate._pid_namespace(), child.pid, int(fields[19]))
    assert locate._state(life) == "alive"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert locate._state(life) == "gone"
    child.wait()
    assert locate._state(life) == "gone"

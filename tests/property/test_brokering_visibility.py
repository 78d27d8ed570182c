"""Who may see whom, against a model of its own: ten thousand registrations, sends and departures, no leak."""

import json
import random

import pytest

from tests.scripts.room import Room

STEPS = 2_500
NAMES = ["worker", "Worker", "main", "WORKER", "helper"]


class Model:
    """What a room must show, in the fewest words: a group per child, mains among mains, equal scopes."""

    def __init__(self) -> None:
        self.live: dict[str, tuple[str | None, str | None, bool, str]] = {}  # scope, root, is child, name
        self.parked: dict[str, tuple[str | None, str | None, bool, str]] = {}

    def sees(self, one: str, other: str) -> bool:
        mine = self.live[one]
        theirs = self.live.get(other) or self.parked[other]
        if mine[0] != theirs[0]:
            return False
        if mine[2] or theirs[2]:
            return mine[1] is not None and mine[1] == theirs[1]
        return True

    def seen(self, one: str) -> list[str]:
        return [other for other in self.live if self.sees(one, other)]


class Trial:
    """One seeded series of steps."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.room = Room()
        self.model = Model()
        self.count = 0

    def join(self) -> None:
        self.count += 1
        name = f"e{self.count:05d}"
        shown = self.chance.choice(NAMES)
        kind = self.chance.choice(["main", "child", "child", "old", "recorded"])
        scope = self.chance.choice([None, "s1"]) if kind == "recorded" else None
        root = f"root-{self.chance.randrange(3)}" if kind in {"main", "child"} else None
        before = {other for other in self.model.live if self.room.ends[other].heard}
        assert not before
        if kind == "recorded":
            top = {"scopeId": scope} if scope else {}
            self.room.say_join_recorded(name, {"id": f"private-{name}", "name": shown, "top": top})
        else:
            lineage = {"rootSessionId": root} if root else {}
            if kind == "child":
                lineage["parentSessionId"] = str(root)
            told = {"id": f"private-{name}", "name": shown, "top": {"wakeOutcomes": 1}, **lineage}
            self.room.say_join(name, told)
        self.model.live[name] = (scope, root, kind == "child", shown)
        self.look()

    def leave(self) -> None:
        name = self.chance.choice(list(self.model.live))
        told = {other for other in self.model.seen(name) if other != name}
        one = self.model.live.pop(name)
        is_parked = one[2] and self.chance.random() < 0.5
        if is_parked:
            self.room.send(name, {"type": "unregister", "parked": True})
            self.model.parked[name] = one
        else:
            self.room.close(self.room.ends[name])
        heard = {
            other
            for other in self.model.live
            if {"type": "session_left", "sessionId": f"private-{name}"} in self.room.ends[other].heard
        }
        assert heard == told
        self.look()

    def list(self) -> None:
        name = self.chance.choice(list(self.model.live))
        self.room.send(name, {"type": "list", "requestId": "x"})
        rows = [row["id"] for row in self.room.ends[name].heard[-1]["sessions"]]
        assert rows == [f"private-{other}" for other in self.model.seen(name)]
        self.look()

    def send_by_id(self) -> None:
        name = self.chance.choice(list(self.model.live))
        other = self.chance.choice([*self.model.live, *self.model.parked, "nobody"])
        self.room.send(name, message(f"private-{other}"))
        answer = self.room.ends[name].heard[-1]
        if other == "nobody" or not self.model.sees(name, other):
            assert answer["type"] == "delivery_failed"
            assert answer["reason"] == "Session not found"
            assert answer.get("code", "E_TARGET_NOT_FOUND") == "E_TARGET_NOT_FOUND"
        else:
            assert answer["type"] in {"delivered", "delivery_queued"}
        self.look()

    def send_by_name(self) -> None:
        name = self.chance.choice(list(self.model.live))
        to = self.chance.choice(NAMES).lower()
        self.room.send(name, message(to))
        answer = self.room.ends[name].heard[-1]
        fits = [other for other in self.model.seen(name) if self.model.live[other][3].lower() == to]
        if len(fits) == 1:
            assert answer["type"] == "delivered"
        elif fits:
            assert answer["reason"].startswith("Multiple sessions named")
        else:
            gone = [
                one
                for one, facts in self.model.parked.items()
                if self.model.sees(name, one) and facts[3].lower() == to
            ]
            is_recorded = "code" in answer
            assert is_recorded or (answer["type"] == "delivery_queued") == (len(gone) == 1)
        self.look()

    def look(self) -> None:
        """Nothing that anybody was sent names one that it cannot see."""
        for name in self.model.live:
            for frame in self.room.heard(name):
                text = json.dumps(frame)
                for other in self.model.live:
                    assert f'"private-{other}"' not in text or self.model.sees(name, other), (name, frame)


def message(to: str) -> dict[str, object]:
    return {
        "type": "send",
        "to": to,
        "message": {"id": f"m{random.getrandbits(60)}", "timestamp": 1, "content": {"text": "x"}},
    }


@pytest.mark.clause("intercom-42", "intercom-56", "intercom-57", "I42")
@pytest.mark.parametrize("seed", range(4))
def test_random_registrations_sends_and_departures_leak_nothing(seed: int) -> None:
    """Lists, errors, ambiguity, departures and deliveries are those of the model, in every step."""
    trial = Trial(seed)
    for _ in range(STEPS):
        if len(trial.model.live) < 2:
            trial.join()
            continue
        crowd = len(trial.model.live)
        steps = [trial.list, trial.send_by_id, trial.send_by_name]
        steps += [trial.join] * (2 if crowd < 14 else 1) + [trial.leave] * (2 if crowd > 10 else 1)
        trial.chance.choice(steps)()

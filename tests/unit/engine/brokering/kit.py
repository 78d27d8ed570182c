"""Sessions and turns for the tests of single rooms."""

from typing import Any

from tieline.engine.brokering.contract import Join, Letter, Lineage
from tieline.engine.brokering.features import DIRECT, RECORDED, Features
from tieline.engine.brokering.sessions import Session, Sessions
from tieline.engine.brokering.turn import Turn
from tieline.model.moment import Moment

__all__ = ["DIRECT", "RECORDED", "letter", "seated", "session", "turn"]


def turn(mono_ms: int = 1_000) -> Turn:
    return Turn(Moment(1_000_000 + mono_ms, mono_ms))


def session(
    identity: str,
    link: int,
    /,
    features: Features = DIRECT,
    lineage: Lineage | None = None,
    scope: str | None = None,
    **fields: Any,
) -> Session:
    join = Join(
        link=link,
        features=features,
        fields={"cwd": "/w", "model": "m", "name": identity} | fields,
        token=f"token-{identity}",
        epoch=f"epoch-{identity}",
        scope=scope,
        lineage=lineage,
        incarnation="i",
    )
    return Session(join, identity, 7, 1_000)


def seated(*members: Session) -> Sessions:
    sessions = Sessions()
    for one in members:
        sessions.add(one)
    return sessions


def letter(identity: str = "m", **parts: Any) -> Letter:
    fields = {"id": identity, "timestamp": 1, "content": {"text": "x"}}
    return Letter(message_id=identity, fields=fields, **parts)

"""The wrapper around a message's text, and its exact text back out of it.

    <cross-session-message from="ADDRESS" from-name="NAME">TEXT</cross-session-message>

Rule 1: what is wrapped comes out byte for byte. Where the text itself holds an opening or closing wrapper
tag, the tag's "<" is written "&lt;"; where it holds a tag already written so, one "amp;" is added. So no
text can end its own wrapper or open a second one, and there is exactly one way back.
Rule 2: a wrapper is believed by nobody: it is taken off, and only when it is whole, alone and names the
address that the frame itself names. Anything else is malformed; it is never repaired.
Rule 3: a text without any wrapper tag is its own text: a person's message comes so.
Rule 4: the cost is linear in the text, whatever it holds.
Rule 5: this module knows no frame and no peer.

Source: spec/pi-peers.md, "Frames"; reference/pi-peers-and-harness-doors.md 31, 32, U18.
"""

import re
from typing import Final

from tieline.wire.peers.frames import plain_address

__all__ = ["unwrap", "wrap"]

TAG: Final = "cross-session-message"

# Possessive, so that a text of blanks or of "amp;" costs no more than its length. White space inside a tag
# and either case are taken for the tag: a reader more lenient than we are must find none either.
_SHAPE: Final = rf"(?=\s*+/?+\s*+{TAG})"
_TAG: Final = re.compile(rf"<{_SHAPE}", re.IGNORECASE)
_TO_HIDE: Final = re.compile(rf"(?:<|&(?:amp;)*+lt;){_SHAPE}", re.IGNORECASE)
_HIDDEN: Final = re.compile(rf"&(?:amp;)*+lt;{_SHAPE}", re.IGNORECASE)

_OPENING: Final = re.compile(rf"<{TAG}((?:\s++[A-Za-z][A-Za-z-]*+=(?:\"[^\"]*+\"|'[^']*+'))*+)\s*+>")
_ATTRIBUTE: Final = re.compile(r"([A-Za-z][A-Za-z-]*+)=(?:\"([^\"]*+)\"|'([^']*+)')")
_CLOSING: Final = f"</{TAG}>"
_BLANK: Final = " \t\r\n"

_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|quot|apos|#39|#0*10|#0*13|#0*9);")
_CHARACTERS: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ESCAPES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
)


def wrap(address: str, name: str, body: str) -> str:
    """Return `body` in one wrapper that names its sender; an empty `name` is left out."""
    named = f' from-name="{name.translate(_ESCAPES)}"' if name else ""
    text = _TO_HIDE.sub(_hide, body)
    return f'<{TAG} from="{address.translate(_ESCAPES)}"{named}>{text}{_CLOSING}'


def unwrap(content: str, address: str) -> str | None:
    """Return the exact text in `content`, which came in a frame from `address`.

    Returns:
        None where `content` has a wrapper tag and is not one whole wrapper, alone, whose `from` is
        `address`: forged, nested, unbalanced or malformed.
    """
    if _TAG.search(content) is None:
        return content
    whole = content.strip(_BLANK)
    opening = _OPENING.match(whole)
    if opening is None or not whole.endswith(_CLOSING):
        return None
    claimed = _attribute(opening[1], "from")
    if claimed is None or not _names(claimed, address):
        return None
    start, end = opening.end(), len(whole) - len(_CLOSING)
    if start > end:
        return None
    body = whole[start:end]
    return None if _TAG.search(body) else _HIDDEN.sub(_show, body)


def _hide(found: re.Match[str]) -> str:
    return "&lt;" if found[0] == "<" else "&amp;" + found[0][1:]


def _show(found: re.Match[str]) -> str:
    return "<" if found[0].lower() == "&lt;" else "&" + found[0][5:]


def _attribute(text: str, name: str) -> str | None:
    """Return the raw value of the attribute `name`; None where it is missing or given twice."""
    values = [double or single for key, double, single in _ATTRIBUTE.findall(text) if key == name]
    return values[0] if len(values) == 1 else None


def _names(claimed: str, address: str) -> bool:
    """Return whether a raw attribute value names `address`; a window that escapes nothing is right, too."""
    wanted = plain_address(address)
    return wanted in (plain_address(claimed), plain_address(_ENTITY.sub(_character, claimed)))


def _character(found: re.Match[str]) -> str:
    word = found[0][1:-1]
    return _CHARACTERS.get(word) or chr(int(word[1:]))

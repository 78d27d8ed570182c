"""What one request shows the model, the same for all four protocols.

Rule 1: every text that a model would read is in one item, in the order of the request; nothing that a
model would not read (ids of requests, sampling settings, cache marks) is.
Rule 2: a request that does not look as its protocol says is read as far as it can be: what a program
sends is what the tests find out, so the reader must not be stricter than a model.

Source: reference/harnesses.md 1; the shapes are those that the programs send.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

__all__ = ["Conversation", "Item", "Tool", "read"]

Kind = Literal["system", "user", "assistant", "call", "result"]


class Item(NamedTuple):
    """One thing that the model is shown.

    Attributes:
        kind: `call` is the model's own tool call, `result` what came back of it.
        text: The text; of a call its arguments as JSON.
        name: Of a call the tool's full name.
        call_id: Joins a result with its call; '' where the protocol has none.
    """

    kind: Kind
    text: str
    name: str = ""
    call_id: str = ""


class Tool(NamedTuple):
    """One tool that the model may call; `namespace` is '' but where the program groups its tools."""

    name: str
    namespace: str = ""

    @property
    def full_name(self) -> str:
        """Return the name as one word."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


class Conversation(NamedTuple):
    """All that one request shows the model."""

    items: tuple[Item, ...]
    tools: tuple[Tool, ...]

    def tool(self, name: str) -> Tool | None:
        """Return the tool that is called `name`, or whose name ends in `_name`; None where there is none."""
        exact = [tool for tool in self.tools if tool.name == name]
        return next(iter(exact + [tool for tool in self.tools if tool.name.endswith(f"_{name}")]), None)

    def last_user_with(self, text: str) -> int:
        """Return the index of the last item of the user that holds `text`, or -1."""
        found = (n for n, item in enumerate(self.items) if item.kind == "user" and text in item.text)
        return max(found, default=-1)

    def results(self, after: int = -1) -> list[str]:
        """Return the texts of the tool results behind the item with the index `after`."""
        return [item.text for item in self.items[after + 1 :] if item.kind == "result"]

    def texts(self, *kinds: Kind) -> list[str]:
        """Return the texts of these kinds, all without one."""
        return [item.text for item in self.items if not kinds or item.kind in kinds]

    def count(self, text: str, *kinds: Kind) -> int:
        """Return how often `text` stands in what the model is shown."""
        return sum(shown.count(text) for shown in self.texts(*kinds))


def read(protocol: str, body: dict[str, Any]) -> Conversation:
    """Return what a request of one of the four protocols shows the model."""
    items, tools = _READERS[protocol](body)
    return Conversation(tuple(item for item in items if item.text or item.kind == "call"), tuple(tools))


def _texts(content: object) -> Iterator[str]:
    """Yield each text inside `content`, whatever it is wrapped in."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            yield from _texts(part)
    elif isinstance(content, dict):
        for member in ("text", "content", "output", "parts"):
            if member in content:
                yield from _texts(content[member])
                return


def _text(content: object) -> str:
    return "\n".join(_texts(content))


def _kind(role: object) -> Kind:
    match role:
        case "assistant" | "model":
            return "assistant"
        case "system" | "developer":
            return "system"
        case "tool" | "function":
            return "result"
        case _:
            return "user"


def _anthropic(body: dict[str, Any]) -> tuple[list[Item], list[Tool]]:
    items = [Item("system", _text(body.get("system")))]
    for message in body.get("messages", []):
        kind, content = _kind(message.get("role")), message.get("content")
        parts: list[dict[str, Any]] = [{"text": content}] if isinstance(content, str) else content or []
        for part in parts:
            shape = part.get("type")
            if shape == "tool_use":
                items.append(Item("call", json.dumps(part.get("input")), part["name"], part["id"]))
            elif shape == "tool_result":
                items.append(Item("result", _text(part.get("content")), call_id=part["tool_use_id"]))
            else:
                items.append(Item(kind, _text(part)))
    return items, [Tool(tool["name"]) for tool in body.get("tools", []) if "name" in tool]


def _responses(body: dict[str, Any]) -> tuple[list[Item], list[Tool]]:
    items = [Item("system", _text(body.get("instructions")))]
    given = body.get("input", [])
    parts: list[dict[str, Any]] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for part in parts:
        shape = part.get("type", "message")
        if shape in ("function_call", "custom_tool_call"):
            name = Tool(part["name"], part.get("namespace") or "").full_name
            arguments = str(part.get("arguments", part.get("input", "")))
            items.append(Item("call", arguments, name, part.get("call_id", "")))
        elif shape.endswith("_output"):
            items.append(Item("result", _text(part.get("output")), call_id=part.get("call_id", "")))
        else:
            items.append(Item(_kind(part.get("role")), _text(part.get("content"))))
    tools = []
    for tool in body.get("tools", []):
        if tool.get("type") == "namespace":
            tools += [Tool(inner["name"], tool["name"]) for inner in tool.get("tools", [])]
        else:
            tools.append(Tool(tool.get("name", tool.get("type", ""))))
    return items, tools


def _chat(body: dict[str, Any]) -> tuple[list[Item], list[Tool]]:
    items = []
    for message in body.get("messages", []):
        kind = _kind(message.get("role"))
        items.append(Item(kind, _text(message.get("content")), call_id=message.get("tool_call_id", "")))
        for call in message.get("tool_calls") or []:
            function = call.get("function", {})
            items.append(
                Item("call", function.get("arguments", ""), function.get("name", ""), call.get("id", ""))
            )
    return items, [Tool(tool["function"]["name"]) for tool in body.get("tools", []) if "function" in tool]


def _gemini(body: dict[str, Any]) -> tuple[list[Item], list[Tool]]:
    items = [Item("system", _text(body.get("systemInstruction", body.get("system_instruction"))))]
    for content in body.get("contents", []):
        kind = _kind(content.get("role"))
        for part in content.get("parts", []):
            if "functionCall" in part:
                call = part["functionCall"]
                items.append(
                    Item("call", json.dumps(call.get("args")), call.get("name", ""), call.get("id", ""))
                )
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                # The answer is an object of the program's own making: all of it is shown.
                shown = json.dumps(answer.get("response"), ensure_ascii=False)
                items.append(Item("result", shown, call_id=answer.get("id", "")))
            else:
                items.append(Item(kind, _text(part)))
    declared = (
        declaration for tool in body.get("tools", []) for declaration in tool.get("functionDeclarations", [])
    )
    return items, [Tool(declaration["name"]) for declaration in declared]


_READERS = {"anthropic": _anthropic, "responses": _responses, "chat": _chat, "gemini": _gemini}

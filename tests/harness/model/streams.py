"""A reply in the words of each of the four protocols, streamed and whole.

Rule: one reply is one text or one call, written in the smallest sequence of events that each protocol's
published reference requires.

Source: the published references of the Messages, Responses, Chat Completions and Gemini interfaces;
reference/harnesses.md 1.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from tests.harness.model.script import Reply

__all__ = ["events", "whole"]

Document = dict[str, Any]
USED_TOKENS = 10


def events(protocol: str, model: str, reply: Reply) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed reply."""
    for name, document in _STREAMS[protocol](model, reply):
        line = f"event: {name}\n" if name else ""
        data = document if isinstance(document, str) else json.dumps(document)
        yield f"{line}data: {data}\n\n".encode()


def whole(protocol: str, model: str, reply: Reply) -> Document:
    """Return the reply as one document."""
    return _WHOLES[protocol](model, reply)


def _fresh(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _arguments(reply: Reply) -> str:
    return json.dumps(dict(reply.arguments))


# Anthropic Messages


def _message(model: str, reply: Reply) -> Document:
    block: Document = {"type": "text", "text": reply.text}
    if reply.tool is not None:
        block = {
            "type": "tool_use",
            "id": _fresh("toolu"),
            "name": reply.tool.name,
            "input": dict(reply.arguments),
        }
    return {
        "id": _fresh("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "end_turn" if reply.tool is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": USED_TOKENS, "output_tokens": USED_TOKENS},
    }


def _message_stream(model: str, reply: Reply) -> Iterator[tuple[str, Document]]:
    message = _message(model, reply)
    block = message["content"][0]
    opening = {**block, "text": ""} if reply.tool is None else {**block, "input": {}}
    delta = (
        {"type": "text_delta", "text": reply.text}
        if reply.tool is None
        else {"type": "input_json_delta", "partial_json": _arguments(reply)}
    )
    told: list[Document] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opening},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": USED_TOKENS},
        },
        {"type": "message_stop"},
    ]
    for document in told:
        yield document["type"], document


# OpenAI Responses


def _response(model: str, reply: Reply, status: str = "completed") -> Document:
    output: Document = {
        "type": "message",
        "id": _fresh("msg"),
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": reply.text, "annotations": []}],
    }
    if reply.tool is not None:
        output = {
            "type": "function_call",
            "id": _fresh("fc"),
            "status": "completed",
            "call_id": _fresh("call"),
            "name": reply.tool.name,
            "arguments": _arguments(reply),
        }
        if reply.tool.namespace:
            output["namespace"] = reply.tool.namespace
    return {
        "id": _fresh("resp"),
        "object": "response",
        "status": status,
        "model": model,
        "output": [output],
        "usage": {
            "input_tokens": USED_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": USED_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2 * USED_TOKENS,
        },
    }


def _response_stream(model: str, reply: Reply) -> Iterator[tuple[str, Document]]:
    response = _response(model, reply)
    output = response["output"][0]
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    told: list[Document] = [{"type": "response.created", "response": begun}]
    opening = {**output, "content": []} if reply.tool is None else {**output, "arguments": ""}
    told.append({"type": "response.output_item.added", "output_index": 0, "item": opening})
    if reply.tool is None:
        place = {"item_id": output["id"], "output_index": 0, "content_index": 0}
        told.append({"type": "response.output_text.delta", "delta": reply.text, **place})
    told += [
        {"type": "response.output_item.done", "output_index": 0, "item": output},
        {"type": "response.completed", "response": response},
    ]
    for number, document in enumerate(told):
        yield document["type"], {**document, "sequence_number": number}


# OpenAI Chat Completions


def _chat_message(reply: Reply) -> Document:
    if reply.tool is None:
        return {"role": "assistant", "content": reply.text}
    function = {"name": reply.tool.name, "arguments": _arguments(reply)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"index": 0, "id": _fresh("call"), "type": "function", "function": function}],
    }


def _completion(model: str, kind: str) -> Document:
    return {"id": _fresh("chatcmpl"), "object": kind, "created": 1, "model": model}


def _chat_usage() -> Document:
    used = {"prompt_tokens": USED_TOKENS, "completion_tokens": USED_TOKENS, "total_tokens": 2 * USED_TOKENS}
    return {"usage": used}


def _chat(model: str, reply: Reply) -> Document:
    reason = "stop" if reply.tool is None else "tool_calls"
    choice = {"index": 0, "message": _chat_message(reply), "finish_reason": reason}
    return {**_completion(model, "chat.completion"), "choices": [choice], **_chat_usage()}


def _chat_stream(model: str, reply: Reply) -> Iterator[tuple[str, Document | str]]:
    frame = _completion(model, "chat.completion.chunk")
    reason = "stop" if reply.tool is None else "tool_calls"
    for delta, finish in ((_chat_message(reply), None), ({}, reason)):
        yield "", {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    yield "", {**frame, "choices": [], **_chat_usage()}
    yield "", "[DONE]"


# Gemini


def _gemini(model: str, reply: Reply) -> Document:
    part: Mapping[str, Any] = {"text": reply.text}
    if reply.tool is not None:
        part = {"functionCall": {"name": reply.tool.name, "args": dict(reply.arguments)}}
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": USED_TOKENS,
            "candidatesTokenCount": USED_TOKENS,
            "totalTokenCount": 2 * USED_TOKENS,
        },
        "modelVersion": model,
        "responseId": _fresh("gemini"),
    }


def _gemini_stream(model: str, reply: Reply) -> Iterator[tuple[str, Document]]:
    yield "", _gemini(model, reply)


_STREAMS = {
    "anthropic": _message_stream,
    "responses": _response_stream,
    "chat": _chat_stream,
    "gemini": _gemini_stream,
}
_WHOLES = {"anthropic": _message, "responses": _response, "chat": _chat, "gemini": _gemini}

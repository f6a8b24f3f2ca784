"""A server of the three wires of texts, with one fixed answer each; as strict as the official client's types."""

import json
from collections.abc import Iterable
from typing import Any

from anthropic.types import message_create_params as message_params
from openai.types.chat import completion_create_params as chat_params

from adapters.http1.message import Request, Response
from tests.servers.stand_ins.typed_dicts import mistakes

Object = dict[str, Any]
CHATS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
KINDS = {
    CHATS: (chat_params.CompletionCreateParamsNonStreaming, chat_params.CompletionCreateParamsStreaming),
    MESSAGES: (message_params.MessageCreateParamsNonStreaming, message_params.MessageCreateParamsStreaming),
}
"""The types of translated bodies, whole and streamed."""
BEYOND = ("reasoning_content", "temperature", "top_k", "top_p")
"""Fields that servers take though the types lack them: thoughts, and the sampling of older models of Anthropic."""
HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 2},
}  # fmt: skip
OUTPUT = {
    "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "ok", "annotations": []}],
}  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [OUTPUT],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}  # fmt: skip


class Wires:
    """Answers `ok`. `native` is the path whose bodies are forwarded unchanged: those of other paths are checked."""

    def __init__(self, native: str) -> None:
        self._native = native
        self.mistakes: list[str] = []

    async def __call__(self, http: Request) -> Response:
        if http.path not in (*KINDS, RESPONSES):  # most servers count no tokens
            return Response(404, [("content-type", "application/json")], b'{"error":{"message":"Not Found"}}')
        body = json.loads(await http.read())
        stream = bool(body.get("stream"))
        if http.path != self._native:
            problems = mistakes(body, KINDS[http.path][stream])
            self.mistakes += [each for each in problems if not each.partition(":")[0].endswith(BEYOND)]
        if not stream:
            whole = {CHATS: _chat(), MESSAGES: MESSAGE, RESPONSES: RESPONSE}[http.path]
            return Response(200, [("content-type", "application/json")], json.dumps(whole).encode())
        events = b"".join(_event(each, named=http.path != CHATS) for each in _EVENTS[http.path])
        end = b"data: [DONE]\n\n" if http.path == CHATS else b""
        return Response(200, [("content-type", "text/event-stream")], events + end)


def _chat() -> Object:
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    return {**HEAD, "choices": [choice], "usage": USAGE}


def _event(data: Object, *, named: bool) -> bytes:
    name = f"event: {data['type']}\n" if named else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chunk(delta: Object, finish: str | None, **more: Any) -> Object:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {**HEAD, "object": "chat.completion.chunk", "choices": choices, **more}


_EVENTS: dict[str, Iterable[Object]] = {
    CHATS: [_chunk({"role": "assistant", "content": "ok"}, None), _chunk({}, "stop", usage=USAGE)],
    MESSAGES: [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    RESPONSES: [
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
        {"type": "response.completed", "response": RESPONSE},
    ],
}  # fmt: skip

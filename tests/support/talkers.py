"""Fake engines with one fixed answer, which can continue it from any token."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import InferenceError, TransportError
from adapters.fake import FakeAdapter, Script
from adapters.requests import GenerateRequest, ModelRequest
from adapters.types import Usage

PROMPT = 3


class Talker(FakeAdapter):
    """Answers with `tokens`, as text or with their ids; its streams break after so many tokens, in turn.

    0 breaks after the opening, None never. Each endpoint has ids of its own for its streams.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        *breaks: int | None,
        name: str = "talker",
        fault: InferenceError | None = None,
        gap: float = 0.0,
    ) -> None:
        super().__init__(name=name)
        self._tokens = list(tokens)
        self.breaks: Iterator[int | None] = chain(breaks, repeat(None))
        self._fault = fault or TransportError("The upstream broke.")
        self._gap = gap
        self.latency = 0.0
        self.received: list[dict[str, Any]] = []

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assert isinstance(request, GenerateRequest)
        fields = {key: json.loads(bytes(raw)) for key, raw in request.fields.items()}
        self.received.append(fields)
        self._scripts = chain([self._script(fields, request)])
        return await super().call(request, call)

    def _script(self, fields: dict[str, Any], request: GenerateRequest) -> Script:
        prefix = self._prefix_length(fields)
        limit = len(self._tokens)
        for name in ("max_tokens", "max_completion_tokens"):
            if fields.get(name) is not None:
                limit = min(limit, fields[name] + (0 if "continue_token_ids" in fields else prefix))
        reason = "stop" if limit == len(self._tokens) else "length"
        events = [self._event(fields, i) for i in range(prefix, limit)]
        opening = [] if "prompt" in fields else [self._chunk(fields, {"role": "assistant", "content": ""}, None)]
        whole = "continue_token_ids" in fields
        usage = Usage(PROMPT + (0 if whole else prefix), limit - (0 if whole else prefix), exact=True)
        end = [self._chunk(fields, {}, reason)]
        if request.include_usage:
            end.append(self._event_of(fields, choices=[], usage=_usage_of(usage)))
        after = next(self.breaks)
        if not request.stream:
            return Script((b"".join([*opening, *events, *end]),), usage=usage)
        return Script(
            (*opening, *events, *end, b"data: [DONE]\n\n"),
            latency=self.latency,
            gap=self._gap,
            fault=None if after is None else self._fault,
            fault_after=0 if after is None else len(opening) + after,
            usage=usage,
        )

    def _prefix_length(self, fields: dict[str, Any]) -> int:
        """The number of tokens that the request has already; AssertionError for a text that the engine never sent."""
        if "continue_token_ids" in fields:
            ids = fields["continue_token_ids"]
            assert ids == list(range(len(ids)))
            return len(ids)
        if fields.get("continue_final_message") and fields.get("add_generation_prompt") is False:
            return self._length(fields["messages"][-1]["content"])
        if "prompt" in fields:
            return self._length(fields["prompt"].removeprefix("Once"))
        return 0

    def _length(self, text: str) -> int:
        for count in range(len(self._tokens) + 1):
            if "".join(self._tokens[:count]) == text:
                return count
        raise AssertionError(f"it never sent {text!r}")

    def _event(self, fields: dict[str, Any], i: int) -> bytes:
        return self._chunk(fields, {"content": self._tokens[i]}, None, i)

    def _chunk(
        self, fields: dict[str, Any], delta: dict[str, Any], reason: str | None, id_: int | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        if "prompt" in fields:
            choice = {"index": 0, "text": delta.get("content", ""), "finish_reason": reason}
        if id_ is not None and fields.get("return_token_ids"):
            choice["token_ids"] = [id_]
        return self._event_of(fields, choices=[choice])

    def _event_of(self, fields: dict[str, Any], **extra: Any) -> bytes:
        body = {"id": f"{self.name}-{len(self.calls)}", "created": len(self.calls), "model": self.name, **extra}
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def talkers(count: int, tokens: Sequence[str], *breaks: int | None, **kwargs: Any) -> list[Talker]:
    """Several engines that share their breaks: the first stream breaks first, on any engine."""
    made = [Talker(tokens, *breaks, name=f"e{i}", **kwargs) for i in range(count)]
    for talker in made:
        talker.breaks = made[0].breaks
    return made


def _usage_of(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


class StreamTranscript:
    """The decoded stream of a client; AssertionError for a stream that no single server would have sent."""

    def __init__(self, stream: bytes) -> None:
        events = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event]
        self.done = events[-1:] == [b"[DONE]"]
        self.chunks = [json.loads(event) for event in events if event != b"[DONE]"]
        assert events.count(b"[DONE]") == self.done
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        self.text = "".join((c["text"] if "text" in c else c["delta"].get("content")) or "" for c in choices)
        self.reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]
        self.usage = [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in self.chunks}) <= 1
        assert sum("role" in choice.get("delta", {}) for choice in choices) <= 1
        assert not any("token_ids" in choice for choice in choices)
        assert self.done <= len(self.reasons) <= 1
        assert len(self.usage) <= 1

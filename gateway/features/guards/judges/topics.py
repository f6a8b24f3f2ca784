"""Topics by embeddings: a text is as close to a topic as to the closest of its examples."""

import asyncio
import base64
import math
import struct
from collections.abc import Sequence
from operator import mul

import msgspec
from msgspec import Raw

from adapters.answer import Answer
from adapters.errors import BackendError, UpstreamTimeout
from adapters.wire.openai import chat as openai
from config.schema.guards import TopicsGuardConfig
from gateway.features.guards.judges.base import GuardCalls, Judge

SHORT = 40
"""Characters below which a text need not have a topic of `allow`."""
AT_ONCE = 256
"""Examples of one request for embeddings."""
Vector = Sequence[float]
_encode = msgspec.json.Encoder().encode


class TopicJudge(Judge):
    """Compares the embedding of a text with those of examples, which are computed once, at the first text."""

    def __init__(self, config: TopicsGuardConfig) -> None:
        super().__init__(config)
        self._config = config
        self._denied: list[Vector] | None = None
        self._allowed: list[Vector] = []
        self._learning = asyncio.Lock()

    async def finds(self, text: str, calls: GuardCalls) -> bool:
        if self._denied is None:
            try:
                async with asyncio.timeout(self.timeout), self._learning:
                    if self._denied is None:
                        await self._learn(calls)
            except TimeoutError:
                raise UpstreamTimeout(f"no embeddings of the examples within {self.timeout:g} s") from None
        denied, allowed = self._denied, self._allowed
        assert denied is not None
        if not denied and len(text) < SHORT:
            return False
        (vector,) = await self._embedded([text], calls)
        if any(len(each) != len(vector) for each in (*denied[:1], *allowed[:1])):
            self._denied = None  # the examples are learnt again
            raise BackendError("The model has embeddings of another length now.", code="upstream_bad_response")
        if self._has(vector, denied):
            return True
        return bool(allowed) and len(text) >= SHORT and not self._has(vector, allowed)

    def _has(self, vector: Vector, examples: Sequence[Vector]) -> bool:
        return any(sum(map(mul, vector, each)) >= self._config.threshold for each in examples)

    async def _learn(self, calls: GuardCalls) -> None:
        denied = [text for topic in self._config.deny for text in topic.examples]
        allowed = [text for topic in self._config.allow for text in topic.examples]
        self._allowed = await self._embedded(allowed, calls)
        self._denied = await self._embedded(denied, calls)

    async def _embedded(self, texts: Sequence[str], calls: GuardCalls) -> list[Vector]:
        model, vectors = self._config.embed, list[Vector]()
        for at in range(0, len(texts), AT_ONCE):
            part = texts[at : at + AT_ONCE]
            fields = {"model": Raw(_encode(model)), "input": Raw(_encode(part))}
            answer = await calls.call(model, openai.embedding_request(fields, sum(map(len, part))), self.timeout)
            vectors += _vectors(answer, len(part))
        return vectors


def _vectors(answer: Answer, count: int) -> list[Vector]:
    """The vectors of an answer, each of the length 1."""
    try:
        rows = sorted(msgspec.json.decode(answer.body or b"")["data"], key=lambda row: int(row.get("index", 0)))
        vectors = [_unit(row["embedding"]) for row in rows]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError, struct.error):
        raise BackendError("The answer has no embeddings.", code="upstream_bad_response") from None
    if len(vectors) != count:
        raise BackendError("The answer has other embeddings than one a text.", code="upstream_bad_response")
    return vectors


def _unit(values: str | Sequence[float]) -> Vector:
    if isinstance(values, str):
        data = base64.b64decode(values)
        values = struct.unpack(f"<{len(data) // 4}f", data)
    norm = math.sqrt(sum(map(mul, values, values)))
    if not norm or not math.isfinite(norm):  # it is close to nothing, so each text would pass
        raise ValueError("the embedding has no direction")
    return [value / norm for value in values]

"""Clients of the soak: each sends another kind of request every time and checks the answer; some disconnect early."""

import asyncio
import json
import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from loadtests.llm.headrace import MODEL
from loadtests.llm.workloads import Word

LONGEST_S = 120.0
COUNTING = "1, 2, 3, 4, 5, 6, 7, 8,"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}
REFUSED: Sequence[tuple[int, Mapping[str, object]]] = (
    (400, {"prompt": "a", "n": 0}),
    (400, {"prompt": "a", "temperature": -1}),
    (400, {"prompt": "a", "max_tokens": "many"}),
    (400, {"prompt": "a", "stop": ["1", "2", "3", "4", "5"]}),
    (400, {"prompt": []}),
    (400, {"prompt": [10**9]}),
    (400, {"prompt": [7] * 5000}),
    (400, {"prompt": "a", "logit_bias": {"99999999": 1}}),
    (404, {"prompt": "a", "model": "unknown"}),
)
"""Invalid requests and the status of each refusal."""


KINDS = ("stream", "sampled", "known", "grammar", "embedding", "left", "refused")


@dataclass(slots=True)
class Seen:
    """The answers by kind. `wrong` are incorrect answers."""

    right: Counter[str] = field(default_factory=Counter)
    busy: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


Operation = Callable[[aiohttp.ClientSession], Awaitable[None]]


class Wrong(Exception):
    """An answer that does not fulfil its request."""


class Busy(Exception):
    """A correct refusal: the queue is full."""


class Clients:
    """A number of concurrent clients, each with one request at a time."""

    def __init__(self, url: str, words: Sequence[Word], model: str = MODEL, without: Sequence[str] = ()) -> None:
        self.seen = Seen()
        self._url, self._words, self._model, self._rng = url, words, model, random.Random(7)
        self._reference: str | None = None
        self._vector: list[float] | None = None
        kinds: dict[str, tuple[int, Operation]] = {
            "stream": (4, self.stream),
            "sampled": (3, self.sampled),
            "known": (2, self.repeated),
            "grammar": (2, self.grammar),
            "embedding": (2, self.embedding),
            "left": (4, self.leave),
            "refused": (3, self.refused),
        }
        self._kinds = {name: kind for name, kind in kinds.items() if name not in without}

    @property
    def kinds(self) -> list[str]:
        return list(self._kinds)

    async def run(self, count: int, ended: asyncio.Event) -> None:
        """Until `ended`, and then wait for the last answers. Later answers must equal the first answers, which are
        computed alone."""
        timeout, connector = aiohttp.ClientTimeout(total=LONGEST_S), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            for kind in self._kinds:
                await self.request(http, kind)
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(self._one(http, ended))

    async def _one(self, http: aiohttp.ClientSession, ended: asyncio.Event) -> None:
        weights = [weight for weight, _ in self._kinds.values()]
        while not ended.is_set():
            await self.request(http, self._rng.choices(self.kinds, weights)[0])

    async def request(self, http: aiohttp.ClientSession, kind: str) -> None:
        """One request of a kind, judged."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._kinds[kind][1](http)
            self.seen.right[kind] += 1
        except Busy:
            self.seen.busy += 1
            await asyncio.sleep(0.05)
        except (Wrong, KeyError, IndexError, TypeError, ValueError, aiohttp.ClientError, TimeoutError) as error:
            self.seen.wrong.append(f"{kind}: {type(error).__name__}: {error}"[:400])
            await asyncio.sleep(0.05)  # pause before the next request to a server that is down
        finally:
            self.seen.slowest_s = max(self.seen.slowest_s, loop.time() - began)

    # ── kinds ─────────────────────────────────────────────────────────────────────────────────────────

    async def stream(self, http: aiohttp.ClientSession) -> None:
        """A greedy stream of any length, whole to its last token."""
        prompt, length = self._text(1, 700), self._rng.randint(1, 120)
        body = {"prompt": prompt, "max_tokens": length, "temperature": 0, "ignore_eos": True}
        usage: dict[str, Any] = {}
        async with self._post(http, "completions", {**body, "stream": True, **_USAGE}) as response:
            await _checked(response)
            async for event in _events(response):
                usage = event.get("usage") or usage
        _expect(usage.get("completion_tokens"), length)

    async def sampled(self, http: aiohttp.ClientSession) -> None:
        """Two sampled answers of a chat with all that changes chances."""
        body = {
            "messages": [{"role": "user", "content": f"Describe{self._text(1, 60)}."}], "n": 2, "seed": 3,
            "max_tokens": self._rng.randint(1, 60), "temperature": 1, "top_p": 0.9, "frequency_penalty": 0.5,
            "logprobs": True, "top_logprobs": 2, "stop": ["\n\n\n"],
        }  # fmt: skip
        answer = await self._whole(http, "chat/completions", body)
        for choice in answer["choices"]:
            _expect(choice["finish_reason"] in ("stop", "length"), True)
            _expect(len(choice["logprobs"]["content"]) > 0, True)

    async def repeated(self, http: aiohttp.ClientSession) -> None:
        """The answer is the same every time, beside any other requests."""
        answer = await self._whole(http, "completions", {"prompt": COUNTING, "max_tokens": 8, "temperature": 0})
        text = answer["choices"][0]["text"]
        self._reference = self._reference or text
        _expect(text, self._reference)

    async def grammar(self, http: aiohttp.ClientSession) -> None:
        """JSON that its schema allows, or as much of it as there was room for."""
        how = {"type": "json_schema", "json_schema": {"name": "ball", "schema": SCHEMA, "strict": True}}
        body = {"messages": [{"role": "user", "content": f"Describe a ball of{self._text(1, 40)}."}]}
        more = {"max_tokens": 60, "temperature": self._rng.choice([0, 1]), "response_format": how}
        choice = (await self._whole(http, "chat/completions", {**body, **more}))["choices"][0]
        if choice["finish_reason"] == "stop":
            ball = json.loads(choice["message"]["content"])
            _expect((set(ball), ball["colour"] in ("red", "green", "blue")), ({"colour", "count"}, True))

    async def embedding(self, http: aiohttp.ClientSession) -> None:
        """Two vectors, of which the first must equal that of earlier requests."""
        answer = await self._whole(http, "embeddings", {"input": [COUNTING, self._text(1, 400)]})
        repeated, other = (one["embedding"] for one in answer["data"])
        self._vector = self._vector or repeated
        _expect((len(repeated), len(other)), (len(self._vector), len(self._vector)))
        likeness = _cosine(repeated, self._vector)
        if not likeness > 0.99 or not all(map(math.isfinite, other)):
            raise Wrong(f"a vector of another text: cosine {likeness}")

    async def leave(self, http: aiohttp.ClientSession) -> None:
        """A client that does not wait for the end, or not even for the beginning."""
        body = {"prompt": self._text(1, 900), "max_tokens": 200, "ignore_eos": True, "stream": True}
        stays = self._rng.randint(0, 8)
        response = None
        try:
            async with asyncio.timeout(self._rng.uniform(0.01, 3) if stays < 4 else LONGEST_S):
                response = await self._post(http, "completions", body)
                await _checked(response)
                async for _ in _events(response):
                    if not (stays := stays - 1):
                        break
        except TimeoutError:
            pass
        finally:
            if response is not None:
                response.close()

    async def refused(self, http: aiohttp.ClientSession) -> None:
        """An invalid request, which must be refused."""
        status, body = self._rng.choice(REFUSED)
        async with self._post(http, "completions", body) as response:
            document = await response.json()
        _expect((response.status, bool(document["error"]["message"])), (status, True))

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def _text(self, least: int, most: int) -> str:
        count = int(least * (most / least) ** self._rng.random())  # short ones are as frequent as long ones
        return "".join(word.text for word in self._rng.choices(self._words, k=count))

    def _post(self, http: aiohttp.ClientSession, path: str, body: Mapping[str, object]) -> Any:
        return http.post(f"{self._url}/v1/{path}", json={"model": self._model, **body})

    async def _whole(self, http: aiohttp.ClientSession, path: str, body: Mapping[str, object]) -> Any:
        async with self._post(http, path, body) as response:
            await _checked(response)
            return await response.json()


_USAGE = {"stream_options": {"include_usage": True}}


async def _checked(response: aiohttp.ClientResponse) -> None:
    if response.status == 429:
        raise Busy
    if response.status != 200:
        raise Wrong(f"{response.status} {await response.text()}")


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """Of a stream, up to `[DONE]`. Raises Wrong if it breaks off."""
    async for line in response.content:
        if line == b"data: [DONE]\n":
            return
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if "error" in event:
                raise Wrong(f"in mid-stream: {event}")
            yield event
    raise Wrong("a stream without an end")


def _expect(actual: object, expected: object) -> None:
    if actual != expected:
        raise Wrong(f"{actual!r} instead of {expected!r}")


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return _dot(one, other) / math.sqrt(_dot(one, one) * _dot(other, other))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(one, other, strict=True))

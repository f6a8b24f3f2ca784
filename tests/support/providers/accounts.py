"""A provider with several keys: each key has a quota of requests and tokens for each model, reported as OpenAI does."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.support.upstreams import stream, whole

Subject = tuple[str, str]
"""A key and a model."""


class Bucket:
    """`limit` every `period` seconds, refilled steadily."""

    def __init__(self, limit: float, period: float, now: float) -> None:
        self.limit, self.rate, self.left, self.at = limit, limit / period, limit, now

    def refill(self, now: float) -> None:
        self.left, self.at = min(self.limit, self.left + self.rate * (now - self.at)), now

    def whole_in(self) -> float:
        return (self.limit - self.left) / self.rate


class Accounts:
    """Counts the requests by key and model. A request without quota is answered with 429 and its reset."""

    def __init__(self, requests: float = 60.0, tokens: float = 60_000.0, period: float = 60.0) -> None:
        self.limits = requests, tokens
        self.period = period
        self.url = ""
        self.sent = Counter[Subject]()
        self.refused = Counter[Subject]()
        self.broke: set[str] = set()
        """Keys without credit."""
        self.others: dict[Subject, float] = {}
        """What other programs leave of a quota of requests."""
        self._buckets: dict[Subject, tuple[Bucket, Bucket]] = {}

    async def __call__(self, http: Request) -> Response:
        if http.method != "POST":
            return Response(200, [("content-type", "application/json")], b'{"data": []}')
        body = json.loads(await http.read())
        key = (http.headers.get("authorization") or "").removeprefix("Bearer ") or (http.headers.get("x-api-key") or "")
        subject, now = (key, body["model"]), asyncio.get_running_loop().time()
        self.sent[subject] += 1
        if key in self.broke:
            return self._error(subject, 402, "insufficient_quota", "You have no credit.", [])
        requests, tokens = self.buckets(subject, now)
        size = len(json.dumps(body)) // 4 + body.get("max_tokens", 256)
        if requests.left < 1 or tokens.left < size:
            wait = max((1 - requests.left) / requests.rate, (size - tokens.left) / tokens.rate, 0.001)
            after = [("retry-after-ms", str(round(wait * 1000)))]
            return self._error(subject, 429, "rate_limit_exceeded", "Rate limit reached.", after)
        requests.left, tokens.left = requests.left - 1, tokens.left - size
        answer = stream("hello there") if body.get("stream") else whole("hello there")
        answer.headers = [*answer.headers, *self.headers(subject)]
        return answer

    def buckets(self, subject: Subject, now: float) -> tuple[Bucket, Bucket]:
        """The quotas of a key and a model."""
        if subject not in self._buckets:
            requests, tokens = (Bucket(limit, self.period, now) for limit in self.limits)
            requests.left = self.others.get(subject, requests.left)
            self._buckets[subject] = requests, tokens
        for bucket in self._buckets[subject]:
            bucket.refill(now)
        return self._buckets[subject]

    def headers(self, subject: Subject) -> list[tuple[str, str]]:
        """The headers that report them."""
        return [
            header
            for unit, bucket in zip(("requests", "tokens"), self._buckets[subject], strict=True)
            for header in (
                (f"x-ratelimit-limit-{unit}", str(round(bucket.limit))),
                (f"x-ratelimit-remaining-{unit}", str(int(bucket.left))),
                (f"x-ratelimit-reset-{unit}", f"{bucket.whole_in():.3f}s"),
            )
        ]

    def _error(
        self, subject: Subject, status: int, code: str, message: str, headers: list[tuple[str, str]]
    ) -> Response:
        self.refused[subject] += 1
        body: dict[str, Any] = {"error": {"message": message, "type": code, "code": code, "param": None}}
        return Response(status, [("content-type", "application/json"), *headers], json.dumps(body).encode())


@asynccontextmanager
async def accounts(**options: float) -> AsyncIterator[Accounts]:
    """One that listens."""
    made = Accounts(**options)
    server = Server(made)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    made.url = f"http://{host}:{port}/v1"
    try:
        yield made
    finally:
        await server.aclose()

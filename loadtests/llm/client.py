"""The client of the LLM benchmark: it holds a number of requests in flight, and records when each segment arrives.

It shares its cores with the server, so nothing is parsed before the load is over: see ``events``. A connection for
each request, which the server closes, marks the end of an answer without parsing it.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from loadtests.llm.events import Answer, Segment, read_answer
from loadtests.llm.workloads import PromptRequest

PATH = "/v1/completions"
TIMEOUT_S = 900.0
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Door:
    """The address of a server. `as_text`: prompts are text, not token ids. `extra` is part of every body."""

    port: int
    model: str
    key: str = ""
    as_text: bool = False
    extra: Mapping[str, object] = field(default_factory=dict)

    def request(self, prompt: PromptRequest) -> bytes:
        """The whole HTTP/1.1 request: a greedy stream that ends at its length alone."""
        document = {
            "model": prompt.model or self.model,
            "prompt": prompt.text if self.as_text else prompt.prompt,
            "max_tokens": prompt.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra,
        }
        if self.as_text:
            del document["ignore_eos"], document["stream_options"]
        return self.post(PATH, _encode(document))

    def post(self, path: str, body: bytes) -> bytes:
        """A request of any kind, after which the server is to close."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n"
        )
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{head}{key}\r\n".encode() + body


class Exchange(asyncio.Protocol):
    """One request, and all data received until the other side closes."""

    def __init__(self, request: bytes) -> None:
        self.sent = 0.0
        self.segments: list[Segment] = []
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.sent = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.segments.append(Segment(time.perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


@dataclass(frozen=True, slots=True)
class Load:
    """The result of one point of load: answers, failures, and the seconds of the clock and of this client's CPU."""

    answers: Sequence[Answer]
    failed: Sequence[str]
    wall_s: float
    client_cpu_s: float


def run(door: Door, prompts: Sequence[PromptRequest], at_once: int) -> Load:
    """All of them, `at_once` in flight."""
    requests = [door.request(prompt) for prompt in prompts]
    cpu = time.process_time()
    exchanges, wall = asyncio.run(_run(door.port, requests, at_once))
    cpu = time.process_time() - cpu
    answers, failed = [], []
    for prompt, exchange in zip(prompts, exchanges, strict=True):
        try:
            answers.append(_checked(prompt, read_answer(exchange.sent, exchange.segments)))
        except Exception as error:  # any response that cannot be read is a failure of the server
            failed.append(f"{type(error).__name__}: {error}")
    return Load(answers, failed, wall, cpu)


def _checked(prompt: PromptRequest, answer: Answer) -> Answer:
    if (answer.prompt_tokens, answer.tokens) != (len(prompt.prompt), prompt.max_tokens):
        expected = f"{len(prompt.prompt)} + {prompt.max_tokens}"
        raise ValueError(f"{answer.prompt_tokens} + {answer.tokens} tokens instead of {expected}")
    return answer


async def _run(port: int, requests: Sequence[bytes], at_once: int) -> tuple[list[Exchange], float]:
    exchanges = [Exchange(request) for request in requests]
    waiting = iter(exchanges)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(_send_in_turn(port, waiting))
    return exchanges, time.perf_counter() - began


async def _send_in_turn(port: int, waiting: Iterator[Exchange]) -> None:
    for exchange in waiting:
        await _exchange(port, exchange)


async def _exchange(port: int, exchange: Exchange) -> None:
    """Until the server closes; a refused connection or a wait that is too long leaves it without an answer."""
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.create_connection(lambda: exchange, "127.0.0.1", port)
    except OSError:
        return
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await exchange.closed
    except TimeoutError:
        pass
    finally:
        transport.close()

"""Requests at a steady rate to gateways before mortal servers, and the truth of each answer."""

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.mortal_server import words
from tests.support.processes import GatewayProcess


@dataclass
class Exchange:
    """One request and its answer."""

    began: float
    """By the clock of the gateway's log."""
    status: int
    body: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    question: str = ""


class Clients:
    """Send requests at a steady rate, independent of their outcome, or at a lower rate on a slow machine."""

    def __init__(self, g: GatewayProcess, key: str, in_flight: int = 40) -> None:
        self._places = asyncio.Semaphore(in_flight)
        self.ended = 0
        self._url = f"{g.url}/v1/chat/completions"
        self._headers = {"authorization": f"Bearer {key}"}
        self._numbers = itertools.count()
        self.exchanges: list[Exchange] = []

    async def chat(self, http: aiohttp.ClientSession, *, stream: bool = False) -> None:
        question = f"q{next(self._numbers)}"
        body = {"model": "chat", "messages": [{"role": "user", "content": question}], "stream": stream}
        exchange = Exchange(time.time(), 0, question=question)
        self.exchanges.append(exchange)
        async with http.post(self._url, json=body, headers=self._headers) as response:
            text = await response.text()
        if response.content_type == "text/event-stream":
            exchange.events = [event.removeprefix("data: ") for event in text.split("\n\n") if event]
        else:
            exchange.body = json.loads(text)
        exchange.status = response.status

    async def run(self, rate: float, seconds: float, *, stream: bool = False) -> None:
        """Send `rate` requests a second, then wait for the last answer."""

        async def send(http: aiohttp.ClientSession) -> None:
            try:
                await self.chat(http, stream=stream)
            finally:
                self._places.release()
                self.ended += 1

        loop = asyncio.get_running_loop()
        began = loop.time()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            asyncio.TaskGroup() as group,
        ):
            for number in range(int(rate * seconds)):
                await asyncio.sleep(began + number / rate - loop.time())
                await self._places.acquire()
                group.create_task(send(http))


def ending(exchange: Exchange) -> str:
    """How a stream ended; AssertionError if its text is wrong."""
    if exchange.status != 200:
        assert exchange.body["error"]["code"], exchange
        return "refused"
    truth = words(exchange.question)
    chunks = [json.loads(event) for event in exchange.events if event != "[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    text = [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]
    assert "".join(text) == "".join(truth)[: len("".join(text))], exchange
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    if exchange.events[-1] == "[DONE]":
        assert (len(text), reasons) == (len(truth), ["stop"]), exchange
        return "whole"
    assert chunks[-1]["error"]["code"], exchange
    assert not reasons or len(text) == len(truth), exchange  # it was killed between its last chunk and its [DONE]
    return "broken, and said so"

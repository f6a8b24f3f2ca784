"""Chat users for locust: each pauses, sends a request and reads the answer as it arrives.

    HEADRACE_KEY=hr-… locust -f loadtests/locustfile.py --host http://127.0.0.1:8080 --model smollm2

Besides locust's own requests, a streaming user reports the latencies that a person notices: ``ttft``, from the
request to the first text, ``inter_token``, between one piece of text and the next, and ``answer``, from
the request to the end. An answer that ends without ``[DONE]``, or with an error event, is a failure.
"""

# locust is not among the types that are checked here: its classes and decorators have none to offer.
# mypy: disable-error-code="misc, untyped-decorator"

import json
import os
import random
import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from typing import Any

from locust import HttpUser, between, events, task

PATH = "/v1/chat/completions"
QUESTIONS = (
    "What is a headrace?",
    "Explain in two sentences how a water turbine works.",
    "Write a haiku about a river that is led to a mill.",
    "A pump moves 40 litres a second. How long does it take to fill 12 cubic metres?",
    "List three causes of a slow database query, the most common first.",
    "Translate to French: the night shift starts at ten and ends at six.",
)


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser) -> None:
    """Options of this file, beside locust's own; each can be given in the environment."""
    env = os.environ
    parser.add_argument("--model", default=env.get("HEADRACE_MODEL", "smollm2"), help="model to request")
    parser.add_argument("--max-tokens", type=int, default=64, help="longest answer")
    parser.add_argument("--key-env", default="HEADRACE_KEY", help="environment variable with the API key")


class BrokenStreamError(Exception):
    """A stream that is not a whole answer."""


class ChatUser(HttpUser):
    """One person with one question after another.

    On ``requests``, not on locust's FastHttpUser: that one hands a stream on in blocks of a fixed size, so
    that tokens would seem to come in bursts.
    """

    abstract = True
    wait_time = between(0.5, 3.0)  # think time, seconds

    def on_start(self) -> None:
        """Reads the key from the environment, so that it is in no process list and no report."""
        options = self.environment.parsed_options
        key = os.environ.get(options.key_env)
        if not key:
            raise SystemExit(f"set {options.key_env} to an API key (headrace keys create --tenant NAME)")
        self.headers = {"Authorization": f"Bearer {key}"}

    def question(self, *, stream: bool) -> dict[str, Any]:
        """The body of the next request."""
        options = self.environment.parsed_options
        return {
            "model": options.model,
            "max_tokens": options.max_tokens,
            "stream": stream,
            "messages": [{"role": "user", "content": random.choice(QUESTIONS)}],
        }


class PlainUser(ChatUser):
    """Waits for the whole answer."""

    weight = 1

    @task
    def chat(self) -> None:
        """One answer, which must hold a choice and its usage."""
        body = self.question(stream=False)
        with self.client.post(PATH, json=body, headers=self.headers, name="chat", catch_response=True) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}: {response.text[:200]}")
                return
            answer = response.json()
            if not answer.get("choices") or "usage" not in answer:
                response.failure("an answer without choices or usage")


class StreamingUser(ChatUser):
    """Reads the answer as a stream."""

    weight = 3

    @task
    def chat(self) -> None:
        """One streamed answer, and the events of it."""
        body, began = self.question(stream=True), time.perf_counter()
        with self.client.post(
            PATH, json=body, headers=self.headers, name="chat stream", catch_response=True, stream=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}: {response.text[:200]}")
                return
            try:
                self.read(response.iter_lines(chunk_size=None), began)
            except BrokenStreamError as error:
                response.failure(str(error))

    def read(self, lines: Iterable[bytes], began: float) -> None:
        """Reads one stream to its end.

        Raises:
            BrokenStreamError: it has an error event, or ends without the mark of its end.
        """
        last, pieces = began, 0
        for data in sse_data(lines):
            now = time.perf_counter()
            if data == b"[DONE]":
                self.report("answer", now - began)
                return
            chunk = json.loads(data)
            if "error" in chunk:
                raise BrokenStreamError(f"broken off after {pieces} pieces: {chunk['error']}")
            if any(choice["delta"].get("content") for choice in chunk["choices"]):
                self.report("inter_token" if pieces else "ttft", now - last)
                last, pieces = now, pieces + 1
        raise BrokenStreamError(f"ended without [DONE] after {pieces} pieces")

    def report(self, event: str, seconds: float) -> None:
        """One event for locust's statistics."""
        self.environment.events.request.fire(
            request_type="SSE",
            name=event,
            response_time=seconds * 1000,
            response_length=0,
            exception=None,
            context={},
        )


def sse_data(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The payloads of an OpenAI stream, one event a line."""
    for line in lines:
        if line.startswith(b"data:"):
            yield line.removeprefix(b"data:").strip()

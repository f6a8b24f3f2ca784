"""Users of all kinds for locust. Every answer is checked. A wrong answer is a failure whose text begins with `wrong`; a
correct error of an unavailable server is a failure whose text begins with `refused`.
"""

# locust is not among the types that are checked here.
# mypy: disable-error-code="misc, untyped-decorator"

import json
import os
import random
from typing import Any

from locust import FastHttpUser, between, task

from loadtests.fleet.work import ADDERS, SCALE

TRUTHFUL = {429, 502, 503, 504}
"""Statuses of a server that was killed during an answer or has not restarted yet."""


def refused(response: Any) -> str:
    """The failure text of a response; empty if the response is an answer."""
    status, text = response.status_code, response.text or ""
    if status == 200:
        return ""
    if status == 0:
        return f"wrong: the connection broke: {response.error}"
    return f"refused {status}" if status in TRUTHFUL and "error" in text else f"wrong {status}: {text[:300]}"


class User(FastHttpUser):
    """Sends a request, checks the answer and pauses."""

    abstract = True
    wait_time = between(0.1, 0.5)
    connection_timeout = network_timeout = 120.0

    def on_start(self) -> None:
        self.headers = {"Authorization": f"Bearer {os.environ['HEADRACE_KEY']}"}

    def post(self, path: str, body: Any, name: str, check: Any) -> None:
        """Post a body. `check` returns the error in the answer's document, or an empty text."""
        with self.client.post(path, json=body, headers=self.headers, name=name, catch_response=True) as response:
            if refusal := refused(response):
                response.failure(refusal)
            elif wrong := check(response.json()):
                response.failure(f"wrong answer: {wrong}")


class Adder(User):
    """Rows of numbers, whose sum is known, to each system in turn."""

    weight = 6

    @task
    def add(self) -> None:
        system = random.choice(ADDERS)
        one, other = ([random.randrange(1000) for _ in range(16)] for _ in range(2))
        total = [x + y for x, y in zip(one, other, strict=True)]
        shape = [16] if system in ("torchserve", "ray-serve") else [1, 16]
        if system == "bentoml":
            inputs = [{"name": "rows", "datatype": "INT32", "shape": [1, 2, 16], "data": [*one, *other]}]
        else:
            rows = {"INPUT0": one, "INPUT1": other}
            inputs = [{"name": name, "datatype": "INT32", "shape": shape, "data": row} for name, row in rows.items()]

        def check(document: Any) -> str:
            data = [value for row in document["outputs"][:1] for value in row["data"]][:16]
            return "" if data == total else f"{data} instead of {total}"

        self.post(f"/v2/models/add-{system}/infer", {"id": "1", "inputs": inputs}, f"add-{system}", check)


class Scaler(User):
    """Numbers that come back multiplied."""

    @task
    def scale(self) -> None:
        numbers = [float(random.randrange(1000)) for _ in range(4)]
        inputs = [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": numbers}]

        def check(document: Any) -> str:
            (data,) = [output["data"] for output in document["outputs"] if output["name"] == "y"]
            return "" if data == [SCALE * number for number in numbers] else f"{data} of {numbers}"

        self.post("/v2/models/scale/infer", {"inputs": inputs}, "scale", check)


class Sorter(User):
    """The same file to two systems: the label must be one."""

    weight = 2
    label: int | None = None

    @task
    def magika(self) -> None:
        data = [ord(character) for character in ("import os\nprint(os.getcwd())\n" * 80)[:2048]]
        inputs = [{"name": "bytes", "datatype": "INT32", "shape": [1, 2048], "data": data}]

        def check(document: Any) -> str:
            scores = document["outputs"][0]["data"]
            label = scores.index(max(scores))
            before, Sorter.label = Sorter.label, label
            return "" if before in (None, label) else f"label {label} after {before}"

        self.post("/v2/models/magika/infer", {"inputs": inputs}, "magika", check)


class Talker(User):
    """A short chat, whole or streamed, to two engines with the same weights."""

    weight = 2
    wait_time = between(0.5, 2)

    def body(self, *, stream: bool) -> dict[str, Any]:
        question = random.choice(("What is a headrace?", "Count to ten.", "Name a river."))
        return {
            "model": "chat",
            "max_tokens": 12,
            "stream": stream,
            "messages": [{"role": "user", "content": question}],
        }

    @task
    def chat(self) -> None:
        def check(document: Any) -> str:
            choice = document["choices"][0]
            content, why = choice["message"]["content"], choice["finish_reason"]
            right = content and why in ("stop", "length") and document["usage"]["completion_tokens"] > 0
            return "" if right else json.dumps(document)[:300]

        self.post("/v1/chat/completions", self.body(stream=False), "chat", check)

    @task
    def stream(self) -> None:
        body, path = self.body(stream=True), "/v1/chat/completions"
        with self.client.post(path, json=body, headers=self.headers, name="chat stream", catch_response=True) as answer:
            events = [line[6:] for line in (answer.text or "").splitlines() if line.startswith("data: ")]
            if refusal := refused(answer):
                answer.failure(refusal)
            elif not events:
                answer.failure(f"wrong: a stream without events: {answer.text}")
            elif "error" in json.loads(events[-1] if events[-1] != "[DONE]" else "{}"):
                answer.failure("refused: the stream ended with an error event")
            elif events[-1] != "[DONE]":
                answer.failure(f"wrong: the stream ended with {events[-1][:200]}")

"""Clients of a tensor model for locust: rows of numbers in, sums out, as JSON or as binary tensors.

    HEADRACE_KEY=hr-… locust -f loadtests/tensor_locustfile.py --host http://127.0.0.1:8080 --model add_sub

For the model `add_sub` of `loadtests/tensors/models`, behind the gateway or alone. Every answer is checked: one with
other numbers than the sum is a failure.
"""

# mypy: disable-error-code="misc, untyped-decorator"

import json
import os
import random
import struct
from argparse import ArgumentParser
from typing import Any

from locust import FastHttpUser, constant_throughput, events, task

HEADER = "Inference-Header-Content-Length"


@events.init_command_line_parser.add_listener
def add_options(parser: ArgumentParser) -> None:
    """Options of this file, beside locust's own."""
    parser.add_argument("--model", default="add_sub", help="model to request")
    parser.add_argument("--rows", type=int, default=1, help="rows of one request")
    parser.add_argument("--per-second", type=float, default=10, help="requests a second of one user")
    parser.add_argument("--key-env", default="HEADRACE_KEY", help="environment variable with the API key, if any")


class TensorUser(FastHttpUser):
    """Sends requests at a steady rate."""

    abstract = True

    def on_start(self) -> None:
        options = self.environment.parsed_options
        key = os.environ.get(options.key_env)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.path, self.rows = f"/v2/models/{options.model}/infer", options.rows

    def wait_time(self) -> float:
        pace: float = constant_throughput(self.environment.parsed_options.per_second)(self)
        return pace

    def numbers(self) -> tuple[list[int], list[int]]:
        """Two inputs, new in each request."""
        count = 16 * self.rows
        return [random.randrange(1000) for _ in range(count)], [random.randrange(1000) for _ in range(count)]

    def send(self, body: bytes, headers: dict[str, str], expected: list[int]) -> None:
        """Post it, and check the sum."""
        headers = {**self.headers, **headers, "Content-Type": "application/json"}
        with self.client.post(self.path, data=body, headers=headers, catch_response=True) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}: {response.text[:200]}")
            elif self.sum(response) != expected:
                response.failure("the sum is not the sum")

    def sum(self, response: Any) -> list[int]:
        """The first output, however it came."""
        raise NotImplementedError


class JsonUser(TensorUser):
    """Numbers as JSON."""

    @task
    def infer(self) -> None:
        one, other = self.numbers()
        inputs = [
            {"name": f"INPUT{i}", "datatype": "INT32", "shape": [self.rows, 16], "data": data}
            for i, data in enumerate((one, other))
        ]
        self.send(json.dumps({"inputs": inputs}).encode(), {}, [x + y for x, y in zip(one, other, strict=True)])

    def sum(self, response: Any) -> list[int]:
        sums: list[int] = next(out for out in response.json()["outputs"] if out["name"] == "OUTPUT0")["data"]
        return sums


class BinaryUser(TensorUser):
    """Numbers as they lie in memory."""

    @task
    def infer(self) -> None:
        one, other = self.numbers()
        size = 64 * self.rows
        inputs = [
            {
                "name": f"INPUT{i}",
                "datatype": "INT32",
                "shape": [self.rows, 16],
                "parameters": {"binary_data_size": size},
            }
            for i in (0, 1)
        ]
        output = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
        head = json.dumps({"inputs": inputs, "outputs": [output]}).encode()
        blobs = struct.pack(f"<{len(one) * 2}i", *one, *other)
        expected = [x + y for x, y in zip(one, other, strict=True)]
        self.send(head + blobs, {HEADER: str(len(head))}, expected)

    def sum(self, response: Any) -> list[int]:
        data: bytes = response.content[int(response.headers[HEADER]) :]
        return list(struct.unpack(f"<{len(data) // 4}i", data))

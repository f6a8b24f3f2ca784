"""Requests for sums from several threads: `with Load(url, key) as load`."""

import json
import random
import re
import threading
import time
from collections import Counter
from http.client import HTTPConnection
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

THREADS = 4
PAUSE = 0.01
WAIT_SECONDS = 300.0


class Load:
    """Counts the statuses of answers. `wrong` are answers with wrong sums, `failures` the errors of the others."""

    def __init__(self, url: str, key: str) -> None:
        self.results: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.wrong: list[Any] = []
        self._url = url
        self._key = key
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(THREADS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)

    def until_more(self, count: int) -> None:
        """Wait for further successes."""
        target, end = self.results["200"] + count, time.monotonic() + WAIT_SECONDS
        while self.results["200"] < target:
            assert time.monotonic() < end, self.results
            time.sleep(0.05)

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._over.wait(PAUSE):
            numbers = [rng.randrange(1000) for _ in range(16)]
            result, answer = ask(self._url, self._key, numbers)
            if result == "200" and answer["outputs"][0]["data"] != [2 * number for number in numbers]:
                self.wrong.append(answer)
            self.results[result] += 1
            if result != "200":
                self.failures[re.sub(r"\d+", "N", str(answer))[:200]] += 1


def sent(url: str, key: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """The status and the body of the answer to one request, a POST if it has a body."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT_SECONDS)
    try:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask(url: str, key: str, numbers: list[int]) -> tuple[str, Any]:
    """The status of one request, and its answer."""
    shape = {"shape": [1, 16], "datatype": "INT32", "data": numbers}
    body = {"inputs": [{"name": name, **shape} for name in ("INPUT0", "INPUT1")], "outputs": [{"name": "OUTPUT0"}]}
    status, answer = sent(url, key, "/v2/models/add_sub/infer", body)
    return str(status), json.loads(answer)


def code(url: str, key: str) -> str:
    """The status of one request."""
    return ask(url, key, list(range(16)))[0]


def is_accepted(url: str, key: str) -> bool:
    """Whether the gateway accepts a key."""
    return sent(url, key, "/v1/models")[0] == 200


def streamed(url: str, key: str, prompt: str) -> str:
    """The text of a streamed chat. Raises `AssertionError` if the stream is not whole."""
    body = {"model": "chat", "messages": [{"role": "user", "content": prompt}], "max_tokens": 8, "stream": True}
    status, answer = sent(url, key, "/v1/chat/completions", {**body, "temperature": 0})
    lines = answer.decode().split("\n\n")
    assert status == 200, lines
    *events, end = [line.removeprefix("data: ") for line in lines if line]
    assert end == "[DONE]", lines
    return "".join(choice["delta"].get("content") or "" for event in events for choice in json.loads(event)["choices"])

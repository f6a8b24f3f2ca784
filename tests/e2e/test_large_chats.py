"""No client waits while the gateway or the LLM runtime decodes a request of many values.

A prober, which is another client, measures how long a small request takes meanwhile. `HEADRACE_LARGE_VALUES` sets the
number of values.
"""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.llm.weights.store import resolve
from tests.support.prober import Prober
from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(1800)

VALUES = int(os.environ.get("HEADRACE_LARGE_VALUES", "100_000"))
BOUND = 0.05
"""Seconds that a small request may wait."""
TRIES = 12
"""A server that holds its loop does so each time; a busy machine does not."""
MODEL = "bundled:smollm2-135m-instruct"

Body = Callable[[int], bytes]
"""A body of so many values."""


def _list(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


def turns(count: int) -> bytes:
    return b'{"model":"m","max_tokens":1,"messages":%b}' % _list(b'{"role":"user","content":"hi there"}', count)


def parts(count: int) -> bytes:
    content = _list(b'{"type":"text","text":"hi"}', count)
    return b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":%b}]}' % content


def tools(count: int) -> bytes:
    schema = b'{"type":"object","properties":{%b}}' % b",".join([b'"f%d":{}' % place for place in range(count)])
    tool = b'{"type":"function","function":{"name":"f","parameters":%b}}' % schema
    return b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}],"tools":[%b]}' % tool


def fields(count: int) -> bytes:
    return b'{"model":"m","max_tokens":1,%b,"messages":[{"role":"user","content":"hi"}]}' % b",".join(
        [b'"f%d":1' % place for place in range(count)]
    )


def text(count: int) -> bytes:
    return b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"%b"}]}' % (b"hi there, " * count)


def items(count: int) -> bytes:
    return b'{"model":"m","max_output_tokens":1,"input":%b}' % _list(b'{"role":"user","content":"hi there"}', count)


def prompt(count: int) -> bytes:
    return b'{"model":"m","max_tokens":1,"prompt":%b}' % _list(b"1", 10 * count)


def tokens(count: int) -> bytes:
    return b'{"model":"m","input":%b}' % _list(b"1", 10 * count)


def texts(count: int) -> bytes:
    return b'{"model":"m","input":%b}' % _list(b'"%b"' % (b"hi, " * (count // 2048)), 2048)


CHAT, MESSAGES, COUNT = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
DOORS: dict[str, tuple[Body, ...]] = {
    CHAT: (turns, parts, tools, fields, text),
    "/v1/completions": (prompt,),
    "/v1/responses": (items,),
    "/v1/embeddings": (tokens, texts),
}
ANTHROPIC: dict[str, tuple[Body, ...]] = {MESSAGES: (turns, parts, fields, text), COUNT: (turns, parts, text)}
COUNTED: dict[str, tuple[Body, ...]] = {"/v1/responses/input_tokens": (items,)}


def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of the answer."""
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


def waits(prober: Prober, url: str, body: Body, headers: dict[str, str]) -> tuple[float, int]:
    """Seconds that a small request waits at the most, and the status of the large one."""
    sent, longest, status = body(VALUES), list[float](), 0
    for _ in range(TRIES):
        prober.begin()
        status = post(url, sent, headers)
        longest.append(prober.worst())
        if longest[-1] < BOUND:
            break
    return round(min(longest), 3), status


def all_waits(prober: Prober, url: str, doors: dict[str, tuple[Body, ...]], **headers: str) -> dict[Any, Any]:
    measured = {
        (path, body.__name__): waits(prober, url + path, body, headers)
        for path, bodies in doors.items()
        for body in bodies
    }
    assert {status for _, status in measured.values()} <= {200, 400, 404, 413, 422}, measured
    if "HEADRACE_SHOW" in os.environ:
        print(*measured.items(), sep="\n")
    return {case: seconds for case, (seconds, _) in measured.items() if seconds >= BOUND}


@pytest.fixture(scope="module")
def runtime() -> Iterator[tuple[str, int]]:
    """Its address and process."""
    command = [sys.executable, "-m", "runtimes.llm", "--model", str(resolve(MODEL)), "--served-name", "m"]
    options = ["--port", "0", "--max-model-len", "512"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        if "listening on " in line:
            address = line.split("listening on ")[1].strip()
        if "serving m" in line:
            break
    try:
        yield address, process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_many_values_delay_no_other_request_at_the_runtime(runtime: tuple[str, int]) -> None:
    url, pid = runtime
    with Prober(f"{url}/health", pid) as prober:
        assert all_waits(prober, url, {**DOORS, "/tokenize": (turns, parts)}) == {}


async def test_many_values_delay_no_other_request_at_the_gateway(runtime: tuple[str, int], tmp_path: Path) -> None:
    configuration: dict[str, Any] = {
        "pools": [{"name": "llm", "protocol": "openai", "endpoints": [runtime[0]]}],
        "models": [{"name": "m", "routes": [{"to": "llm"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as made:
        headers = {"authorization": f"Bearer {await made.key()}"}
        with Prober(f"{made.url}/v1/models", made.process.pid) as prober:
            assert all_waits(prober, made.url, {**DOORS, **ANTHROPIC, **COUNTED}, **headers) == {}

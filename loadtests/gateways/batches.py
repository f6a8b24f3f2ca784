"""The configuration, the lines and the live requests of the benchmark of batches."""

import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from loadtests.gateways.headrace import TENANT

WORDS = ("river", "stone", "wheel", "light", "paper", "green", "cloud", "horse", "table", "north", "music", "winter")
LIVE_TOKENS, LINE_TOKENS = 24, 32


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """Live requests: how many each second, and how one is sent and measured."""

    rate: float
    send: Callable[[aiohttp.ClientSession, str, Random], Coroutine[Any, Any, float]]


def config(folder: Path, http: int, admin: int, kind: str) -> dict[str, Any]:
    """A gateway with a bundled runtime and batches."""
    runtime: dict[str, Any]
    if kind == "llm":
        model, runtime = "smollm2", {"kind": "llm", "model": "bundled:smollm2-135m-instruct"}
    else:
        model = "magika"
        runtime = {"kind": "tensor", "repository": str(folder / "models"), "bundled": ["magika"]}
    return {
        "version": 1,
        "listen": {"http": f"127.0.0.1:{http}", "admin": f"127.0.0.1:{admin}"},
        "state": {"database": f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
        "batches": {"storage": f"file:{folder}/files"},
        "pools": [{"name": kind, "runtime": runtime}],
        "models": [{"name": model, "routes": [{"to": kind}]}],
        "tenants": [{"name": TENANT, "models": ["*"]}],
    }


def text(rng: Random, words: int) -> str:
    """Words that share no beginning with others."""
    return " ".join(rng.choices(WORDS, k=words))


def chat_lines(count: int, url: str = "/v1/completions") -> bytes:
    """Lines with prompts of about 100 tokens and answers of 32."""
    rng, lines = Random(7), list[bytes]()
    for number in range(count):
        body: dict[str, Any] = {"model": "smollm2", "max_tokens": LINE_TOKENS, "temperature": 0, "ignore_eos": True}
        prompt = text(rng, 80)
        body |= {"prompt": prompt} if url == "/v1/completions" else {"messages": [{"role": "user", "content": prompt}]}
        line = {"custom_id": str(number), "method": "POST", "url": url, "body": body}
        lines.append(json.dumps(line).encode())
    return b"\n".join(lines) + b"\n"


def rows(rng: Random) -> dict[str, Any]:
    data = rng.choices(range(257), k=2048)
    return {"inputs": [{"name": "bytes", "datatype": "INT32", "shape": [1, 2048], "data": data}]}


def tensor_lines(count: int, url: str) -> bytes:
    """Lines with one row each."""
    rng = Random(7)
    bodies = [rows(rng) for _ in range(64)]
    lines = [{"custom_id": str(i), "method": "POST", "url": url, "body": bodies[i % 64]} for i in range(count)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def live_chat(rate: float, words: int) -> LiveLoad:
    """Streams, measured until the first token."""

    async def send(http: aiohttp.ClientSession, url: str, rng: Random) -> float:
        body = {"model": "smollm2", "prompt": text(rng, words), "max_tokens": LIVE_TOKENS, "stream": True,
                "temperature": 0, "ignore_eos": True}  # fmt: skip
        began = time.perf_counter()
        async with http.post(f"{url}/v1/completions", json=body) as response:
            response.raise_for_status()
            first = await response.content.readline()
            seconds = time.perf_counter() - began
            while first:
                first = await response.content.readline()
        return seconds

    return LiveLoad(rate, send)


def live_tensor(rate: float) -> LiveLoad:
    """Inferences of one row, measured until the answer."""

    async def send(http: aiohttp.ClientSession, url: str, rng: Random) -> float:
        body, began = json.dumps(rows(rng)), time.perf_counter()
        headers = {"content-type": "application/json"}
        async with http.post(f"{url}/v2/models/magika/infer", data=body, headers=headers) as response:
            response.raise_for_status()
            await response.read()
        return time.perf_counter() - began

    return LiveLoad(rate, send)

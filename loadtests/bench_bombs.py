"""Measures what other tenants wait while one sends pictures that cost much: `python -m loadtests.bench_bombs --help`.

One gateway decodes pictures and chats of two tenants. In turn, one of them sends nothing, or holds 70 requests in
flight: with the JPEG of 200 KB and 2,800 scans, with pictures that are just small enough for the lane of short jobs, or
with the dearest pictures that are accepted. The other one sends
a small chat, a chat of 4,000 messages and a picture of 10 × 10 pixels, one after the other. The last line is one JSON
object with the medians in milliseconds. Linux's share of time in which a process waited for a processor is printed too.
"""

import argparse
import asyncio
import base64
import io
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp
from aiohttp import web
from PIL import Image

from tests.support.processes import GatewayProcess, gateway

IN_FLIGHT = 70
Request = tuple[str, Any]
"""A path and a body."""


def jpeg(side: int, scans: int, mode: str = "L") -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    out = io.BytesIO()
    Image.new(mode, (side, side)).save(out, "JPEG", progressive=True, quality=50)
    file, end = out.getvalue(), len(out.getvalue()) - 2
    more = scans - file.count(b"\xff\xda")
    return file[:end] + file[file.rfind(b"\xff\xda") : end] * more + file[end:]


def noise(width: int, height: int) -> bytes:
    """A WebP picture that takes about as long as a job in the lane of short ones may be estimated to."""
    out = io.BytesIO()
    Image.effect_noise((width, height), 100).convert("RGB").save(out, "WEBP", quality=90, method=0)
    return out.getvalue()


def pictures(*files: bytes) -> Request:
    """A request to the pipeline that decodes them."""
    data = [base64.b64encode(file).decode() for file in files]
    return "/v2/models/pixels/infer", {
        "inputs": [{"name": "image", "datatype": "BYTES", "shape": [len(data)], "data": data}]
    }


def chat(messages: int) -> Request:
    """A chat of so many messages."""
    turns = [{"role": "user", "content": "hi"}] * messages
    return "/v1/chat/completions", {"model": "chat", "messages": turns}


ATTACKS: Mapping[str, Request | None] = {
    "nothing": None,
    "2,800 scans": pictures(jpeg(4800, 2800)),
    "WebP, short": pictures(noise(1_800, 1_000)),
    "4 × 24 MP": pictures(*[jpeg(4898, 32, "RGB")] * 4),
}
PROBES: Mapping[str, Request] = {
    "chat": chat(1),
    "chat of 4,000 messages": chat(4000),
    "picture of 10 × 10": pictures(jpeg(10, 1)),
}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway before a server that answers every chat at once."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"id": "1", "object": "chat.completion", "created": 1, "choices": [choice]})

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    step = {"name": "d", "in": {"image": "request.image"}, "decode": {"image": {"height": 8, "width": 8}}}
    inputs = [{"name": "image", "datatype": "BYTES", "shape": [-1]}]
    pixels = {"inputs": inputs, "steps": [step], "out": {"pixels": "d.image"}}
    configuration = {
        "pools": [{"name": "main", "endpoints": [url], "probe": None}],
        "models": [{"name": "chat", "routes": [{"to": "main"}]}, {"name": "pixels", "pipeline": pixels}],
        "tenants": [{"name": name, "models": ["chat", "pixels"]} for name in ("acme", "beta")],
    }
    try:
        async with gateway(folder, configuration, forked=False) as made:
            yield made
    finally:
        await runner.cleanup()


async def sent(http: aiohttp.ClientSession, key: str, request: Request) -> tuple[str, float]:
    """The status, with the code of an error, and the milliseconds."""
    began = time.perf_counter()
    path, body = request
    async with http.post(path, json=body, headers={"authorization": f"Bearer {key}"}) as response:
        text = await response.text()
    code = "" if response.status == 200 else f" {text[:60]}"
    return f"{response.status}{code}", 1000 * (time.perf_counter() - began)


@asynccontextmanager
async def attacking(url: str, key: str, attack: Request | None, seen: Counter[str]) -> AsyncIterator[None]:
    """Hold requests of the attack in flight. Refused ones are sent again after a while."""
    if attack is None:
        yield
        return

    async def one(http: aiohttp.ClientSession) -> None:
        while True:
            status, _ = await sent(http, key, attack)
            seen[status] += 1
            await asyncio.sleep(0.5)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as http:
        tasks = [asyncio.create_task(one(http)) for _ in range(IN_FLIGHT)]
        try:
            await asyncio.sleep(3)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def waited() -> float:
    """Microseconds since the start of the machine in which a process waited for a processor."""
    pressure = Path("/proc/pressure/cpu")
    return float(pressure.read_text().split("total=")[1].split()[0]) if pressure.exists() else 0.0


async def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The medians of each attack's probes."""
    times: dict[str, dict[str, list[float]]] = {name: {probe: [] for probe in PROBES} for name in ATTACKS}
    with tempfile.TemporaryDirectory() as folder:
        async with served(Path(folder)) as made:
            acme, beta = await made.key(), await made.key("beta")
            async with aiohttp.ClientSession(made.url) as http:
                for request in PROBES.values():
                    await sent(http, beta, request)
                for _ in range(options.rounds):
                    for name, attack in ATTACKS.items():
                        seen, failed = Counter[str](), Counter[str]()
                        async with attacking(made.url, acme, attack, seen):
                            before, began = waited(), time.perf_counter()
                            for _ in range(options.requests):
                                for probe, request in PROBES.items():
                                    status, milliseconds = await sent(http, beta, request)
                                    times[name][probe].append(milliseconds)
                                    failed.update([status] * (status != "200"))
                            share = (waited() - before) / 1e4 / (time.perf_counter() - began)
                        print(
                            f"{name}: waited for a processor {share:.0f} %; attack {dict(seen)}; failed {dict(failed)}"
                        )
            print("lost workers:", made.output.count("was lost"))
    for name, probes in times.items():
        for probe, values in probes.items():
            print(f"{name:11} {probe:24} median {median(values):8.1f} ms  p90 {quantiles(values, n=10)[-1]:8.1f} ms")
    return {
        name: {probe: round(median(values), 1) for probe, values in probes.items()} for name, probes in times.items()
    }


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_bombs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10, help="of each kind, in a round")
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

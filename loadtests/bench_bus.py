"""Measures messages of a broker beside HTTP requests and beside FastStream: `make bench-bus`. A few minutes.

    python -m loadtests.bench_bus [--messages 20000] [--rounds 5] [--concurrency 64] [--state redis|sqlite]

One server that computes nothing answers all three: our gateway reading a topic of Kafka, the same gateway over HTTP,
and a FastStream consumer that posts each message to the server and publishes the answer. A topic is filled before its
reader starts; the figures are those between 20 % and 90 % of the answers. FastStream runs as many messages at once and
acknowledges a message before it is processed, which is the only way in which it runs several at once: it loses messages
in a crash and has no table of ids, no tenants and no limits. The last line is one JSON object with the medians, the
ratios and their spread. Needs Linux, gcc and redis-server.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.types import Deadline
from loadtests import native, venvs
from loadtests.figures.cpu import Meter
from loadtests.gateways.headrace import create_key
from loadtests.gateways.replies import MODEL, PATH, chat_body
from tests.support.brokers.broker import cloud_event, free_port
from tests.support.brokers.kafka import KafkaBroker
from tests.support.brokers.redis import RedisBroker

FASTSTREAM = ("faststream[kafka]==0.7.8", "aiohttp==3.14.5")
FROM, TO = 0.2, 0.9
PEER = Path(__file__).parent / "bus" / "faststream_consumer.py"


class Point(NamedTuple):
    """Messages or requests a second, and CPU microseconds of each."""

    rate: float
    cpu_us: float


class Bench:
    """The broker, the server, and the arguments."""

    def __init__(self, kafka: KafkaBroker, redis: RedisBroker, server: str, options: argparse.Namespace) -> None:
        self.kafka = kafka
        self.redis = redis
        self.server = server
        self.messages: int = options.messages
        self.concurrency: int = options.concurrency
        self.state: str = options.state
        self.number = 0

    async def fill(self) -> tuple[str, str]:
        """A new topic with all messages, and an empty one for the answers."""
        self.number += 1
        topic, answers = f"requests{self.number}", f"answers{self.number}"
        await self.kafka.topics(topic, answers, f"dead{self.number}")
        producer = AIOKafkaProducer(bootstrap_servers=self.kafka.address, linger_ms=20)
        await producer.start()
        try:
            body, sent = chat_body(stream=False), []
            for number in range(self.messages):
                fields = [(name, value.encode()) for name, value in cloud_event(f"{topic}-{number}").items()]
                sent.append(await producer.send(topic, body, headers=fields))
            await asyncio.gather(*sent)
        finally:
            await producer.stop()
        return topic, answers

    async def measured(self, answers: str, root: int) -> Point:
        """The rate of the answers, and the CPU time of a process tree meanwhile."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.kafka.address)
        await consumer.start()
        try:
            partitions = [TopicPartition(answers, number) for number in range(self.kafka.partitions)]

            async def count() -> int:
                return sum((await consumer.end_offsets(partitions)).values())

            begun = await _until(count, int(FROM * self.messages))
            meter, since = Meter.start(root), time.monotonic()
            ended = await _until(count, int(TO * self.messages))
            usage, seconds = meter.stop(), time.monotonic() - since
        finally:
            await consumer.stop()
        return Point((ended - begun) / seconds, usage.cpu_s / (ended - begun) * 1e6)

    # ── the three ─────────────────────────────────────────────────────────────────────────────────────

    async def bus(self, folder: Path) -> Point:
        """Our gateway as a consumer."""
        topic, answers = await self.fill()
        binding = {
            "name": "bench", "broker": self.kafka.url, "topic": topic, "tenant": "bench", "reply": answers,
            "dead_letters": f"dead{self.number}", "concurrency": self.concurrency,
        }  # fmt: skip
        with self.gateway(folder, [binding]) as (process, _):
            return await self.measured(answers, process.pid)

    async def faststream(self, folder: Path) -> Point:
        """FastStream as a consumer."""
        topic, answers = await self.fill()
        python = venvs.ensure("faststream", FASTSTREAM) / "bin/python"
        variables = {
            "BROKER": self.kafka.address, "TOPIC": topic, "ANSWERS": answers, "WORKERS": str(self.concurrency),
            "SERVER": f"{self.server}{PATH}",
        }  # fmt: skip
        with _running([str(python), str(PEER)], folder / "faststream.log", variables) as process:
            return await self.measured(answers, process.pid)

    async def http(self, folder: Path) -> Point:
        """Our gateway over HTTP, with as many requests at once."""
        with self.gateway(folder, []) as (process, file):
            key = create_key(Path(sys.executable), file)
            port = yaml.safe_load(file.read_text())["listen"]["http"].rpartition(":")[2]
            client = Client(f"http://127.0.0.1:{port}", max_connections=self.concurrency)
            fields = encode_fields([("authorization", f"Bearer {key}"), ("content-type", "application/json")])
            await _ready(client, fields)
            warm, rest = int(FROM * self.messages), int((TO - FROM) * self.messages)
            await self.send(client, fields, warm)
            meter, since = Meter.start(process.pid), time.monotonic()
            await self.send(client, fields, rest)
            usage, seconds = meter.stop(), time.monotonic() - since
            await client.aclose()
        return Point(rest / seconds, usage.cpu_s / rest * 1e6)

    async def send(self, client: Client, fields: bytes, count: int) -> None:
        """Send requests, `concurrency` at once."""
        numbers, body = iter(range(count)), chat_body(stream=False)

        async def lane() -> None:
            for _ in numbers:
                await _request(client, fields, body)

        await asyncio.gather(*(lane() for _ in range(self.concurrency)))

    @contextmanager
    def gateway(self, folder: Path, bus: Sequence[dict[str, Any]]) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
        state: dict[str, Any] = {"database": f"sqlite:///{folder}/state{self.number}.db"}
        if self.state == "redis" and bus:
            state["redis"] = self.redis.url
        listen = {"http": f"127.0.0.1:{free_port()}", "admin": f"127.0.0.1:{free_port()}", "bus": list(bus)}
        made = {
            "version": 1,
            "listen": listen,
            "state": state,
            "access_log": {"to": str(folder / "access.log")},
            "pools": [{"name": "server", "endpoints": [self.server], "probe": None}],
            "models": [{"name": MODEL, "routes": [{"to": "server"}]}],
            "tenants": [{"name": "bench", "models": ["*"]}],
        }
        file = folder / "headrace.yaml"
        file.write_text(yaml.safe_dump(made, sort_keys=False))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
        with _running(command, folder / "gateway.log") as process:
            yield process, file


@contextmanager
def _running(
    command: Sequence[str], log: Path, variables: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(variables or {})})
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def _until(count: Callable[[], Awaitable[int]], least: int) -> int:
    async with asyncio.timeout(600):
        while (now := await count()) < least:  # noqa: ASYNC110 - another process works meanwhile
            await asyncio.sleep(0.05)
    return now


async def _ready(client: Client, fields: bytes) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                await _request(client, fields, chat_body(stream=False))
                return
            except Exception:
                await asyncio.sleep(0.05)


async def _request(client: Client, fields: bytes, body: bytes) -> None:
    response = await client.request(b"POST", PATH.encode(), fields, body, Deadline(client.now() + 60, 60, 60))
    answer = await response.read()
    assert response.status == 200, answer


async def run(options: argparse.Namespace, folder: Path, server: str) -> dict[str, Any]:
    """All rounds, interleaved."""
    for name in ("kafka", "redis"):
        (folder / name).mkdir()
    kafka, redis = KafkaBroker(folder / "kafka"), RedisBroker(folder / "redis")
    try:
        await kafka.start()
        await redis.start()
        bench = Bench(kafka, redis, server, options)
        points: dict[str, list[Point]] = {"bus": [], "faststream": [], "http": []}
        for number in range(options.rounds):
            for name, measure in (("bus", bench.bus), ("faststream", bench.faststream), ("http", bench.http)):
                point = await measure(folder)
                points[name].append(point)
                print(
                    f"round {number + 1}: {name:10} {point.rate:8.0f} a second, {point.cpu_us:7.1f} us CPU each",
                    flush=True,
                )
        return _figures(points)
    finally:
        await kafka.close()
        await redis.close()


def _figures(points: dict[str, list[Point]]) -> dict[str, Any]:
    cpu = [bus.cpu_us / http.cpu_us for bus, http in zip(points["bus"], points["http"], strict=True)]
    rate = [bus.rate / peer.rate for bus, peer in zip(points["bus"], points["faststream"], strict=True)]
    figures: dict[str, Any] = {}
    for name, ratios in (("cpu_to_http", cpu), ("rate_to_faststream", rate)):
        spread = {"median": median(ratios), "low": min(ratios), "high": max(ratios)}
        figures[name] = {part: round(ratio, 3) for part, ratio in spread.items()}
    for name, each in points.items():
        figures[name] = {
            "per_second": round(median(point.rate for point in each)),
            "cpu_us": round(median(point.cpu_us for point in each), 1),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--state", choices=("redis", "sqlite"), default="redis")
    options = parser.parse_args()
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        program = native.build("mock_upstream")
        process = subprocess.Popen([str(program)], stdout=subprocess.PIPE)
        exits.callback(process.wait)
        exits.callback(process.terminate)
        assert process.stdout is not None
        server = f"http://127.0.0.1:{int(process.stdout.readline())}"
        figures = asyncio.run(run(options, folder, server))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

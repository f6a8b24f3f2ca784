"""Measures batches: `python -m loadtests.bench_batch --help`.

`llm` and `tensor`: live requests at random times through a gateway with a bundled runtime, alone and beside a
saturating batch, round after round; also the batch alone. The report has the p95 of the live requests (the time to the
first token of streams, the whole time of inferences), and the part of the capacity left that the batch takes: its rate
beside live requests ÷ (its rate alone x the part of its CPU time alone that live requests alone do not use).

`vllm`: `headrace batch run` on our engine, and vLLM's `run-batch` on the CPU, with the same file. The time of a run
with two lines, which is that of the start, is subtracted from the time of the whole file. The first start of each
fills its caches and is not measured.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

import aiohttp
import yaml

from loadtests.figures.cpu import processes, thread_times, tree
from loadtests.gateways.batches import LiveLoad, chat_lines, config, live_chat, live_tensor, tensor_lines
from loadtests.gateways.headrace import create_key
from loadtests.llm.headrace import launch, socket_of
from loadtests.peers import vllm
from loadtests.servers import Launch, child, free_port, free_ports
from runtimes.llm.weights.store import resolve

MODEL = "bundled:smollm2-135m-instruct"
START_S = 300.0
SETTLE_S = 3.0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_batch", description=__doc__)
    add = parser.add_argument
    add("--parts", default="llm,tensor,vllm", help="of llm, tensor and vllm, with commas")
    add("--rounds", type=int, default=3, help="rounds of llm and tensor (3)")
    add("--seconds", type=float, default=60.0, help="length of one measurement (60)")
    add("--rate", type=float, default=0.5, help="live streams each second (0.5)")
    add("--prompt", type=int, default=300, help="words of a live stream's prompt (300)")
    add("--inferences", type=float, default=60.0, help="live inferences each second (60)")
    add("--lines", type=int, default=1000, help="lines of the file for vllm (1000)")
    return parser.parse_args(argv)


class Gateway:
    """A running gateway with its key."""

    def __init__(self, url: str, key: str, pid: int) -> None:
        self.url = url
        self.pid = pid
        self._http = aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"})

    async def submit(self, lines: bytes, endpoint: str) -> str:
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", lines, filename="in.jsonl")
        async with self._http.post(f"{self.url}/v1/files", data=form) as response:
            file = await response.json()
        body = {"input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h"}
        async with self._http.post(f"{self.url}/v1/batches", json=body) as response:
            return str((await response.json())["id"])

    async def completed(self, batch: str) -> int:
        async with self._http.get(f"{self.url}/v1/batches/{batch}") as response:
            return int((await response.json())["request_counts"]["completed"])

    async def cancel(self, batch: str) -> None:
        async with self._http.post(f"{self.url}/v1/batches/{batch}/cancel") as response:
            await response.read()
        while True:
            async with self._http.get(f"{self.url}/v1/batches/{batch}") as response:
                if (await response.json())["status"] == "cancelled":
                    return
            await asyncio.sleep(0.2)

    def cpu_s(self) -> float:
        """CPU seconds so far of the gateway and its runtime."""
        return sum(thread_times(tree(self.pid, processes())).values())

    async def live(self, load: LiveLoad, seconds: float, rng: Random) -> list[float]:
        """Send live requests at random times. Returns the measured seconds of each."""
        tasks, end = list[asyncio.Task[float]](), time.monotonic() + seconds
        while (pause := rng.expovariate(load.rate)) + time.monotonic() < end:
            await asyncio.sleep(pause)
            tasks.append(asyncio.create_task(load.send(self._http, self.url, rng)))
        return await asyncio.gather(*tasks)

    async def aclose(self) -> None:
        await self._http.close()


async def compare(g: Gateway, load: LiveLoad, lines: bytes, endpoint: str, options: argparse.Namespace) -> list[Any]:
    """Rounds of live requests alone, the batch alone, and both."""
    rounds, seconds = list[dict[str, float]](), options.seconds
    await g.live(load, 5.0, Random(0))
    for number in range(options.rounds):
        before = g.cpu_s()
        alone = await g.live(load, seconds, Random(number))
        live_cpu = g.cpu_s() - before
        batch = await g.submit(lines, endpoint)
        while not await g.completed(batch):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_S)
        start, before = await g.completed(batch), g.cpu_s()
        await asyncio.sleep(seconds)
        most, batch_cpu, start = await g.completed(batch) - start, g.cpu_s() - before, await g.completed(batch)
        beside = await g.live(load, seconds, Random(number))
        taken = await g.completed(batch) - start
        await g.cancel(batch)
        left = max(1e-9, most * (1.0 - live_cpu / batch_cpu))
        one = {"alone": p95(alone), "beside": p95(beside), "p50_alone": median(alone), "p50_beside": median(beside)}
        rounds.append({**one, "lines_alone": most, "lines_beside": taken, "busy": live_cpu / batch_cpu,
                       "p95": p95(beside) / p95(alone), "left": taken / left})  # fmt: skip
        print(json.dumps({name: round(value, 4) for name, value in rounds[-1].items()}), flush=True)
    return rounds


def p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


async def beside(kind: str, options: argparse.Namespace) -> dict[str, float]:
    """The ratios of one runtime."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-batch-") as name:
        folder, (http, admin) = Path(name), free_ports(2)
        file = folder / "headrace.yaml"
        file.write_text(yaml.safe_dump(config(folder, http, admin, kind), sort_keys=False))
        key = create_key(Path(sys.executable), file)
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        with child(kind, Launch(command), cores, folder) as process:
            g = Gateway(f"http://127.0.0.1:{http}", key, process.pid)
            try:
                await until_ready(admin)
                if kind == "llm":
                    load, lines, endpoint = (
                        live_chat(options.rate, options.prompt),
                        chat_lines(20_000),
                        "/v1/completions",
                    )
                else:
                    load, endpoint = live_tensor(options.inferences), "/v2/models/magika/infer"
                    lines = tensor_lines(20_000, endpoint)
                rounds = await compare(g, load, lines, endpoint, options)
            finally:
                await g.aclose()
    return {f"{kind}: p95 beside the batch/alone": median(r["p95"] for r in rounds),
            f"{kind}: batch's rate/capacity left": median(r["left"] for r in rounds)}  # fmt: skip


async def until_ready(admin: int) -> None:
    end = time.monotonic() + START_S
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{admin}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if time.monotonic() > end:
                raise TimeoutError("the gateway is not ready")
            await asyncio.sleep(0.2)


def beside_vllm(options: argparse.Namespace) -> dict[str, float]:
    """Tokens a second of our engine ÷ those of vLLM, with the same file."""
    gguf, venv = resolve(MODEL, progress=False), vllm.install()
    model = vllm.model(venv, gguf)
    rates: dict[str, list[float]] = {"headrace": [], "vllm": []}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-batch-") as name:
        folder = Path(name)
        sizes = {"few": 2, "all": options.lines}
        for size, count in sizes.items():
            (folder / f"{size}.jsonl").write_bytes(chat_lines(count, "/v1/chat/completions"))
        for number in range(-1, options.rounds):
            for target in rates:
                took = {}
                for size in sizes if number >= 0 else ("few",):
                    run = run_vllm if target == "vllm" else run_ours
                    began = time.monotonic()
                    tokens = run(folder, folder / f"{size}.jsonl", model if target == "vllm" else gguf, venv)
                    took[size] = (time.monotonic() - began, tokens)
                if number < 0:
                    continue
                seconds = took["all"][0] - took["few"][0]
                if seconds < took["few"][0] / 4:
                    raise SystemExit(f"{target}: the file takes {seconds:.1f} s beyond the start: give more --lines")
                rates[target].append((took["all"][1] - took["few"][1]) / seconds)
                print(json.dumps({"target": target, "tokens_per_second": round(rates[target][-1], 1)}), flush=True)
    return {"vllm: tokens a second, headrace/vllm": median(rates["headrace"]) / median(rates["vllm"])}


def run_vllm(folder: Path, source: Path, model: Path, venv: Path) -> int:
    out = folder / "vllm.jsonl"
    command = [str(venv / "bin/vllm"), "run-batch", "-i", str(source), "-o", str(out), "--model", str(model),
               "--served-model-name", "smollm2", "--dtype", "bfloat16", "--max-model-len", "4352"]  # fmt: skip
    env = {**os.environ, **vllm.launch(venv, model, 0).env}
    subprocess.run(command, check=True, capture_output=True, env=env, timeout=1800)
    return tokens_of(out)


def run_ours(folder: Path, source: Path, model: Path, _: Path) -> int:
    """The runtime, started anew as `run-batch` starts its engine, and the command line."""
    out, port = folder / "ours.jsonl", free_port()
    out.unlink(missing_ok=True)
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    with child("runtime", launch(model, "bf16", port, socket_of(folder, "runtime")), cores, folder):
        end = time.monotonic() + START_S
        while subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/health"], capture_output=True).returncode:
            assert time.monotonic() < end
            time.sleep(0.2)
        command = [sys.executable, "-m", "gateway", "batch", "run", "-i", str(source), "-o", str(out),
                   "--against", f"http://127.0.0.1:{port}", "--concurrency", "64"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=1800)
    return tokens_of(out)


def tokens_of(out: Path) -> int:
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return sum(line["response"]["body"]["usage"]["total_tokens"] for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts and print the ratios."""
    options, ratios = parse(argv), dict[str, float]()
    for part in options.parts.split(","):
        ratios |= beside_vllm(options) if part == "vllm" else asyncio.run(beside(part, options))
    print(json.dumps({"ratios": {name: round(value, 3) for name, value in ratios.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

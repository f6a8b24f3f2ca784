"""Twenty minutes of mixed load on the LLM runtime: answers of many lengths, greedy, sampled and bound to a grammar,
embeddings, clients that leave, requests that are wrong: `python -m loadtests.soaks.llm --help`. Ends with status 1 when
an answer was wrong, memory grows, or a page of the KV cache is lost.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtests.bench_gateway import progress
from loadtests.bench_llm import names
from loadtests.llm.copying import BUNDLED
from loadtests.llm.headrace import MODEL
from loadtests.llm.judgement import at_rest, rising, verdict
from loadtests.llm.mixed import KINDS, Clients
from loadtests.llm.targets import running
from loadtests.llm.workloads import vocabulary
from loadtests.servers import Launch, StartError, free_port
from loadtests.soaks.tensor import SAMPLE_S, Process
from runtimes.llm.weights.store import resolve

NAME = "runtime"
METRICS = ("prompt_tokens", "generation_tokens", "num_preemptions", "prefix_cache_hits", "engine_steps")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soaks.llm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (20)")
    parser.add_argument("--clients", type=int, default=24, help="requests at a time (24)")
    parser.add_argument("--weights", default="auto", help="as `python -m runtimes.llm --weights` (auto)")
    parser.add_argument("--without", type=names(KINDS), default=[], help=f"leave out, of {','.join(KINDS)}")
    options = parser.parse_args(argv)
    if options.minutes <= 0 or options.clients < 1:
        parser.error("--minutes and --clients are above 0")
    return options


def launch(model: Path, weights: str, port: int) -> Launch:
    """With so little room that sequences are preempted, and that some must wait."""
    command = [sys.executable, "-m", "runtimes.llm", "--model", str(model), "--served-name", MODEL]
    bounds = ["--max-model-len", "2048", "--max-num-seqs", "16", "--kv-cache", "64MiB", "--max-queue", "64"]
    return Launch([*command, *bounds, "--threads", "2", "--weights", weights, "--port", str(port)])


async def soak(server: Process, clients: Clients, options: argparse.Namespace) -> None:
    """Load and samples for the requested time."""
    ended = asyncio.Event()
    running = asyncio.create_task(clients.run(options.clients, ended))
    loop = asyncio.get_running_loop()
    end = loop.time() + 60 * options.minutes
    while loop.time() < end and not running.done():
        await asyncio.sleep(SAMPLE_S)
        server.sample()
    ended.set()
    await running


def main(argv: Sequence[str] | None = None) -> int:
    """Start the server, soak it, and print the problems and one line of JSON."""
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    model = resolve(BUNDLED)
    core = ",".join(str(one) for one in sorted(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as name, contextlib.ExitStack() as stack:
        port, folder = free_port(), Path(name)
        try:
            starting = running(NAME, launch(model, options.weights, port), port, core, folder)
            server = Process(NAME, stack.enter_context(starting))
        except StartError as error:
            progress(f"error: {error}")
            return 1
        clients = Clients(f"http://127.0.0.1:{port}", vocabulary(model), without=options.without)
        asyncio.run(soak(server, clients, options))
        rest = at_rest(port)
        stack.close()  # which ends the runtime, and it takes its last look
        wrong = verdict(server, clients.seen, clients.kinds, rest, (folder / NAME / f"{NAME}.log").read_text())
    for line in wrong:
        progress(line)
    print(json.dumps(summary(server, clients, rest) | {"wrong": wrong}))
    return 1 if wrong else 0


def summary(server: Process, clients: Clients, rest: Mapping[str, float]) -> dict[str, object]:
    """What was seen, wrong or not."""
    megabytes = [round(value / 1e6, 1) for value in rising(server.memory)]
    seen = clients.seen
    return {
        "answers": dict(seen.right),
        "busy": seen.busy,
        "slowest_s": round(seen.slowest_s, 1),
        "rss_mb": megabytes,
        "files": rising(server.files),
        **{name: rest[name] for name in METRICS if name in rest},
    }


if __name__ == "__main__":
    sys.exit(main())

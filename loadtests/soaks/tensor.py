"""Twenty minutes of load on the tensor runtime and a gateway before it, while processes of the models are killed:
`python -m loadtests.soaks.tensor --help`. Ends with status 1 when an answer was wrong or something leaks.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from loadtests.bench_gateway import progress
from loadtests.figures.cpu import processes, resident_bytes, tree
from loadtests.servers import StartError
from loadtests.tensors.clients import Clients, Seen
from loadtests.tensors.headrace import running_gateway, running_headrace
from loadtests.tensors.repositories import for_headrace
from loadtests.venvs import InstallError

SAMPLE_S = 2.0
GROWTH, SLACK_BYTES, SLACK_FILES = 1.1, 8 << 20, 8


@dataclass(slots=True)
class Process:
    """A server and its children, sampled: bytes in RAM, open files, processes."""

    name: str
    pid: int
    memory: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)
    children: list[float] = field(default_factory=list)

    def sample(self) -> None:
        self.memory.append(resident_bytes(self.pid))
        self.files.append(len(os.listdir(f"/proc/{self.pid}/fd")))
        self.children.append(len(tree(self.pid, processes())))

    def leaks(self, growth: float = GROWTH) -> list[str]:
        """The figures that grew from the second quarter to the last; caches and heaps fill in the first."""
        grown = []
        for figure, values, slack in (
            ("bytes in RAM", self.memory, SLACK_BYTES),
            ("open files", self.files, SLACK_FILES),
            ("processes", self.children, 1),
        ):
            before, after = quarters(values)
            if after > before * growth and after - before > slack:
                grown.append(f"{self.name}: {before:.0f} → {after:.0f} {figure}")
        return grown


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the second and of the last quarter."""
    part = max(len(values) // 4, 1)
    return median(values[part : 2 * part] or values), median(values[-part:])


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soaks.tensor", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (20)")
    parser.add_argument("--clients", type=int, default=8, help="requests at a time, on each way (8)")
    parser.add_argument("--kill-every", type=float, default=5.0, help="seconds between two kills (5)")
    options = parser.parse_args(argv)
    if options.minutes <= 0 or options.clients < 1 or options.kill_every <= 0:
        parser.error("--minutes, --clients and --kill-every are above 0")
    return options


async def kill(runtime: int, every: float, rng: random.Random) -> int:
    """One process of a model after the other, until cancelled; how many."""
    count = 0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(every)
            if victims := sorted(tree(runtime, processes()) - {runtime}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    count += 1
    return count


async def soak(servers: Sequence[Process], clients: Sequence[Clients], options: argparse.Namespace) -> int:
    """Load, kills and samples for the requested time. Returns the number of kills."""
    ended = asyncio.Event()
    running = [asyncio.create_task(one.run(options.clients, ended)) for one in clients]
    killer = asyncio.create_task(kill(servers[0].pid, options.kill_every, random.Random(7)))
    loop = asyncio.get_running_loop()
    end = loop.time() + 60 * options.minutes
    while loop.time() < end:
        await asyncio.sleep(SAMPLE_S)
        for one in servers:
            one.sample()
    killer.cancel()
    kills = await killer
    ended.set()
    await asyncio.gather(*running)
    return kills


def verdict(servers: Sequence[Process], seen: Sequence[Seen], kills: int) -> list[str]:
    """What is wrong, in words."""
    problems = [leak for one in servers for leak in one.leaks()]
    problems += [wrong for one in seen for wrong in one.wrong[:5]]
    problems += ["the gateway broke connections"] if seen[-1].broken else []
    problems += ["no request was answered"] if not all(one.right for one in seen) else []
    return [*problems, *(["nothing was killed"] if not kills else [])]


def main(argv: Sequence[str] | None = None) -> int:
    """Start both servers, soak them, and print the problems and one line of JSON."""
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    core = ",".join(str(one) for one in sorted(os.sched_getaffinity(0)))
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-soak-") as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            models = for_headrace(folder / "models")
            runtime = stack.enter_context(running_headrace(models, core, folder))
            gateway = stack.enter_context(running_gateway("gateway", runtime, core, folder))
            servers = [Process("runtime", runtime.doors["http"].pid), Process("gateway", gateway.doors["http"].pid)]
            ways = [(runtime, ""), (gateway, gateway.keys["http"])]
            clients = [Clients(f"http://127.0.0.1:{one.doors['http'].port}", key=key) for one, key in ways]
            kills = asyncio.run(soak(servers, clients, options))
    except (StartError, InstallError) as error:
        progress(f"error: {error}")
        return 1
    seen = [one.seen for one in clients]
    wrong = verdict(servers, seen, kills)
    for line in wrong:
        progress(line)
    usage = {server.name: {"rss": quarters(server.memory), "files": quarters(server.files)} for server in servers}
    answers = [{"right": one.right, "refused": dict(one.refused), "slowest_s": one.slowest_s} for one in seen]
    print(json.dumps({"kills": kills, "servers": usage, "answers": answers, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

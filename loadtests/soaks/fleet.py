"""Real servers of every kind behind one gateway, under locust, while they are killed and started again at random:
`python -m loadtests.soaks.fleet --help`. Ends with status 1 when an answer was not true or something leaks.
"""

import argparse
import asyncio
import contextlib
import csv
import json
import os
import random
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from loadtests.bench_gateway import progress
from loadtests.figures.cpu import PAGE, PROC, processes, tree
from loadtests.fleet.chaos import kill_and_restart, kill_runtimes
from loadtests.fleet.configuration import configuration
from loadtests.fleet.member import POLL_S, Member
from loadtests.fleet.systems import SYSTEMS
from loadtests.gateways.headrace import create_key
from loadtests.peers import networks
from loadtests.servers import REPOSITORY, START_TIMEOUT_S, Launch, StartError, child, environment, free_ports, log_tail
from loadtests.soaks.tensor import SAMPLE_S, Process, quarters
from loadtests.tensors.repositories import for_headrace
from loadtests.tensors.targets import is_ready
from loadtests.venvs import InstallError, ensure

LOCUST = ("locust==2.47.0",)
IDLE_S = 60.0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soaks.fleet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--users", type=int, default=20, help="locust's users (20)")
    parser.add_argument("--kill-every", type=float, default=30.0, help="seconds between two kills, about (30)")
    parser.add_argument("--seed", type=int, default=7, help="of the order and times of kills (7)")
    parser.add_argument("--report", type=Path, help="a file for the report as Markdown")
    options = parser.parse_args(argv)
    if options.minutes <= 0 or options.users < 1 or options.kill_every <= 0:
        parser.error("--minutes, --users and --kill-every are above 0")
    return options


def apart() -> None:
    """Continue in a network of our own, with loopback only: some of the servers listen on every address."""
    networks.enter("loadtests.soaks.fleet", sys.argv[1:])


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[dict[str, Member]]:
    """Every system, ready. Raises `StartError` and `InstallError`."""
    members = {system.name: Member(system, folder, free_ports(system.ports)) for system in SYSTEMS}
    try:
        for member in members.values():  # one at a time: together they would take the machine from each other
            progress(f"starting {member.name}")
            member.start()
            asyncio.run(member.until_ready())
        yield members
    finally:
        for member in members.values():
            member.kill()


class Gateway(Process):
    """Its own process: those that it has started are killed and come back, with memory of their own."""

    def sample(self) -> None:
        self.memory.append(float((PROC / str(self.pid) / "statm").read_text().split()[1]) * PAGE)
        self.files.append(len(os.listdir(f"/proc/{self.pid}/fd")))
        self.children.append(len(tree(self.pid, processes())))


async def soak(
    members: Mapping[str, Member], gateway: Process, locust: Launch, folder: Path, options: argparse.Namespace
) -> None:
    """Load, kills and samples until locust ends."""
    rng = random.Random(options.seed)
    process = await asyncio.create_subprocess_exec(
        *locust.command, cwd=REPOSITORY, env=environment(locust.env), stdout=(folder / "locust.log").open("wb"),
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    chaos = [
        asyncio.create_task(kill_and_restart(list(members.values()), options.kill_every, rng)),
        asyncio.create_task(kill_runtimes(gateway.pid, 3 * options.kill_every, rng)),
    ]
    ended = asyncio.create_task(process.wait())
    try:
        while not ended.done():
            await asyncio.wait((ended, *chaos), timeout=SAMPLE_S, return_when=asyncio.FIRST_EXCEPTION)
            gateway.sample()
            for task in chaos:
                if task.done():
                    task.result()  # a server that did not come back
    finally:
        for pending in (*chaos, ended):
            pending.cancel()
        if process.returncode is None:
            process.kill()
        await asyncio.gather(*chaos, ended, return_exceptions=True)
    if process.returncode:
        raise StartError(f"locust ended with status {process.returncode}:\n{log_tail('locust', folder)}")


def idle(admin: int) -> list[str]:
    """The requests that the gateway still counts after the load has ended."""
    end, left = IDLE_S, ["nothing was read"]
    while left and end > 0:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/admin/state", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
        held = [state, *state["endpoints"], *state["tenants"]]
        left = [f"{one.get('id', one.get('name', 'gateway'))} holds requests" for one in held if one["in_flight"]]
        if left:
            asyncio.run(asyncio.sleep(1.0))
            end -= 1.0
    return left


def locust_tables(prefix: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """locust's tables: requests and failures."""
    tables = []
    for table in ("stats", "failures"):
        with prefix.with_name(f"{prefix.name}_{table}.csv").open(newline="") as file:
            tables.append(list(csv.DictReader(file)))
    return tables[0], tables[1]


def report(rows: Sequence[dict[str, str]], failures: Sequence[dict[str, str]], facts: Mapping[str, Any]) -> str:
    """As Markdown."""
    lines = ["# Results of `soaks.fleet`", "", "Servers, gateway and locust share two cores.", ""]
    lines += ["| request | requests | not answered | median | 99 % |", "|---|---|---|---|---|"]
    for row in rows:
        name = row["Name"] if row["Name"] != "Aggregated" else "all"
        figures = (row["Request Count"], row["Failure Count"], row["50%"], row["99%"])
        lines.append(f"| {name} | {' | '.join(figures[:2])} | {figures[2]} ms | {figures[3]} ms |")
    lines += ["", "| request | failure | times |", "|---|---|---|"]
    lines += [f"| {row['Name']} | {_failure_text(row)} | {row['Occurrences']} |" for row in failures]
    return "\n".join([*lines, "", *(f"- {name}: {value}" for name, value in facts.items()), ""])


def _failure_text(row: Mapping[str, str]) -> str:
    """The text of a failure without locust's wrapper."""
    return row["Error"].removeprefix("CatchResponseError('").removesuffix("')").replace("|", " ")[:160]


@contextlib.contextmanager
def running_gateway(members: Mapping[str, Member], folder: Path) -> Iterator[tuple[Gateway, Sequence[int], str]]:
    """Our gateway before all of them: its process, its ports for HTTP and operators, a key."""
    http, admin = free_ports(2)
    file = folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(configuration(members, folder, http, admin), sort_keys=False))
    key = create_key(Path(sys.executable), file)
    serve = Launch([sys.executable, "-m", "gateway", "serve", "--config", str(file)])
    with child("gateway", serve, ",".join(str(core) for core in sorted(os.sched_getaffinity(0))), folder) as process:
        end = time.monotonic() + START_TIMEOUT_S
        while not is_ready(admin, "/readyz"):
            if process.poll() is not None or time.monotonic() > end:
                raise StartError(f"the gateway is not ready:\n{log_tail('gateway', folder)}")
            time.sleep(POLL_S)
        yield Gateway("gateway", process.pid), (http, admin), key


def load(python: Path, port: int, key: str, folder: Path, options: argparse.Namespace) -> Launch:
    """locust without its web page."""
    command = [str(python), "-m", "locust", "-f", "loadtests/fleet/users.py", "--headless", "--only-summary"]
    command += ["--host", f"http://127.0.0.1:{port}", "-u", str(options.users), "-r", "5", "--stop-timeout", "120"]
    command += ["-t", f"{round(60 * options.minutes)}s", "--csv", str(folder / "seen"), "--exit-code-on-error", "0"]
    return Launch(command, env={"HEADRACE_KEY": key, "PYTHONPATH": str(REPOSITORY)})


def played(python: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the soak and return its results."""
    for_headrace(folder / "models")
    with fleet(folder) as members, running_gateway(members, folder) as (gateway, (http, admin), key):
        progress(f"locust for {options.minutes:g} minutes")
        asyncio.run(soak(members, gateway, load(python, http, key, folder, options), folder, options))
        rows, failures = locust_tables(folder / "seen")
        wrong = [*gateway.leaks(), *idle(admin)]
        wrong += [f"{row['Name']}: {row['Error']}" for row in failures if "refused" not in row["Error"]]
        kills = {one.name: one.kills for one in members.values()}
    facts: dict[str, Any] = {
        "minutes": options.minutes,
        "users": options.users,
        "kills": kills,
        "gateway, bytes in RAM": [round(value) for value in quarters(gateway.memory)],
        "gateway, open files": [round(value) for value in quarters(gateway.files)],
        "wrong": [*wrong, *([] if any(kills.values()) else ["nothing was killed"])],
    }
    if options.report:
        options.report.write_text(report(rows, failures, facts))
    return {**facts, "requests": {row["Name"]: int(row["Request Count"]) for row in rows}}


def main(argv: Sequence[str] | None = None) -> int:
    """Start all servers, soak them, and print the problems and one line of JSON."""
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        python = ensure("locust", LOCUST) / "bin/python"
        apart()
        with tempfile.TemporaryDirectory(prefix="headrace-fleet-") as name:
            seen = played(python, Path(name), options)
    except (StartError, InstallError) as error:
        progress(f"error: {error}")
        return 1
    for line in seen["wrong"]:
        progress(line)
    print(json.dumps(seen))
    return 1 if seen["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

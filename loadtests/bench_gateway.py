"""Compares gateways on one machine, in one run: `python -m loadtests.bench_gateway --help`.

The gateway under test has one core, the load generator and the upstream share another. Needs Linux, two
cores and gcc; peers are installed on first use. See `loadtests/README.md`.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from loadtests import native
from loadtests.figures import report, rounds
from loadtests.figures.cpu import Meter
from loadtests.gateways import arms, guarded, providers
from loadtests.gateways.headrace import HEADRACE, headrace_redis, redis_program
from loadtests.gateways.replies import CheckError, chat_body, check_answer, check_refusal, http_request, post
from loadtests.gateways.workloads import (
    CHUNKS,
    EXPECTED,
    GAP_US,
    WORKLOADS,
    Generator,
    LoadError,
    Point,
    Workload,
    closed,
    request_file,
    streams,
)
from loadtests.peers import PEERS
from loadtests.servers import Gateway, Launch, StartError, Target, running
from loadtests.venvs import InstallError

QUIET_WAIT_S = 60.0
WARM_UP = (closed(8), streams(8))
WARM_UP_S = 1.0
UPSTREAM = Gateway(
    report.DIRECT,
    lambda: native.build("mock_upstream"),
    lambda site, program: Launch(
        [str(program), "--port", str(site.port), "--chunks", str(CHUNKS), "--gap-us", str(GAP_US)]
    ),
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ``peers`` and ``only`` come back as lists of known names."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds to keep of each workload (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one point (3)")
    parser.add_argument("--quick", action="store_true", help="two rounds of one second: a look, not a result")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help=f"of {','.join(PEERS)}; or none")
    parser.add_argument("--only", type=_names(WORKLOADS), default=list(WORKLOADS), help=",".join(WORKLOADS))
    parser.add_argument(
        "--arms", choices=("yes", "no", "only"), default="yes",
        help="the price of splits, rollouts and experiments over a plain route (yes); only: nothing else",
    )  # fmt: skip
    parser.add_argument(
        "--providers", choices=("yes", "no", "only"), default="yes",
        help="the price of chats translated for Gemini and Bedrock, over OpenAI's (yes); only: nothing else",
    )  # fmt: skip
    parser.add_argument(
        "--guards", choices=("yes", "no", "only"), default="yes",
        help="the price of a guard of 1,000 words over none (yes); only: nothing else",
    )  # fmt: skip
    parser.add_argument("--redis", action="store_true", help="ours once more, every limit counted exactly in a Redis")
    parser.add_argument(
        "--foreign-limit",
        type=float,
        default=0.25,
        help="cores that other processes may use before a round is dropped (0.25)",
    )
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds, options.seconds = 2, 1.0
    chosen = options.arms, options.providers, options.guards
    if "only" in chosen:
        options.peers, options.only = [], []
        options.arms, options.providers, options.guards = ["yes" if each == "only" else "no" for each in chosen]
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds is at least 1, --seconds above 0")
    return options


def _names(accepted: Collection[str]) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        names = [] if text == "none" else text.split(",")
        if unknown := [name for name in names if name not in accepted]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(accepted)}")
        return names

    return split


def two_cores() -> tuple[int, int]:
    """One for the gateway, one for load and upstream."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise StartError("two cores are needed: one for the gateway, one for the load and the upstream")
    return cores[0], cores[1]


def install(gateways: Sequence[Gateway], missing: dict[str, str]) -> dict[str, Path]:
    """Prepares all at once, since downloads mostly wait. Those that cannot be had go to ``missing``."""
    installed = {}
    with ThreadPoolExecutor() as pool:
        pending = {gateway.name: pool.submit(gateway.prepare) for gateway in gateways}
        for name, future in pending.items():
            try:
                installed[name] = future.result()
            except InstallError as error:
                missing[name] = str(error)
    return installed


def write_requests(folder: Path, target: Target) -> None:
    """The files that the load generator sends to one target."""
    for stream in (False, True):
        request = http_request(chat_body(stream=stream), target.key, target.headers)
        (folder / request_file(target, stream=stream)).write_bytes(request)


def admit(target: Target, generator: Generator, expected: bytes) -> None:
    """Checks answers, the key check and streams, and warms caches up on the way.

    Raises:
        CheckError: the target does not do the same work as the others.
    """
    verbatim = target.gateway.verbatim
    check_answer(target.port, target.key, expected, verbatim=verbatim, headers=target.headers)
    if target.key:
        check_refusal(target.port, target.key, target.gateway.refusal)
    write_requests(generator.folder, target)
    for workload in WARM_UP:
        load = generator.run(workload, target, WARM_UP_S)
        if load.completed != load.sent or not load.completed:
            raise CheckError(f"{workload.name}: {load.completed} of {load.sent} answers right")


@dataclass(frozen=True, slots=True)
class Bench:
    """Starts the measured servers. All processes on ``stack`` are stopped when the stack is closed."""

    stack: contextlib.ExitStack
    folder: Path
    gateway_core: int | str
    generator: Generator
    mock: Gateway = UPSTREAM

    def upstream(self, program: Path) -> tuple[Target, bytes]:
        """The mock, on the load's core, and its answer, which every other one is compared with."""
        running_mock = running(self.mock, program, 0, self.generator.core, self.folder)
        direct = self.stack.enter_context(running_mock)
        expected = post(direct.port, "", chat_body(stream=False)).body
        (self.folder / EXPECTED).write_bytes(expected)
        admit(direct, self.generator, expected)
        return direct, expected

    def gateway(self, gateway: Gateway, installed: Path, direct: Target, expected: bytes) -> Target:
        """A gateway in front of the mock, answering and checked.

        Raises:
            StartError: it is not fit to be measured; it is stopped again.
        """
        progress(f"starting {gateway.name}")
        with contextlib.ExitStack() as attempt:
            site = running(gateway, installed, direct.port, self.gateway_core, self.folder)
            target = attempt.enter_context(site)
            try:
                admit(target, self.generator, expected)
            except (CheckError, LoadError, OSError, HTTPException) as error:
                raise StartError(f"{gateway.name} {error}") from None
            self.stack.push(attempt.pop_all())
        return target

    def with_redis(self, missing: dict[str, str]) -> list[Gateway]:
        """Ours once more, with its limits in a Redis."""
        try:
            program = redis_program()
        except InstallError as error:
            missing["headrace-redis"] = str(error)
            return []
        return [self.stack.enter_context(headrace_redis(program, self.generator.core, self.folder))]

    def arms(self, direct: Target, expected: bytes, options: argparse.Namespace) -> list[rounds.Round]:
        """The rounds of ours with each kind of route, in points of half a second."""
        targets = [self.gateway(gateway, gateway.prepare(), direct, expected) for gateway in arms.gateways()]
        count = 8 * options.rounds
        return arms.measured(targets, self.generator, count, min(options.seconds, 0.5), progress).accepted

    def guards(self, direct: Target, expected: bytes, options: argparse.Namespace) -> dict[str, Sequence[rounds.Round]]:
        """The rounds of ours with and without guards, in points of a second."""
        targets = [self.gateway(gateway, gateway.prepare(), direct, expected) for gateway in guarded.gateways()]
        seconds, count = min(options.seconds, 1.0), 4 * options.rounds
        return guarded.measured(targets, self.generator, count, seconds, progress)

    def providers(self, options: argparse.Namespace) -> dict[str, Sequence[rounds.Round]]:
        """The rounds of each chat before each provider, in points of half a second."""
        stub = running(providers.STUB, providers.STUB.prepare(), 0, self.generator.core, self.folder)
        upstream = self.stack.enter_context(stub).port
        before = running(providers.GATEWAY, providers.GATEWAY.prepare(), upstream, self.gateway_core, self.folder)
        target, count = self.stack.enter_context(before), 4 * options.rounds
        return providers.measured(target, self.generator, count, min(options.seconds, 0.7), progress)

    def start(self, peers: Sequence[Gateway], missing: dict[str, str]) -> list[Target]:
        """The upstream, ours, and every peer that can be had; those that cannot go to ``missing``.

        Raises:
            StartError, CheckError, LoadError: the upstream or ours is not fit to be measured.
        """
        installed = install([UPSTREAM, HEADRACE, *peers], missing)
        direct, expected = self.upstream(installed[UPSTREAM.name])
        targets = [direct, self.gateway(HEADRACE, installed[HEADRACE.name], direct, expected)]
        for peer in peers:
            if peer.name in installed:
                try:
                    targets.append(self.gateway(peer, installed[peer.name], direct, expected))
                except StartError as error:
                    missing[peer.name] = str(error)
        return targets


def wait_for_quiet(limit: float) -> None:
    """Returns after a second in which foreign processes stayed within the limit, at the latest in a minute."""
    progress("other processes are busy: round dropped, waiting for a quiet second")
    deadline = time.monotonic() + QUIET_WAIT_S
    while time.monotonic() < deadline:
        meter = Meter.start(os.getpid())
        time.sleep(1.0)
        if meter.stop().foreign_cores <= limit:
            return


def measure(
    workload: Workload, targets: Sequence[Target], generator: Generator, options: argparse.Namespace
) -> report.Measured:
    """All rounds of one workload, on the targets that can sustain it."""

    def point(target: Target) -> Point:
        try:
            seen = generator.measure(workload, target, options.seconds)
        except LoadError as error:  # it died, or hangs: that is a result of this target, not of the run
            progress(f"{workload.name} {target.name}: {error}")
            return Point({}, 1, 0.0)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in seen.figures.items())
        foreign = f"foreign {seen.foreign_cores:.2f} cores"
        progress(f"{workload.name} {target.name}: {shown or f'{seen.failed} answers failed'}; {foreign}")
        return seen

    chosen = [target for target in targets if not (workload.heavy and target.gateway.slow)]
    limit = options.foreign_limit
    return report.measured(workload, rounds.run(chosen, options.rounds, point, limit, lambda: wait_for_quiet(limit)))


def progress(line: str) -> None:
    """Progress, apart from the result."""
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the comparison. Status 1 when ours could not be measured or gave a wrong answer."""
    options = parse(argv)
    # SIGTERM unwinds the stack, so that all servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    missing: dict[str, str] = {}
    try:
        gateway_core, load_core = two_cores()
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
            generator = Generator(native.build("load"), load_core, Path(name))
            bench = Bench(stack, Path(name), gateway_core, generator)
            redis = bench.with_redis(missing) if options.redis else []
            targets = bench.start([*redis, *(PEERS[peer] for peer in options.peers)], missing)
            results = [measure(WORKLOADS[name], targets, generator, options) for name in options.only]
            answer = (Path(name) / EXPECTED).read_bytes()
            by_arm = [] if options.arms == "no" else bench.arms(targets[0], answer, options)
            by_guard = {} if options.guards == "no" else bench.guards(targets[0], answer, options)
            by_provider = {} if options.providers == "no" else bench.providers(options)
    except (StartError, CheckError, LoadError, InstallError, native.BuildError) as error:
        progress(f"error: {error}")
        return 1
    names = [target.name for target in targets]
    if results:
        report.print_tables(results, names, missing)
    if by_arm:
        arms.print_table(by_arm)
    if by_guard:
        guarded.print_table(by_guard, guarded.examined())
    if by_provider:
        providers.print_table(by_provider)
    print(report.document(results, names, missing))
    return 1 if any(report.OURS in result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())

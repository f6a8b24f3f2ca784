"""Keeps chance out of the plain shelf: its tests may not start processes, sleep, leave this host or race with a clock.

Random numbers depend on a test's name alone, also those of a `Random()` that the product makes: a test that passes with
them passes in every run. The order of the tests is still random.
Every asyncio test of the shelf runs on virtual time (looptime), unless it has the mark `realtime`. What is refused
raises `Refused` where it happens and fails the test, also if the code under test catches the error.
"""

import asyncio
import ipaddress
import itertools
import multiprocessing.util
import platform
import random
import selectors
import socket
import sys
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from looptime import LoopTimeEventLoop

from tests.support import shelves

TESTS = str(Path(__file__).parents[1])
START = 1000.0
"""The virtual time at which tests begin. A moment of zero would be false in conditions, and no real clock shows it."""

LONGEST_WAIT = 0.05
"""Seconds that one wait of a loop may really last until its timer fires."""

LONGEST_PAUSE = 0.01
"""Seconds between two looks at a state, where a test with threads waits for it on the real clock."""


class Refused(RuntimeError):
    """A test of the plain shelf did what only a test of another shelf may do."""


class _Guard:
    """What the running test was refused. At most one test runs in a process."""

    def __init__(self) -> None:
        self.active = False
        self.refusals: list[str] = []
        self.ports = set[int]()
        """Ports that the system chose for a socket of the test. Another socket may join the first one there."""
        self.seeds = itertools.count()
        """Seeds of the generators that the test makes without one."""

    def refuse(self, action: str) -> None:
        """Remember the action and raise `Refused`."""
        self.refusals.append(action)
        raise Refused(f"a test of the plain shelf {action}: see the table of shelves in CONTRIBUTING.md")


_guard = _Guard()


def _is_local(host: object) -> bool:
    text = host.decode() if isinstance(host, bytes) else str(host)
    if text in ("", "localhost", "None"):
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _connects(arguments: tuple[Any, ...]) -> str | None:
    address = arguments[1]
    return f"connects to {address[0]}" if isinstance(address, tuple) and not _is_local(address[0]) else None


def _resolves(arguments: tuple[Any, ...]) -> str | None:
    host = arguments[0]
    try:
        socket.inet_aton(str(host))  # takes what the C library takes for an address, which asks no server
    except OSError:
        return None if _is_local(host) or ":" in str(host) else f"resolves the name {host!r}"
    return None


def _binds(arguments: tuple[Any, ...]) -> str | None:
    address = arguments[1]
    if not isinstance(address, tuple) or not address[1] or address[1] in _guard.ports:
        return None
    return f"listens on the fixed port {address[1]}"


def _starts(arguments: tuple[Any, ...]) -> str:
    return f"starts a process: {arguments[0] if arguments else 'a fork'}"


_EVENTS: Mapping[str, Callable[[tuple[Any, ...]], str | None]] = {
    "os.exec": _starts,
    "os.fork": _starts,
    "os.forkpty": _starts,
    "os.posix_spawn": _starts,
    "os.system": _starts,
    "socket.bind": _binds,
    "socket.connect": _connects,
    "socket.getaddrinfo": _resolves,
    "socket.gethostbyname": _resolves,
    "socket.sendto": _connects,
    "subprocess.Popen": _starts,
}
"""What is refused of the audit events of Python."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _guard.active and (check := _EVENTS.get(event)) is not None and (action := check(arguments)) is not None:
        _guard.refuse(action)


def _called_by_a_test() -> bool:
    return sys._getframe(2).f_code.co_filename.startswith(TESTS)


def _is_virtual(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether the clock of a loop jumps: looptime's, or that of the simulation."""
    if isinstance(loop, LoopTimeEventLoop):
        return bool(loop.looptime_on)
    return isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is not asyncio.BaseEventLoop.time


def _install() -> None:
    """Watch this process from now on. Nothing is refused outside of a test of the plain shelf."""
    platform.uname().processor  # noqa: B018  # runs `uname` once in a process; SDKs read it for their user agents
    sys.addaudithook(_audit)
    real_name = socket.socket.getsockname
    real_sleep, real_wait, real_select = time.sleep, asyncio.sleep, selectors.EpollSelector.select
    real_seed = random.Random.seed
    spawn = multiprocessing.util.spawnv_passfds

    def sleep(seconds: Any) -> None:
        if _guard.active and seconds > 0:
            _guard.refuse(f"sleeps {seconds} s")
        real_sleep(seconds)

    def wait(delay: float, result: Any = None) -> Any:
        watched = _guard.active and delay > LONGEST_PAUSE and _called_by_a_test()
        if watched and not _is_virtual(asyncio._get_running_loop()):
            _guard.refuse(f"sleeps {delay} s")
        return real_wait(delay, result)

    def select(self: Any, timeout: float | None = None) -> list[Any]:
        began = time.monotonic()
        ready = real_select(self, timeout)
        waited = time.monotonic() - began
        slept = not ready and timeout is not None and timeout > LONGEST_WAIT and waited > LONGEST_WAIT
        if slept and _guard.active and _is_virtual(asyncio._get_running_loop()):
            _guard.refusals.append(f"lets the clock of the wall decide: a loop waited {waited:.2f} s for a timer")
        return ready

    def spawnv(*arguments: Any) -> Any:
        if _guard.active:
            _guard.refuse("starts a process of multiprocessing")
        return spawn(*arguments)

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        real_seed(self, next(_guard.seeds) if a is None and _guard.active else a, version)

    def getsockname(self: socket.socket) -> Any:
        name = real_name(self)
        if _guard.active and isinstance(name, tuple):
            _guard.ports.add(name[1])
        return name

    random.Random.seed = seed  # type: ignore[method-assign]
    time.sleep = sleep
    socket.socket.getsockname = getsockname  # type: ignore[assignment,method-assign]
    asyncio.sleep = asyncio.tasks.sleep = wait
    selectors.EpollSelector.select = select  # type: ignore[method-assign]
    multiprocessing.util.spawnv_passfds = spawnv  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "realtime: a test of the plain shelf on the real clock, because of its threads")
    config.option.randomly_reset_seed = False  # pytest-randomly's seed is another one in each run
    _install()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of the plain shelf run on virtual time."""
    for item in items:
        if shelves.item_shelf(item) == shelves.PLAIN and item.get_closest_marker("realtime") is None:
            own = item.get_closest_marker("looptime")
            item.add_marker(pytest.mark.looptime if own else pytest.mark.looptime(start=START))


def taken() -> list[str]:
    """What the running test was refused until now, which then no longer fails it. For the tests of this module."""
    refusals, _guard.refusals = _guard.refusals, []
    return refusals


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _guard.refusals.clear()
    _guard.ports.clear()
    _guard.seeds = itertools.count(zlib.crc32(item.nodeid.encode()))
    random.seed(next(_guard.seeds))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(next(_guard.seeds) % 2**32)
    _guard.active = shelves.item_shelf(item) == shelves.PLAIN


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Fixtures of a module or of the session may belong to tests of other shelves, and end here."""
    _guard.active = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the phase in which something was refused."""
    report = yield
    if _guard.refusals:
        refused = "; ".join(dict.fromkeys(_guard.refusals))
        _guard.refusals.clear()
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr or ''}\nE   a test of the plain shelf {refused}".lstrip()
    return report

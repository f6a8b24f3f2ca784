"""Settings and hooks of all tests."""

import asyncio
import atexit
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from tests.support import schedule

pytest_plugins = [
    "tests.support.shelves",
    "tests.support.deterministic",
    "tests.support.flaky",
    "tests.support.generated",
]

# Triton decides when it is imported whether kernels are interpreted, and other packages import it: before all of them.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Each of some hundred processes would compile all sources again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell ignores these in its background jobs, and children would inherit that: tests end processes by them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)

# Without a current loop, asyncio makes one for the test runner, and nothing closes it.
asyncio.set_event_loop(None)

SERVERS = "servers"
_ended_workers: Counter[str] = Counter()
"""Servers that worker processes started, by name."""


# Some million objects of modules and tests appear now and stay: the garbage collector need not visit them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # extension modules report as leaks what is not collected at the end


class _Failures:
    """Prints each failure when it happens: a run may be stopped before its end, which has the reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.splitlines()
            why = next((line for line in lines if line.startswith("E ")), lines[-1] if lines else "")
            self._config.get_terminal_writer().line(f"\n{report.when} of {report.nodeid}: {why[:200]}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(config))


@pytest.fixture(scope="module", autouse=True)
def _unclosed() -> Iterator[None]:
    """Fail a file's last test for sockets, files and processes that the file left open, not a test of a later file."""
    yield
    gc.collect()
    gc.freeze()  # again: tests that measure unfreeze all, and each later collection would visit millions of objects


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    schedule.sort(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> schedule.Schedule:
    return schedule.Schedule(config, log)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop shared servers after the last test of their files."""
    shared = sys.modules.get("tests.servers.shared")
    if shared is not None and (nextitem is None or schedule.unit(nextitem.nodeid) != schedule.unit(item.nodeid)):
        shared.stop()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's server starts to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[SERVERS] = dict(_started())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Add up the server starts of the workers. A crashed worker reports none."""
    _ended_workers.update(getattr(node, "workeroutput", {}).get(SERVERS, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the real servers and stand-ins that ran."""
    started = _started() + _ended_workers
    if started:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(started.items()))
        terminalreporter.write_line(f"Servers that ran, and how often they were started: {names}")


def _started() -> Counter[str]:
    servers = sys.modules.get("loadtests.servers")
    return Counter() if servers is None else servers.STARTED

"""Processes of one host that share the table of limits."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.limits.ledger import Ledger, Reservation
from gateway.limits.shared import SharedTable
from policies.facts import Facts
from tests.gateway.limits.timed_ledger import NOON, dollars, tenant, used

ALL = {"requests": "9/month", "tokens": "1000/month", "bytes": "1MB/month", "spend": "9 usd/month", "concurrency": 4}
ROOT = Path(__file__).parents[2]


class Worker:
    """A ledger of one process of several, on a clock that stands still, and requests of tenant acme."""

    def __init__(self, parent: SharedTable, number: int, limits: Any) -> None:
        self.table = SharedTable.attach(parent.fd, worker=number)
        self.ledger = Ledger(lambda: NOON, self.table)
        self.configure(limits)

    def configure(self, limits: Any) -> None:
        self.ledger.configure([tenant(limits)], 0.0)

    def reserve(self, tokens: int = 1, usd: float = 0, user: str | None = None, now: float = 0.0) -> Reservation:
        facts = Facts("acme", "k1", "chat", {}, False, tokens, user, "r")
        allowances = self.ledger.allowances(facts, "chat", now)
        return self.ledger.reserve(facts, allowances, used(tokens), dollars(usd), now)

    def left(self, now: float = 0.0) -> dict[str, float]:
        return self.ledger.accounts["acme"].always[0].remaining(now, NOON)


def forked(work: Callable[[], Any]) -> int:
    """Run it in a process of its own, which ends within a minute; the pid."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(99)
        os._exit(0)
    return pid


def ended(pid: int) -> int:
    """Its exit status, below 0 for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_a_small_process(work: str, native: str, module: str) -> None:
    """Run work that forks a hundred times: pytest's process, with all modules of all tests, is large."""
    program = f"from {module} import *; {work}"
    environment = os.environ | {"HEADRACE_NATIVE": native}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr

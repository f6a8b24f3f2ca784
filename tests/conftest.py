"""What every test shares."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Triton decides when it is imported whether kernels are interpreted, and other packages import it: before all of them.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Without a loop set, asyncio makes one when the test runner asks for "the current one", and nobody closes it.
asyncio.set_event_loop(None)

# How long examples take says how busy the machine is, not whether they are right.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change fails for what it changes: its examples are those of every run before. Elsewhere each run looks for new ones.
settings.register_profile("ci", settings.get_profile("headrace"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "headrace")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which real servers and stand-ins ran."""
    servers = sys.modules.get("loadtests.servers")
    if servers is not None and servers.STARTED:
        told = ", ".join(f"{name} ({count})" for name, count in sorted(servers.STARTED.items()))
        terminalreporter.write_line(f"Servers that ran, and how often they were started: {told}")

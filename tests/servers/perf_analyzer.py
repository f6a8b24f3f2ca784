"""NVIDIA's load generator, whose client is in C++."""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from loadtests.tensors.perf_analyzer import PerfAnalyzer, Report, install, parse
from loadtests.venvs import InstallError
from tests.support.absent import absent


@cache
def installed() -> PerfAnalyzer:
    """The program. If it cannot be installed, the test reports that."""
    try:
        return install()
    except InstallError as error:
        absent(f"perf_analyzer: {error}")


def run(folder: Path, address: str, arguments: Sequence[str], count: int = 60, at_once: int = 2) -> Report:
    """A number of requests, some of them at once. Fails if one of them fails."""
    program, table = installed(), folder / "report.csv"
    often = ["--concurrency-range", str(at_once), "--request-count", str(count), "-f", str(table)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.libraries)}
    command = [str(program.program), "-u", address, *arguments, *often]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return parse(table.read_text())

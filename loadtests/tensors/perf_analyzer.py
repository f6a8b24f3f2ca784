"""NVIDIA's load generator for inference servers, from tritonclient's wheel, and its report."""

import csv
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.gateways.workloads import LoadError
from loadtests.native import CACHE
from loadtests.peers import triton
from loadtests.venvs import InstallError, exclusive
from runtimes.wheels import ModelUnavailable, Wheel, WheelMember, fetch

_PROGRAM = "perf_analyzer"
_WHEEL = Wheel(
    "tritonclient==2.50.0",
    14_000_000,
    {
        _PROGRAM: WheelMember(
            f"tritonclient-2.50.0.data/data/bin/{_PROGRAM}",
            20_056_496,
            "ae8cbf583a990235c617a50b380a7cd41e790ba8d414f382a8349e2ffbaae7fa",
        )
    },
)
_LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12.*"}
WINDOWS = 3  # it requires three that agree; without a limit of stability, it takes exactly three
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """What clients saw: requests a second, and latencies in milliseconds."""

    rps: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class PerfAnalyzer:
    """The installed program, with its libraries from Triton's wheel."""

    program: Path
    libraries: Path

    def run(self, address: str, arguments: Sequence[str], seconds: float, core: str, folder: Path) -> Report:
        """One measurement. Raises LoadError where a request failed, or the program did."""
        table = folder / "perf_analyzer.csv"
        table.unlink(missing_ok=True)
        window = str(round(1000 * seconds / WINDOWS))
        often = ["-p", window, "-r", str(WINDOWS), "-s", "999", "-f", str(table)]
        command = ["taskset", "--cpu-list", core, str(self.program), "-u", address, *arguments, *often]
        try:
            env = {"LD_LIBRARY_PATH": str(self.libraries)}
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            raise LoadError(f"perf_analyzer did not end within {seconds + GRACE_S:.0f} s") from None
        if done.returncode or not table.exists():
            raise LoadError(f"perf_analyzer {' '.join(arguments)}: {(done.stdout + done.stderr).strip()[-500:]}")
        return parse(table.read_text())


def parse(table: str) -> Report:
    """Its CSV, which has one line for each concurrency, and here one concurrency."""
    row = next(csv.DictReader(table.splitlines()))
    return Report(float(row["Inferences/Second"]), float(row["p50 latency"]) / 1000, float(row["p99 latency"]) / 1000)


def install() -> PerfAnalyzer:
    """Fetched on first use.

    Raises:
        InstallError: the wheel, or Triton's with the libraries, could not be had.
    """
    folder = CACHE / _PROGRAM
    try:
        fetch(_WHEEL, folder)
    except ModelUnavailable as error:
        raise InstallError(str(error)) from None
    (folder / _PROGRAM).chmod(0o755)
    source = triton.libraries(triton.install())
    with exclusive(folder):
        for name, pattern in _LIBRARIES.items():
            link = folder / name
            if not link.is_symlink():
                link.symlink_to(next(source.glob(pattern)))
    return PerfAnalyzer(folder / _PROGRAM, folder)


def write_data(folder: Path, name: str, entries: Sequence[dict[str, object]]) -> Path:
    """A file of requests, sent in turn."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"data": entries}))
    return path

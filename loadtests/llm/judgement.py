"""What the soak of the LLM runtime calls wrong."""

import re
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from statistics import median

from loadtests.llm.mixed import Seen
from loadtests.soaks.tensor import Process

GROWTH = 1.03
TIMEOUT_S = 30
WHOLE = re.compile(r"idle: all \d+ pages of the KV cache are free or cached")
IDLE = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
_SAMPLE = re.compile(r"^headrace_llm_(\w+?)(?:_total)? ([\d.e+-]+)$", re.MULTILINE)


def metrics(port: int) -> dict[str, float]:
    """The runtime's own, those without labels, by their names without prefix."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return {name: float(value) for name, value in _SAMPLE.findall(text)}


def at_rest(port: int) -> Mapping[str, float]:
    """The metrics once nothing runs, waits or holds a page, or those at the end of the wait for that."""
    deadline = time.monotonic() + TIMEOUT_S
    while any((seen := metrics(port))[name] for name in IDLE) and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen


def verdict(server: Process, seen: Seen, kinds: Sequence[str], rest: Mapping[str, float], log: str) -> list[str]:
    """What is wrong, in words."""
    problems = [*server.leaks(GROWTH), *seen.wrong[:5]]
    problems += [f"no request was answered: {kind}" for kind in kinds if not seen.right[kind]]
    problems += [f"at rest {name} is {rest[name]:g}" for name in IDLE if rest[name]]
    problems += [] if WHOLE.search(log) else ["the KV cache was not found whole at the end"]
    return problems + [line for line in log.splitlines() if " ERROR " in line][:5]


def rising(values: Sequence[float], parts: int = 8) -> list[float]:
    """The medians of so many stretches of a run, to see where it went."""
    size = max(len(values) // parts, 1)
    return [median(values[begin : begin + size]) for begin in range(0, size * min(parts, len(values)), size)]

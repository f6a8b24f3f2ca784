"""SGLang's router: prefix affinity over two workers, a limit of requests, a queue, retries, breakers, metrics.

It has one model, and neither keys for clients nor splits.
"""

import functools
from collections.abc import Callable
from pathlib import Path

from loadtests.servers import Gateway, Launch, Site, free_port
from loadtests.venvs import ensure

SGLANG_ROUTER = ("sglang-router==0.3.2",)


def launch_router(level: str) -> Callable[[Site, Path], Launch]:
    """The Rust router in front of two workers, with its log at `level`."""

    def launch(site: Site, venv: Path) -> Launch:
        module = [str(venv / "bin/python"), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
        ports = ["--port", str(site.port), "--prometheus-port", str(free_port())]
        workers = ["--worker-urls", *(f"http://{endpoint}" for endpoint in site.endpoints), "--policy", "cache_aware"]
        limits = ["--max-concurrent-requests", "10000", "--rate-limit-tokens-per-second", "1000000"]
        queue = ["--queue-size", "256", "--retry-max-retries", "3", "--cb-failure-threshold", "5"]
        return Launch([*module, *ports, *workers, *limits, *queue, "--log-level", level])

    return launch


_install = functools.partial(ensure, "sglang-router", SGLANG_ROUTER)
SGLANG = Gateway("sglang-router", _install, launch_router("info"))
SGLANG_QUIET = Gateway("sglang-router-quiet", _install, launch_router("error"))
"""Without a line a request, which no other target here is spared."""

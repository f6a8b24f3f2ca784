"""Measures the cost of `traces`, on one machine, in one run: `python -m loadtests.bench_traces --help`.

Gateways without traces, with the default rules, and with every request exported, are compared. The collector accepts
everything, in a process of its own.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from loadtests.gateways import variants


async def collect() -> None:
    """Accept exports on a free port, which is printed, until the process is killed."""

    async def accept(request: Request) -> Response:
        await request.read()
        return Response(200, [("content-type", "application/x-protobuf")])

    _, port = await Server(accept).listen_tcp("127.0.0.1", 0)
    print(port, flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def collector() -> Iterator[str]:
    """The URL of a collector."""
    command = [sys.executable, "-m", "loadtests.bench_traces", "collect"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def with_traces(settings: dict[str, Any] | None, config: dict[str, Any], folder: Path) -> None:
    """Trace with these settings, or not at all."""
    if settings is not None:
        config["traces"] = settings


def main() -> int:
    """Run all rounds and print the tables."""
    with collector() as url:
        of = {
            "off": None,
            "default": {"to": url},
            "every-request": {"to": url, "sample": "100%"},
        }
        return variants.main(__doc__, {name: partial(with_traces, each) for name, each in of.items()})


if __name__ == "__main__":
    if sys.argv[1:] == ["collect"]:
        asyncio.run(collect())
    else:
        sys.exit(main())

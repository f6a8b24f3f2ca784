"""How our own gateway is started: with everything on that a company would have on."""

import contextlib
import functools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from loadtests.gateways.replies import MODEL
from loadtests.servers import REPOSITORY, Gateway, Launch, Site, StartError, child, environment, free_port
from loadtests.venvs import InstallError

TENANT = "bench"
KEY_TIMEOUT_S = 60
REDIS_TIMEOUT_S = 10


def config(site: Site, admin_port: int, workers: int = 1) -> dict[str, Any]:
    """The YAML as data: several limits that count but never bind, a rule that is tried before the split, prefix
    affinity over two endpoints, a fair queue that never fills, retry and breaker, probes, metrics, and an access log
    to a file.
    """
    return {
        "version": 1,
        "workers": workers,
        "listen": {"http": f"127.0.0.1:{site.port}", "admin": f"127.0.0.1:{admin_port}"},
        "state": {"database": f"sqlite:///{site.folder}/state.db"},
        "access_log": {"to": str(site.folder / "access.log")},
        "pools": [_pool(name, site) for name in ("main", "candidate", "long-context")],
        "models": [{"name": MODEL, "price": {"prompt": "1 usd/1M", "completion": "2 usd/1M"}, "routes": _routes()}],
        "tenants": [
            {
                "name": TENANT,
                "models": [MODEL],
                "share": 3,
                "limits": [
                    {"requests": "100M/min", "tokens": "100000M/min", "concurrency": 10_000},
                    {"per": "key", "requests": "100M/min"},
                    {"per": "user", "tokens": "100000M/min"},
                ],
            }
        ],
    }


def _pool(name: str, site: Site) -> dict[str, object]:
    return {
        "name": name,
        "protocol": "openai",
        "endpoints": [f"http://{endpoint}" for endpoint in site.endpoints],
        "balance": {"by": "prefix_affinity"},
        "max_connections": 4096,
        "queue": {"max": 256, "timeout": "10s", "max_in_flight": 2048},
    }


def _routes() -> list[dict[str, object]]:
    arms = [{"pool": "main", "weight": 90}, {"pool": "candidate", "weight": 10}]
    return [
        {"when": {"header": {"x-tier": "gold*"}, "prompt_tokens": ">4000"}, "to": "long-context"},
        {
            "split": {"sticky": "user", "arms": arms},
            "retry": {"attempts": 3, "budget": "20%"},
            "timeout": {"first_byte": "30s", "idle": "30s", "total": "5m"},
        },
    ]


def launch_headrace(site: Site, python: Path, workers: int = 1, redis: str | None = None) -> Launch:
    """``headrace serve``, with a key issued the way an operator issues one; with ``redis`` it counts exactly there."""
    file = site.folder / "headrace.yaml"
    written = config(site, free_port(), workers)
    if redis is not None:
        count_in_redis(written, redis)
    file.write_text(yaml.safe_dump(written, sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


def count_in_redis(written: dict[str, Any], url: str) -> None:
    """Has every limit counted exactly, together with other gateways."""
    written["state"]["redis"] = url
    for limit in written["tenants"][0]["limits"]:
        limit["count"] = "exact"


def create_key(python: Path, file: Path) -> str:
    """A fresh API key: the command prints it, and nothing else, on standard output."""
    command = [str(python), "-m", "gateway", "keys", "create", "--config", str(file), "--tenant", TENANT]
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=KEY_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise StartError(f"headrace keys create did not end within {KEY_TIMEOUT_S} s") from None
    if done.returncode:
        raise StartError(f"headrace keys create ended with status {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout.strip()


HEADRACE = Gateway("headrace", lambda: Path(sys.executable), launch_headrace)


def redis_program() -> Path:
    """redis-server from PATH."""
    if (program := shutil.which("redis-server")) is None:
        raise InstallError("headrace-redis: no redis-server on PATH; apt-get install redis-server")
    return Path(program)


@contextlib.contextmanager
def headrace_redis(program: Path, core: int | str, folder: Path) -> Iterator[Gateway]:
    """Ours with every limit counted exactly in a Redis that runs meanwhile, on the core of load and upstream."""
    path = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"]
    with child("redis", Launch([str(program), *options]), core, folder):
        deadline = time.monotonic() + REDIS_TIMEOUT_S
        while not path.exists():
            if time.monotonic() > deadline:
                raise StartError(f"redis did not listen within {REDIS_TIMEOUT_S} s")
            time.sleep(0.05)
        launch = functools.partial(launch_headrace, redis=f"unix://{path}")
        yield Gateway("headrace-redis", lambda: Path(sys.executable), launch)

"""How our own gateway is started: with everything on that a company would have on."""

import subprocess
import sys
from pathlib import Path

import yaml

from loadtests.replies import MODEL
from loadtests.servers import REPOSITORY, Gateway, Launch, Site, StartError, environment, free_port

TENANT = "bench"
KEY_TIMEOUT_S = 60


def config(site: Site, admin_port: int, workers: int = 1) -> dict[str, object]:
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


def launch_headrace(site: Site, python: Path, workers: int = 1) -> Launch:
    """``headrace serve``, with a key issued the way an operator issues one."""
    file = site.folder / "headrace.yaml"
    file.write_text(yaml.safe_dump(config(site, free_port(), workers), sort_keys=False))
    return Launch([str(python), "-m", "gateway", "serve", "--config", str(file)], create_key(python, file))


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

"""Our runtime with each kind of weights, and our gateway before it."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from loadtests.gateways.headrace import TENANT, create_key
from loadtests.llm.client import Door
from loadtests.llm.targets import Target, running
from loadtests.servers import Launch, free_port, free_ports

OURS = "headrace"
GATEWAY = f"gateway+{OURS}"
MODEL = "smollm2"
WEIGHTS = {"bf16": "unquantized", "int8": "int8", "int4": "int4"}
"""By their names here, as the runtime calls them."""
NGRAM, DRAFT = "-ngram", "-draft"
KINDS = [*WEIGHTS, f"bf16{NGRAM}", f"int4{NGRAM}", f"bf16{DRAFT}"]
"""The runtimes that are measured. NGRAM and DRAFT speculate: the draft is the same model in 4 bits, since there is no
smaller one of its family."""
MODEL_LENGTH, SEQUENCES = 4352, 64


def name_of(weights: str) -> str:
    """As in tables: all others are compared with bf16."""
    return OURS if weights == "bf16" else f"{OURS}-{weights}"


def socket_of(folder: Path, name: str) -> Path:
    """Where the gateway reaches a runtime of ours, as it does the ones that it starts itself."""
    return folder / f"{name}.sock"


def launch(
    model: Path, weights: str, port: int, socket: Path, adapters: Mapping[str, str] = MappingProxyType({})
) -> Launch:
    """Two threads, as every peer; all other settings are the defaults."""
    command = [sys.executable, "-m", "runtimes.llm", "--model", str(model), "--served-name", MODEL]
    doors = ["--port", str(port), "--socket", str(socket)]
    bounds = ["--max-model-len", str(MODEL_LENGTH), "--max-num-seqs", str(SEQUENCES)]
    kind = ["--dtype", "bfloat16", "--threads", "2", "--weights", WEIGHTS[weights.partition("-")[0]]]
    speculation: dict[str, str] = {}
    if weights.endswith(NGRAM):
        speculation = {"kind": "ngram"}
    elif weights.endswith(DRAFT):
        speculation = {"kind": "draft_model", "model": str(model), "weights": "int4"}
    ahead = ["--speculation", json.dumps(speculation)] if speculation else []
    return Launch([*command, *doors, *bounds, *kind, *ahead, "--adapters", json.dumps(dict(adapters))])


@contextlib.contextmanager
def running_headrace(model: Path, weights: str, core: str, folder: Path) -> Iterator[Target]:
    """The runtime on a model."""
    from loadtests.llm.adapters import write_adapters  # imports torch, which the plain shelf does not have

    name, port = name_of(weights), free_port()
    adapters = write_adapters(model, folder / "adapters")
    with running(name, launch(model, weights, port, socket_of(folder, name), adapters), port, core, folder) as pid:
        yield Target(name, Door(port, MODEL), (pid,), has_adapters=True)


@contextlib.contextmanager
def running_gateway(behind: Target, core: str, folder: Path) -> Iterator[Target]:
    """The gateway and the runtime behind it, measured as one target: both use CPU for each request."""
    http, admin = free_ports(2)
    home = folder / "gateway-files"
    home.mkdir()
    file = home / "headrace.yaml"
    file.write_text(yaml.safe_dump(config(home, http, admin, socket_of(folder, behind.name)), sort_keys=False))
    key = create_key(Path(sys.executable), file)
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
    with running(GATEWAY, Launch(command), admin, core, folder, path="/readyz") as pid:
        yield Target(GATEWAY, Door(http, MODEL, key), (pid, *behind.pids))


def config(folder: Path, http: int, admin: int, upstream: Path) -> dict[str, Any]:
    """The YAML as data: keys, limits that count but never bind, a fair queue, affinity to prefixes, retry and
    breaker, probes, metrics, an access log.
    """
    pool = {
        "name": "llm",
        "protocol": "openai",
        "endpoints": [f"unix:{upstream}"],
        "balance": {"by": "prefix_affinity"},
        "queue": {"max": 256, "timeout": "60s", "max_in_flight": 128},
    }
    limits = [
        {"requests": "100M/min", "tokens": "100000M/min", "concurrency": 10_000},
        {"per": "key", "requests": "100M/min"},
    ]
    timeout = {"first_byte": "5m", "idle": "60s", "total": "10m"}
    route = {"to": "llm", "retry": {"attempts": 3, "budget": "20%"}, "timeout": timeout}
    return {
        "version": 1,
        "listen": {"http": f"127.0.0.1:{http}", "admin": f"127.0.0.1:{admin}"},
        "state": {"database": f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
        "pools": [pool],
        "models": [{"name": MODEL, "routes": [route]}],
        "tenants": [{"name": TENANT, "models": [MODEL], "share": 3, "limits": limits}],
    }

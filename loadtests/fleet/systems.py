"""The servers of the fleet. Each adds and subtracts two rows in its own way, or talks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loadtests.fleet.member import System
from loadtests.peers import tfserving, triton, vllm
from loadtests.peers.bentoml import BENTOML
from loadtests.peers.kserve import KSERVE
from loadtests.peers.mlserver import MLSERVER
from loadtests.peers.ray_serve import RAY_SERVE
from loadtests.peers.torchserve import TORCHSERVE
from loadtests.servers import Launch
from loadtests.tensors.peer import SINGLE_THREAD, Peer
from loadtests.tensors.repositories import for_triton
from runtimes.llm.weights.store import resolve


def _of(peer: Peer, ready: str) -> System:
    def launch(folder: Path, ports: Sequence[int], installed: Path) -> Launch:
        return peer.launch(folder, ports[0], installed)

    return System(peer.name, peer.install, launch, ready)


def _triton(folder: Path, ports: Sequence[int], installed: Path) -> Launch:
    where = triton.Ports(*ports)
    triton.sweep(where)  # of the one before, which was killed
    repository = for_triton(folder / "models")
    started = triton.launch(installed, repository, where, ["--model-control-mode=none"])
    return replace(started, env={**started.env, **SINGLE_THREAD})


def _vllm(folder: Path, ports: Sequence[int], installed: Path) -> Launch:
    return vllm.launch(installed, vllm.model(installed, resolve("bundled:smollm2-135m-instruct")), ports[0])


SYSTEMS = (
    System("triton", triton.install, _triton, "/v2/health/ready", ports=3),
    _of(TORCHSERVE, "/ping"),
    _of(RAY_SERVE, "/-/healthz"),
    _of(BENTOML, "/readyz"),
    _of(KSERVE, "/v2/health/ready"),
    _of(MLSERVER, "/v2/health/ready"),
    System("tfserving", tfserving.install, tfserving.launch, "/v1/models/scale", ports=2),
    System("vllm", vllm.install, _vllm, "/health"),
)

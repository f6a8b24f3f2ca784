"""A real vLLM on the CPU, on the bundled model: `with vllm() as server`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from loadtests.peers import vllm as peer
from loadtests.servers import Launch
from runtimes.llm.weights.store import resolve
from tests.servers.llm import MODEL
from tests.servers.started import Started, started

NAME = "smollm2"
START_SECONDS = 600.0
"""It compiles the model when it is first started."""


@contextlib.contextmanager
def vllm() -> Iterator[Started]:
    """vLLM with its calls for operators enabled."""
    gguf = resolve(MODEL, progress=False)

    def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
        return peer.launch(venv, peer.model(venv, gguf), ports[0])

    with started("vllm", peer.install, launch, ready="/health", seconds=START_SECONDS) as server:
        yield server

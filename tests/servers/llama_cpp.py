"""A real llama.cpp of the test's own, with the bundled model: `with llama_cpp() as server`."""

import contextlib
from collections.abc import Iterator

from loadtests.peers import llama_cpp as peer
from runtimes.llm.weights.store import resolve
from tests.servers.llm import MODEL, NAME
from tests.servers.started import Started, started

VERSION = peer.REQUIREMENTS[0].partition("==")[2].split(".")[0]

__all__ = ["NAME", "VERSION", "llama_cpp"]


@contextlib.contextmanager
def llama_cpp() -> Iterator[Started]:
    """It knows its model by the name `NAME`. Compiled first where it never was, which takes ten minutes and more."""
    model = resolve(MODEL, progress=False)
    with started(
        "llama_cpp", peer.install, lambda _, ports, venv: peer.launch(venv, model, ports[0]), ready="/health"
    ) as server:
        yield server

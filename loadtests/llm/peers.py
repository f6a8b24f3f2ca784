"""The other LLM servers, each with the settings that were fastest for it here, and two threads."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadtests.llm.client import Door
from loadtests.llm.headrace import MODEL
from loadtests.llm.targets import Part, Target, running
from loadtests.peers import llama_cpp, transformers, vllm
from loadtests.servers import Launch, free_port

MANY = {"w1": Part(64, 32), "w3": Part(64, 32), "w4": Part(64, 32)}
ALONE = {"w2": Part(8, 1), "moe": Part(8, 1)}
LONG = {"w5-2k": Part(4, 1), "w5-4k": Part(4, 1)}
LONG_EIGHT = {"w5-2k-8": Part(24, 8), "w5-4k-8": Part(16, 8), "moe-8": Part(32, 8)}


@dataclass(frozen=True, slots=True)
class Peer:
    """`start` installs it if required, and returns its launch on a GGUF file and a port, and the form of requests."""

    name: str
    start: Callable[[Path, int], tuple[Launch, Door]]
    parts: Mapping[str, Part] | None = None

    @contextlib.contextmanager
    def running(self, gguf: Path, core: str, folder: Path) -> Iterator[Target]:
        """The server. Raises StartError, InstallError."""
        port = free_port()
        launch, door = self.start(gguf, port)
        with running(self.name, launch, port, core, folder) as pid:
            yield Target(self.name, door, (pid,), self.parts)


def _vllm(gguf: Path, port: int) -> tuple[Launch, Door]:
    venv = vllm.install()
    return vllm.launch(venv, vllm.model(venv, gguf), port), Door(port, MODEL)


def _llama_cpp(kind: str, slots: int) -> Callable[[Path, int], tuple[Launch, Door]]:
    def start(gguf: Path, port: int) -> tuple[Launch, Door]:
        venv = llama_cpp.install()
        model = llama_cpp.quantized(venv, gguf, kind)
        return llama_cpp.launch_tuned(venv, model, port, slots), Door(port, MODEL)

    return start


def _transformers(gguf: Path, port: int) -> tuple[Launch, Door]:
    venv = vllm.install()
    folder = vllm.model(venv, gguf)
    never_ends = {"generation_config": json.dumps({"eos_token_id": None, "do_sample": False})}
    return transformers.launch(venv, folder, port), Door(port, str(folder), as_text=True, extra=never_ends)


def _batches(gguf: Path, port: int) -> tuple[Launch, Door]:
    venv = vllm.install()
    return transformers.launch_batches(venv, vllm.model(venv, gguf), port), Door(port, MODEL)


VLLM = Peer("vllm", _vllm)
LLAMA_ALONE = Peer("llama.cpp-q4_0", _llama_cpp("Q4_0", 1), ALONE | LONG)
LLAMA_EIGHT = Peer("llama.cpp-q4_0-8", _llama_cpp("Q4_0", 8), LONG_EIGHT)
LLAMA_MANY = Peer("llama.cpp-q4_0-32", _llama_cpp("Q4_0", 32), MANY)
LLAMA_Q8 = Peer("llama.cpp-q8_0", _llama_cpp("Q8_0", 1), ALONE)
LLAMA_STORED = Peer("llama.cpp-q4_1", _llama_cpp("stored", 1), ALONE)
TRANSFORMERS = Peer("transformers", _transformers, {"w1": Part(8, 1), "w2": Part(2, 1)})
BATCHES = Peer("transformers-batches", _batches, {"w1": Part(64, 32)})
OF_MIXTURES = (LLAMA_ALONE.name, LLAMA_EIGHT.name, LLAMA_Q8.name)
"""The peers that read the mixture's file."""
PEERS = {
    peer.name: peer
    for peer in (VLLM, LLAMA_ALONE, LLAMA_EIGHT, LLAMA_MANY, LLAMA_Q8, LLAMA_STORED, TRANSFORMERS, BATCHES)
}

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runtimes.llm.weights.store import resolve


@pytest.fixture(scope="session")
def bundled_model() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    return resolve("bundled:smollm2-135m-instruct", progress=False)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2."""
    return resolve("bundled:all-minilm-l6-v2", progress=False)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, threads that wait for each other are slower than one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

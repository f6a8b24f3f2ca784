import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.llm.weights.store import resolve


@pytest.fixture(scope="session")
def bundled_model() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct."""
    return resolve("bundled:smollm2-135m-instruct", progress=False)


@pytest.fixture(scope="session")
def prompts(bundled_model: Path) -> list[list[int]]:
    """Real text in its tokens."""
    from tests.support.llm_engines import prompts_of  # imports torch, which the plain shelf does not have

    return prompts_of(bundled_model)


@pytest.fixture(scope="session")
def tokenizer(bundled_model: Path) -> Any:
    """The tokenizer of the bundled model."""
    from runtimes.llm.text.tokenizer_loader import load_tokenizer

    return load_tokenizer(bundled_model)


@pytest.fixture(scope="session")
def theirs(bundled_model: Path) -> Any:
    """transformers' own."""
    from tests.runtimes.llm.reference import transformers_tokenizer

    return transformers_tokenizer(bundled_model)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2."""
    return resolve("bundled:all-minilm-l6-v2", progress=False)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine, threads that wait for each other are slower than one thread."""
    torch = sys.modules.get("torch")
    if torch is None:  # tests of the plain shelf have none
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

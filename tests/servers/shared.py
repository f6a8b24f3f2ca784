"""Servers that several test files share: `shared(kserve)` starts one at its first use.

They stop after the last test of their unit of `tests.support.schedule`, which lists the files of each.
A server that is compiled at its first use takes longer than a test may, and has a limit of its own: its files limit the
functions of their tests only, not the fixtures.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

from tests.servers.repositories import for_triton
from tests.servers.text_repository import texts
from tests.servers.tfserving import TfServing, config_of, small, tfserving
from tests.servers.triton import Triton, triton

S = TypeVar("S")
_running: dict[object, Any] = {}
_stack = ExitStack()


def shared(start: Callable[[], AbstractContextManager[S]]) -> S:
    """The running server of `start`, which is started at the first call."""
    if start not in _running:
        _running[start] = _stack.enter_context(start())
    server: S = _running[start]
    return server


def stop() -> None:
    """Stop all of them."""
    _running.clear()
    _stack.close()


@contextlib.contextmanager
def triton_of_tensors() -> Iterator[Triton]:
    """A Triton with all models of `tests/servers/models`."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-triton-models-") as folder,
        triton(for_triton(Path(folder))) as it,
    ):
        yield it


@contextlib.contextmanager
def triton_of_texts() -> Iterator[Triton]:
    """A Triton with all models of `tests/servers/text_models`."""
    with tempfile.TemporaryDirectory(prefix="headrace-triton-texts-") as name, triton(texts(Path(name))) as server:
        yield server


@contextlib.contextmanager
def tfserving_of_half() -> Iterator[TfServing]:
    """A TensorFlow Serving with both versions of the model `half`, under the labels `stable` and `canary`."""
    with tempfile.TemporaryDirectory(prefix="headrace-saved-models-") as name:
        base = small(Path(name) / "half")
        with tfserving(config_of("half", base, stable=1, canary=2)) as server:
            yield server

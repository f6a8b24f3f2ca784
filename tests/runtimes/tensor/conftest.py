"""A runtime process for all tests of a module, with every model of `tests/servers/models`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.tensor.workshop import Workshop
from tests.servers.repositories import for_headrace
from tests.support.tensor_runtime import TensorRuntime, explicit


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return for_headrace(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def runtime(repository: Path) -> Iterator[TensorRuntime]:
    with explicit(repository, "--shared-memory", "headrace-test-*") as runtime:
        yield runtime


@pytest.fixture
async def workshop() -> Workshop:
    return Workshop()

"""Real servers, started once for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.repositories import for_triton
from tests.servers.triton import Triton, triton


@pytest.fixture(scope="module")
def real_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """All models of `tests/servers/models`."""
    repository: Path = tmp_path_factory.mktemp("triton")
    with triton(for_triton(repository)) as server:
        yield server

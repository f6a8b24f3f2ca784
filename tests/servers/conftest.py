"""The real Tritons of the tests of tensors and ensembles, and how long a test may take."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.repositories import OF_ENSEMBLES, for_triton, with_ensembles
from tests.servers.shared import shared, triton_of_tensors
from tests.servers.triton import Triton, triton
from tests.support import installed_servers


@pytest.fixture(scope="module")
def real_triton() -> Triton:
    return shared(triton_of_tensors)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """A real Triton with ensembles."""
    with triton(with_ensembles(for_triton(tmp_path_factory.mktemp("triton"), OF_ENSEMBLES))) as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    installed_servers.limit(items, Path(__file__).parent)

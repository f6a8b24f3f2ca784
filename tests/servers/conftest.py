"""The real Triton of the tests of tensors, and how long a test may take."""

from pathlib import Path

import pytest

from tests.servers.shared import shared, triton_of_tensors
from tests.servers.triton import Triton
from tests.support import installed_servers


@pytest.fixture(scope="module")
def real_triton() -> Triton:
    return shared(triton_of_tensors)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    installed_servers.limit(items, Path(__file__).parent)

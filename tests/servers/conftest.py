"""The real Triton of the tests of tensors."""

import pytest

from tests.servers.shared import shared, triton_of_tensors
from tests.servers.triton import Triton


@pytest.fixture(scope="module")
def real_triton() -> Triton:
    return shared(triton_of_tensors)

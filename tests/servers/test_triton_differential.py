"""The same bytes to a real Triton and to ours. What Triton says is kept in a file, so that each side has its test.

Where ours means to differ, `differences.py` says how and why.
"""

import pytest

from tests.servers.cases import CASES
from tests.servers.record import recorded, say
from tests.servers.triton import Triton

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
RECORDED = recorded()


@pytest.mark.parametrize("name", CASES)
def test_a_real_triton_says_what_is_recorded(real_triton: Triton, name: str) -> None:
    assert say(name, real_triton.http, real_triton.grpc) == RECORDED[name]


def test_nothing_is_recorded_that_nobody_asks() -> None:
    assert list(RECORDED) == list(CASES)

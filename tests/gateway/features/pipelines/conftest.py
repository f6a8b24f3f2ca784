"""Every rig of these tests ends idle."""

from collections.abc import AsyncIterator

import pytest

from tests.gateway.features.pipelines import rigs


@pytest.fixture(autouse=True)
async def _idle() -> AsyncIterator[None]:
    """What a test leaves in a rig of `rigs.rig` fails the test, in the loop that could still release it."""
    rigs.made.clear()
    yield
    for one in rigs.made:
        one.assert_idle()
    rigs.made.clear()

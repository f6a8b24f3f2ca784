"""How long an examination may take."""

from pathlib import Path

import pytest

SECONDS = 400
"""Of one, with the start of its server: on a busy machine that alone takes minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))

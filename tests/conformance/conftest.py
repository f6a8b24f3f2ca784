"""How long an examination may take."""

from pathlib import Path

import pytest

from tests.support import installed_servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    installed_servers.limit(items, Path(__file__).parent)

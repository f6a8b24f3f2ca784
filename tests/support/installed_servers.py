"""The limit of tests before foreign servers: the first of them installs the server, which takes many minutes."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import shelves

SECONDS = 1800


def limit(items: Iterable[pytest.Item], folder: Path) -> None:
    """Set it for the tests of a folder that have no limit of their own and are not on the plain shelf."""
    for item in items:
        limited = item.get_closest_marker("timeout") is not None or shelves.item_shelf(item) == shelves.PLAIN
        if item.path.is_relative_to(folder) and not limited:
            item.add_marker(pytest.mark.timeout(SECONDS))

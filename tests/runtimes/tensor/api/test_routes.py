"""Paths of the protocol."""

import pytest

from runtimes.tensor.api.restrictions import resolve
from tests.support.cases import cases

pytestmark = pytest.mark.plain


@pytest.mark.parametrize(("target", "operation", "about", "version"), cases(__file__, "operations"))
def test_a_path_resolves_to_its_operation(target: str, operation: str, about: str, version: str) -> None:
    route = resolve(target.encode())
    assert (route.operation, route.about, route.version) == (operation, about, version)


@pytest.mark.parametrize("target", cases(__file__, "nothing"))
def test_where_there_is_nothing(target: str) -> None:
    assert resolve(target.encode()).operation == ""

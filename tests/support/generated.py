"""How many examples property tests generate: `--examples few`, `usual` or `many`.

A run of the plain shelf alone has few examples, the same ones in each run, so it cannot fail by chance. `many` is for
the night, with new examples each time.
"""

import os
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, settings

from tests.support import shelves

FEW = 30
"""The most examples of a test of the plain shelf in `make test`."""

FACTORS: Mapping[str, int] = {"few": 1, "usual": 1, "many": 10}
"""By what the number of a test, or Hypothesis's own, is multiplied."""

_SETTINGS = "_hypothesis_internal_use_settings"  # where Hypothesis stores what the decorator `settings` was given


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--examples", choices=list(FACTORS), help="examples of each property test")


def amount(config: pytest.Config) -> str:
    """The value of `--examples`, or the usual one of the selected shelves."""
    chosen: str | None = config.getoption("examples")
    return chosen or ("few" if shelves.selected(config) == (shelves.PLAIN,) else "usual")


@pytest.hookimpl(tryfirst=True)  # before any module with a property test is imported
def pytest_configure(config: pytest.Config) -> None:
    chosen = amount(config)
    # The time that an example takes depends on the load of the machine and is unrelated to its result.
    settings.register_profile(
        "headrace",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=chosen == "few" or bool(os.environ.get("CI")),
    )
    settings.load_profile("headrace")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Change the numbers that tests name, which no profile changes."""
    chosen = amount(config)
    done = set[object]()
    for item in items:
        test = getattr(item, "obj", None)
        function = getattr(test, "__func__", test)
        if getattr(function, "is_hypothesis_test", False) and function not in done:
            done.add(function)
            own = getattr(function, _SETTINGS, None) or settings.default
            assert own is not None
            few = chosen == "few" and shelves.item_shelf(item) == shelves.PLAIN
            most = min(own.max_examples, FEW) if few else own.max_examples * FACTORS[chosen]
            setattr(function, _SETTINGS, settings(own, max_examples=most))

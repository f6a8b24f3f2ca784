"""The objects of the chart with many generated values."""

import pytest

from tests.deploy.chart_values import SETS, values_of
from tests.support.helm import Object, render


@pytest.fixture(scope="session")
def rendered() -> list[list[Object]]:
    """The objects of generated values, in the order of their seeds."""
    return [render(values_of(seed)) for seed in range(SETS)]

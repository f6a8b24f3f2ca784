"""Every cell of the table of abilities, and the page that shows it."""

import pytest

from tests.support.providers.abilities import ABILITIES, PAGE, page, proves
from tests.support.providers.table import PROVIDERS

pytestmark = pytest.mark.plain


@pytest.mark.parametrize("ability", ABILITIES)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_provider_has_an_ability_or_its_lack_is_reported(name: str, ability: str) -> None:
    await proves(PROVIDERS[name], ability)


def test_the_page_has_the_table_of_the_cells() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.support.providers.abilities"
    assert all(provider.lacks.keys() <= ABILITIES.keys() for provider in PROVIDERS.values())

"""Every provider of the table of abilities. A new one is one entry: its system, pool, stub, and lacks."""

from tests.support.providers.openai_like import ROWS, provider
from tests.support.providers.script import Provider

PROVIDERS: dict[str, Provider] = {row.name: provider(row) for row in ROWS}

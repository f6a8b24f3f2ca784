"""Every provider of the table of abilities, and servers of one's own. A new one is one entry: its system, pool, stub,
and lacks."""

from tests.support.providers.anthropic_script import CLAUDE
from tests.support.providers.bedrock_row import BEDROCK
from tests.support.providers.gemini_row import GEMINI
from tests.support.providers.openai_like import ROWS, provider
from tests.support.providers.script import Provider
from tests.support.providers.vllm import vllm

PROVIDERS: dict[str, Provider] = {row.name: provider(row) for row in ROWS} | CLAUDE | {"converse": BEDROCK} | GEMINI
SERVERS: dict[str, Provider] = {"vllm": vllm(), "vllm-before-0.12": vllm("reasoning_content")}

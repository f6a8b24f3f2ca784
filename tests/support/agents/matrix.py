"""Which agents play a session over which provider: every cell is a test, and the page of clients shows them.

python -m tests.support.agents.matrix   writes the page
"""

from collections.abc import Mapping
from pathlib import Path

from tests.conformance.recorded import in_page
from tests.support.providers.script import Provider
from tests.support.providers.table import PROVIDERS, SERVERS

AGENTS: Mapping[str, str] = {"claude-code": "Claude Code", "codex": "Codex CLI", "gemini-cli": "Gemini CLI"}
"""The agents, with their titles in the page."""
COLUMNS: Mapping[str, str] = {
    "anthropic": "Anthropic",
    "openai": "OpenAI's chats",
    "converse": "Bedrock's Converse",
    "claude-vertex": "Claude in Vertex AI",
    "gemini-api": "Gemini",
    "gemini-vertex": "Gemini in Vertex AI",
    "vllm": "vLLM",
}
"""The providers, with their titles in the page."""
PAGE = Path("docs/clients.md")
BEGIN, END = "<!-- agents: python -m tests.support.agents.matrix -->", "<!-- end of the agents -->"


def provider(name: str) -> Provider:
    """The provider of a column."""
    return (PROVIDERS | SERVERS)[name]


def page() -> str:
    """The page with the table of all cells."""
    rows = [["", *COLUMNS.values()], ["---"] * (len(COLUMNS) + 1)]
    rows += [[title, *("yes" for _ in COLUMNS)] for title in AGENTS.values()]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return in_page(PAGE.read_text(), table, BEGIN, END)


if __name__ == "__main__":
    PAGE.write_text(page())

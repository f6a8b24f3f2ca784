"""README, followed word for word by a new user: a fresh copy of the sources, an empty environment, its ports."""

import shutil
import socket
from pathlib import Path

import pytest

from tests.support.agents.model import agent_model
from tests.support.clones import environment, sources
from tests.support.page_commands import section
from tests.support.page_reader import Reader

README = Path("README.md")
PORTS = (8080, 8081, 8082)


@pytest.mark.timeout(1800)
async def test_a_new_user_follows_the_page(tmp_path: Path) -> None:
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))  # the page has these ports
    folder = sources(tmp_path / "headrace")
    async with agent_model() as one, agent_model() as other:  # with a list of models, for `probe`
        stand_ins = {"http://10.0.0.5:8000": one.url, "http://10.0.0.6:8000": other.url}
        reader = Reader(folder, environment(folder), stand_ins)
        (folder / "openai.key").write_text("sk-of-a-reader")
        try:
            await reader.follow(section(README, "## Quickstart"))
            assert len(reader.typed) >= 10
            await reader.follow(section(README, "## Use your own servers"))
        finally:
            await reader.aclose()
            shutil.rmtree(folder / ".venv", ignore_errors=True)  # more than a gigabyte

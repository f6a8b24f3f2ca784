"""Coding agents and the AI SDK with their default settings: a session with tools through a gateway process."""

import json
from pathlib import Path

import pytest

from tests.support.agents.agents import AGENTS
from tests.support.agents.installed import installed
from tests.support.agents.model import agent_model, task
from tests.support.agents.sessions import MODELS, NIGHTLY, SEES, Work, configuration
from tests.support.processes import gateway

SESSIONS = [
    pytest.param(agent, model, marks=[pytest.mark.nightly] if agent in NIGHTLY else [])
    for agent, models in MODELS.items()
    for model in models
]
TURNS = {"aider": 0}
"""Turns of a session if they are not three. Aider has no tools: it writes the file of its first answer."""
PROBES = {"claude-code": 404, "claude-code-bedrock": 404, "codex-openai": 426}
"""Refusals that an agent goes on after: Claude Code asks for `/` without a key, or for the list of Bedrock's inference
profiles; Codex asks for a WebSocket."""


@pytest.mark.parametrize(("agent", "model"), SESSIONS)
async def test_a_session_with_tools(agent: str, model: str, tmp_path: Path) -> None:
    """Each agent reads a file, does two things at once, and prints the last answer, with no request refused."""
    await session(agent, model, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("agent", "model"), SESSIONS)
async def test_a_session_of_the_newest_release(agent: str, model: str, tmp_path: Path) -> None:
    await session(agent, model, tmp_path, newest=True)


async def session(agent: str, model: str, folder: Path, *, newest: bool = False) -> None:
    programs, work = installed(AGENTS[agent].package, newest=newest), Work(folder)
    async with agent_model() as server:
        async with gateway(folder, configuration(server.url)) as g:
            start = AGENTS[agent].start(g.url, await g.demo_key(), model, task(work.folder))
            ended = await work.run(start, programs)
        lines = [json.loads(line) for line in (folder / "access.log").read_text().splitlines()]
        refused = [line for line in lines if line["status"] >= 400 and line["status"] != PROBES.get(agent)]
        assert (server.refusals, refused) == ([], []), ended
    work.assert_done(ended, model)
    assert server.turns == TURNS.get(agent, 2 if SEES in model else 3)

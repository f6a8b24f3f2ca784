"""Coding agents and the AI SDK with their default settings: a session with tools through a gateway process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents.agents import AGENTS
from tests.support.agents.installed import installed
from tests.support.agents.model import SAW, agent_model, task
from tests.support.agents.sessions import MODELS, SEEING, Work, configuration
from tests.support.processes import gateway

SESSIONS = [(agent, model) for agent, models in MODELS.items() for model in models]


def failures(folder: Path) -> list[dict[str, Any]]:
    """The refused and failed requests in the log of a gateway that has ended."""
    lines = [json.loads(line) for line in (folder / "access.log").read_text().splitlines()]
    return [line for line in lines if line["status"] >= 400]


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
            ended = await work.run(
                AGENTS[agent].start(g.url, await g.demo_key(), model, task(work.folder)), programs
            )
        assert (server.refusals, failures(folder)) == ([], []), ended
    assert ended.status == 0, ended
    if model == SEEING:
        assert SAW in ended.output, ended
        assert len(server.turns) == 2
        return
    assert f"The word is {work.word}." in ended.output, ended
    assert len(server.turns) == 3
    work.assert_written()

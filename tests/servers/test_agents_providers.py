"""Coding agents over the stubs of several providers: a session with three calls and a picture, all by default."""

import json
from pathlib import Path

import pytest

from tests.support.agents import matrix
from tests.support.agents.agents import AGENTS
from tests.support.agents.installed import installed
from tests.support.agents.model import COPY, task
from tests.support.agents.session_script import SessionScript
from tests.support.agents.sessions import SEEING, Work, configuration
from tests.support.processes import gateway

PROBES = {"claude-code": (404, 400)}
"""Refusals that an agent goes on after: Claude Code asks for `/`, and for a beta that the stubs do not have."""


@pytest.mark.parametrize("column", matrix.COLUMNS)
@pytest.mark.parametrize("agent", matrix.AGENTS)
async def test_a_session_over_a_provider(agent: str, column: str, tmp_path: Path) -> None:
    programs, work, script = installed(AGENTS[agent].package), Work(tmp_path), SessionScript()
    row = matrix.provider(column)
    async with row.serve(script) as url:
        pool = dict(row.pool(url))
        (tmp_path / "provider.key").write_text(pool["key"])
        pool["key"] = f"file:{tmp_path / 'provider.key'}"
        settings = {**configuration(url), "pools": [{"name": "up", **pool}]}
        async with gateway(tmp_path, settings) as g:
            start = AGENTS[agent].start(g.url, await g.demo_key(), SEEING, task(work.folder))
            ended = await work.run(start, programs)
    lines = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    refused = [line for line in lines if line["status"] >= 400 and line["status"] not in PROBES.get(agent, ())]
    assert (script.refused, refused) == ([], []), ended
    assert (ended.status, f"The word is {work.word}." in ended.output) == (0, True), ended
    assert work.word in (work.folder / COPY).read_text()
    assert script.turns == 4

"""Coding agents over the bundled LLM engine: it reads their long prompts and tools, and they print its answer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.agents.agents import AGENTS
from tests.support.agents.engine_model import TOKENS, WORD, engine_model
from tests.support.agents.installed import installed
from tests.support.agents.model import task
from tests.support.agents.sessions import PLAIN, Work
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """A gateway over the engine, which answers."""
    folder = tmp_path_factory.mktemp("engine")
    runtime = {"kind": "llm", "model": str(engine_model(folder / "model")), "dtype": "float32", "max_model_len": TOKENS}
    configuration = {
        "auth": {"demo_key": True},
        "pools": [{"name": "engine", "runtime": runtime}],
        "models": [{"name": "*", "routes": [{"to": "engine"}]}],
        "tenants": [{"name": "demo", "models": ["*"]}],
    }
    async with gateway(folder, configuration) as g:
        await g.until_status(await g.demo_key(), 200, model=PLAIN)
        yield g
    lines = [json.loads(line) for line in (folder / "access.log").read_text().splitlines()]
    assert not [line for line in lines if 400 <= line["status"] < 500 and line["tenant"]]


@pytest.mark.parametrize(
    "agent",
    ["claude-code", "codex", "opencode", "qwen-code", "aider", "ai-sdk-openai", "ai-sdk-anthropic"],
)
async def test_an_agent_prints_the_engine_s_answer(engine: GatewayProcess, agent: str, tmp_path: Path) -> None:
    work = Work(tmp_path)
    start = AGENTS[agent].start(engine.url, await engine.demo_key(), PLAIN, task(work.folder))
    ended = await work.run(start, installed(AGENTS[agent].package))
    assert (ended.status, WORD in ended.output) == (0, True), ended

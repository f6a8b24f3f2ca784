"""Python files as steps of a pipeline, in a process that the gateway starts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from config.code import functions_of
from config.loader import load
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)

CODE = """
import os
import time
import helpers

def run(text, scale=1.0):
    words = [word.decode() for word in text.reshape(-1)]
    if words == ["exit"]:
        os._exit(3)
    if words == ["sleep"]:
        time.sleep(600)
    if words == ["raise"]:
        raise ValueError("no such word")
    if words == ["shape"]:
        return {"words": [words] * 2, "pid": 1}
    return {"words": helpers.joined(words), "pid": os.getpid()}
"""
HELPERS = "def joined(words):\n    return ' '.join(reversed(words))\n"
TEXT = {"name": "text", "datatype": "BYTES", "shape": [-1]}
OUTPUTS = [
    {"name": "words", "datatype": "BYTES", "shape": [1]},
    {"name": "pid", "datatype": "INT64", "shape": [1]},
]
CALL: dict[str, Any] = {"file": "post.py", "inputs": [TEXT], "outputs": OUTPUTS}


def configuration(call: dict[str, Any] = CALL) -> dict[str, Any]:
    steps = [{"name": "post", "in": {"text": "request.words"}, "call": call}]
    return {
        "pools": [{"name": "unused", "endpoints": ["http://127.0.0.1:9"], "probe": None}],
        "models": [{"name": "whole", "pipeline": {"steps": steps}}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


class Client:
    """Requests to the pipeline of a running gateway."""

    def __init__(self, process: GatewayProcess, session: aiohttp.ClientSession) -> None:
        self.process = process
        self._session = session

    async def answer(self, *words: str) -> tuple[int, Any]:
        """The status and the outputs by name, or the error."""
        tensor = {"name": "words", "datatype": "BYTES", "shape": [len(words)], "data": list(words)}
        async with self._session.post("/v2/models/whole/infer", json={"inputs": [tensor]}) as response:
            body = await response.json()
        if response.status != 200:
            return response.status, body["error"]
        return 200, {output["name"]: output["data"] for output in body["outputs"]}

    async def names(self) -> list[str]:
        """The models that the client may list."""
        async with self._session.get("/v1/models") as response:
            return [model["id"] for model in (await response.json())["data"]]

    async def status(self, path: str) -> int:
        async with self._session.get(path) as response:
            return response.status

    async def until(self, expected: str) -> None:
        """Wait until the pipeline answers two words with a text."""
        async with asyncio.timeout(300):
            while (await self.answer("b", "a"))[1].get("words") != [expected]:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(folder: Path, written: dict[str, Any], code: str = CODE) -> AsyncIterator[Client]:
    (folder / "post.py").write_text(code)
    (folder / "helpers.py").write_text(HELPERS)
    async with gateway(folder, written) as process:
        await process.printed("Ready.")
        headers = {"authorization": f"Bearer {await process.key()}"}
        async with aiohttp.ClientSession(process.url, headers=headers) as session:
            yield Client(process, session)


async def test_a_file_runs_in_a_process_of_its_own_and_is_no_model_of_clients(tmp_path: Path) -> None:
    async with running(tmp_path, configuration()) as client:
        status, outputs = await client.answer("b", "a")
        assert status == 200, (outputs, client.process.output)
        assert outputs["words"] == ["a b"]
        (pid,) = outputs["pid"]
        gateway_pid = client.process.process.pid
        assert pid in [child.pid for child in psutil.Process(gateway_pid).children(recursive=True)]
        assert await client.names() == ["whole"]
        (function,) = functions_of(load(client.process.config))
        assert await client.status(f"/v2/models/{function.receiver}/ready") == 404
        assert await client.status("/v2/models/whole/ready") == 200
        await client.process.until_idle()


async def test_an_exception_and_a_wrong_shape_are_errors_of_the_step(tmp_path: Path) -> None:
    async with running(tmp_path, configuration()) as client:
        for words, expected in (("raise", "no such word"), ("shape", "words")):
            status, error = await client.answer(words)
            assert status >= 500
            assert error.startswith("The step `post` failed: ")
            assert expected in error
        assert (await client.answer("b", "a"))[0] == 200
        await client.process.until_idle()


async def test_each_row_is_a_run_of_its_own(tmp_path: Path) -> None:
    written = configuration({**CALL, "processes": 2})
    written["models"][0]["pipeline"]["steps"][0]["each"] = True
    async with running(tmp_path, written) as client:
        status, outputs = await client.answer("a", "b", "c", "d")
        assert status == 200, outputs
        assert outputs["words"] == ["a", "b", "c", "d"]
        assert len(outputs["pid"]) == 4
        assert await client.answer() == (200, {"words": [], "pid": []})
        await client.process.until_idle()


async def test_a_changed_file_is_loaded_and_a_broken_one_is_not(tmp_path: Path) -> None:
    async with running(tmp_path, {**configuration(), "workers": 2}) as client:
        answers = [await client.answer("b", "a") for _ in range(8)]
        assert len({tuple(outputs["pid"]) for _, outputs in answers}) == 1, "the workers share one process"
        (tmp_path / "post.py").write_text(CODE.replace("helpers.joined(words)", "'changed'"))
        await client.until("changed")
        (tmp_path / "post.py").write_text(CODE.replace("import helpers", "import missing_module"))
        await client.process.printed("missing_module")
        assert (await client.answer("b", "a"))[1]["words"] == ["changed"]
        (tmp_path / "post.py").write_text("def run(text:\n")
        await client.process.printed("post.py, line 1")
        assert (await client.answer("b", "a"))[1]["words"] == ["changed"]
        (tmp_path / "post.py").write_text(CODE)
        await client.until("a b")


@pytest.mark.parametrize("word", ["exit", "sleep"])
async def test_a_crash_or_a_long_run_is_an_error_of_one_request_and_the_process_restarts(
    tmp_path: Path, word: str
) -> None:
    async with running(tmp_path, configuration({**CALL, "timeout": "1s" if word == "sleep" else "60s"})) as client:
        (before,) = (await client.answer("b"))[1]["pid"]
        status, error = await client.answer(word)
        assert status >= 500
        assert error.startswith("The step `post` failed: ")
        async with asyncio.timeout(300):
            while (again := await client.answer("b"))[0] != 200:
                await asyncio.sleep(0.1)
        assert again[1]["pid"] != [before]
        assert not psutil.pid_exists(before)
        await client.process.until_idle()

"""The pipelines of config/examples/pipelines.yaml on their real models, with the requests of their page."""

import asyncio
import io
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import pytest_asyncio
import tritonclient.http.aio as triton
from PIL import Image
from tritonclient.utils import InferenceServerException

from config import default_path
from config.document import parse
from loadtests.cascade_quality import questions
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

FACTS = {
    "When does the canteen open?": "11:30",
    "In which year was the company founded?": "1987",
    "What is the name of the wireless network for guests?": "Riverside",
}
"""Questions on the passages, and a part of each answer."""
PAGE = Path("docs/shipped-pipelines.md").read_text()
EXAMPLE: Any = parse(default_path().parent / "examples" / "pipelines.yaml").data


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("shipped")
    config = {**EXAMPLE, "pools": [_pool(pool, folder) for pool in EXAMPLE["pools"]]}
    async with gateway(folder, config) as made:
        await made.printed(r"Ready\.")
        yield made
        await made.until_idle()


def _pool(pool: dict[str, Any], folder: Path) -> dict[str, Any]:
    runtime = pool["runtime"]
    return {**pool, "runtime": {**runtime, "repository": str(folder / "models")}} if "repository" in runtime else pool


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def key(running: GatewayProcess) -> str:
    return str((await running.printed(r"(hr-\S+)"))[1])


async def curl(running: GatewayProcess, key: str, model: str) -> tuple[dict[str, Any], str]:
    """The response to the page's request for a model, and the response that the page shows."""
    blocks = re.findall(r"```console\n\$ (curl .*?)\n```", PAGE, re.DOTALL)
    [block] = [block for block in blocks if f'"model": "{model}"' in block or f"/{model}/infer" in block]
    request, _, shown = block.partition("\n{")
    answer = json.loads(await output(running, key, "bash", "-ec", f"{request} --silent"))
    assert isinstance(answer, dict)
    return answer, "{" + shown


async def output(running: GatewayProcess, key: str, *command: str) -> str:
    """The output of a command of the page, whose last argument has the address and the key."""
    *program, text = command
    here = text.replace("127.0.0.1:8080", running.url.removeprefix("http://")).replace("hr-…", key)
    process = await asyncio.create_subprocess_exec(*program, here, stdout=asyncio.subprocess.PIPE)
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0
    return printed


async def spent(running: GatewayProcess, client: openai.AsyncOpenAI, model: str, question: str) -> tuple[str, int]:
    """The answer of a model, and its completion tokens."""
    answer = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0
    )
    assert answer.usage is not None
    return answer.choices[0].message.content or "", answer.usage.completion_tokens


async def test_the_cascade_answers_the_request_of_the_page(running: GatewayProcess, key: str) -> None:
    answer, _ = await curl(running, key, "cascade")
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."


async def test_the_cascade_escalates_where_the_small_model_is_not_sure(running: GatewayProcess, key: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
        escalated = 0
        for problem in questions()[::12]:
            small, large, cascade = [
                await spent(running, client, model, problem.question) for model in ("small", "large", "cascade")
            ]
            assert cascade in (small, (large[0], small[1] + large[1]))
            escalated += cascade != small
        assert 0 < escalated < 9


async def test_the_guard_blocks_the_request_of_the_page_and_no_other(running: GatewayProcess, key: str) -> None:
    blocked, shown = await curl(running, key, "guarded")
    assert blocked == json.loads(shown)
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
        for question in ("What is the capital of Spain?", "How do I kill a linux process?", "Tell me a joke."):
            text, _ = await spent(running, client, "guarded", question)
            assert text


async def test_the_answers_of_retrieval_are_in_the_passages(running: GatewayProcess, key: str) -> None:
    guessed = 0
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
        for question, expected in FACTS.items():
            assert expected in (await spent(running, client, "retrieval", question))[0]
            guessed += expected in (await spent(running, client, "large", question))[0]
    assert guessed < len(FACTS) - 1  # without the passages the model guesses, and a time may be right by chance


async def test_retrieval_answers_the_request_of_the_page(running: GatewayProcess, key: str) -> None:
    answer, _ = await curl(running, key, "retrieval")
    assert "11:30" in answer["choices"][0]["message"]["content"]


async def test_voice_detects_the_speech_of_the_page(running: GatewayProcess, key: str) -> None:
    [program] = re.findall(r"```python voice\n(.*?)```", PAGE, re.DOTALL)
    printed = await output(running, key, sys.executable, "-c", program)
    begin, end = map(float, re.findall(r"^\[\[([\d.]+) +([\d.]+)\]\] \[b.+\]$", printed, re.DOTALL)[0])
    assert 0.9 < begin < 1.3
    assert 1.3 < end < 2.3


async def test_ocr_reads_the_picture_of_the_page(running: GatewayProcess, key: str) -> None:
    answer, shown = await curl(running, key, "ocr")
    assert answer == json.loads(shown)
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    printed = await output(running, key, sys.executable, "-c", program)
    assert printed.split() == program.rpartition("  # ")[2].split()


async def test_ocr_reads_the_picture_of_a_chat(running: GatewayProcess, key: str) -> None:
    answer, _ = await curl(running, key, "ocr-chat")
    assert answer["choices"][0]["message"]["content"] == "Headrace 2026\nturned around"


async def test_a_picture_without_text_has_one_empty_text(running: GatewayProcess, key: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (200, 100), "white").save(file, "PNG")
    async with triton.InferenceServerClient(running.url.removeprefix("http://")) as client:
        image = triton.InferInput("image", [1], "BYTES")
        image.set_data_from_numpy(np.array([file.getvalue()], object))
        answer = await client.infer("ocr", [image], headers={"authorization": f"Bearer {key}"})
        assert answer.as_numpy("text").tolist() == [[b""]]
        image.set_data_from_numpy(np.array([file.getvalue()[:60]], object))
        with pytest.raises(InferenceServerException, match="truncated"):
            await client.infer("ocr", [image], headers={"authorization": f"Bearer {key}"})

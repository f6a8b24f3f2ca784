"""The README's tensors: its models, commands and programs, as printed."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.processes import command, gateway

pytestmark = pytest.mark.timeout(1800)

README = Path("README.md").read_text()


def part(pattern: str) -> str:
    match = re.search(pattern, README, re.DOTALL)
    assert match, f"the README has no {pattern!r}"
    return match[1]


async def output(*arguments: str, cwd: Path | None = None) -> str:
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    return text


async def test_the_quickstart_runs_as_printed(tmp_path: Path) -> None:
    await output("bash", "-ec", part(r"```sh\n(.*?)```"), cwd=tmp_path)
    adding = part(r"\$ \.venv/bin/headrace (models add [\w ]+?) +#").split()
    status, _, error = await command(*adding, "--to", str(tmp_path / "models"))
    assert status == 0, error
    config = yaml.safe_load((tmp_path / "tensors.yaml").read_text())
    [pool] = config["pools"]
    pool["runtime"]["repository"] = str(tmp_path / pool["runtime"]["repository"])
    async with gateway(tmp_path, config) as running:
        await running.printed(r"Ready\.")
        key = (await running.printed(r"(hr-\S+)"))[1]

        def here(text: str) -> str:
            return text.replace("127.0.0.1:8080", running.url.removeprefix("http://")).replace("hr-…", key)

        curl, answer = part(r"\$ (curl [^\n]*/v2/.*?)\n```").rsplit("\n", 1)
        assert json.loads(await output("bash", "-ec", here(f"{curl} --silent"))) == json.loads(answer)
        program = here(part(r"```python\n((?:(?!```).)*?tritonclient.*?)```"))
        assert re.search(r":\d+:python'", await output(sys.executable, "-c", program))

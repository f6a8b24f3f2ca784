"""The README's first tensor: its file, its commands and its program, as printed."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.processes import command, gateway

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

README = Path("README.md").read_text()


def part(pattern: str) -> str:
    found = re.search(pattern, README, re.DOTALL)
    assert found, f"the README has no {pattern!r}"
    return found[1]


async def test_it_runs_as_printed(tmp_path: Path) -> None:
    written = yaml.safe_load(part(r"<<'END'\n(.*?)\nEND\n"))
    program = part(r"```python\n((?:(?!```).)*?tritonclient.*?)```")
    adding = part(r"\$ \.venv/bin/headrace (models add [\w ]+?) +#").split()
    status, _, error = await command(*adding, "--to", str(tmp_path / "models"))
    assert status == 0, error
    [pool] = written["pools"]
    pool["runtime"]["repository"] = str(tmp_path / pool["runtime"]["repository"])
    async with gateway(tmp_path, written) as running:
        await running.printed(r"Ready\.")
        key = (await running.printed(r"(hr-\S+)"))[1]
        asked = program.replace("127.0.0.1:8080", running.url.removeprefix("http://")).replace("hr-…", key)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", asked, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said = (await process.communicate())[0].decode()
    assert re.search(r":\d+:python'", said), said

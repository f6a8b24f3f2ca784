"""The command that a gateway of tensors prints under "Try:" works as printed, for a first model of any kind."""

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.schema.config import Config
from gateway.process import first_request
from tests.servers.repositories import NAMES, for_headrace
from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(1800)


async def executed(lines: str) -> str:
    """The output of the command. Fails where the status is an error."""
    arguments = shlex.split(lines.replace("\\\n", " "))
    process = await asyncio.create_subprocess_exec(
        arguments[0], "--silent", "--show-error", "--fail-with-body", *arguments[1:], stdout=asyncio.subprocess.PIPE
    )
    out = (await process.communicate())[0].decode()
    assert process.returncode == 0, (lines, out)
    return out


async def test_the_printed_command_works_for_every_first_model(tmp_path: Path) -> None:
    repository = for_headrace(tmp_path / "models")
    configuration: dict[str, Any] = {
        "auth": {"demo_key": True},
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(repository)}}],
        "models": [{"name": name, "routes": [{"to": "models"}]} for name in NAMES],
        "tenants": [{"name": "demo", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration, forked=False) as running:
        printed = await running.printed(r"(?s)Try:\n(  curl .*?\}')\n")
        assert f"/v2/models/{NAMES[0]}/infer" in printed[1]
        assert '"outputs"' in await executed(printed[1])
        key = (await running.printed(r"(hr-\S+)"))[1]
        for name in NAMES:
            models = [{"name": name, "routes": [{"to": "models"}]}]
            config = Config.model_validate({**yaml.safe_load(running.config.read_text()), "models": models})
            lines = await first_request.command(config, running.url, key)
            answer = await executed("\n".join(lines))
            assert '"outputs"' in answer, (name, answer)
            assert '"error"' not in answer, (name, answer)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("described", "body"),
    [
        ({"inputs": [{"name": "x", "datatype": "BF16", "shape": [1]}]}, False),
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 1024, 1024]}]}, False),
        ({"inputs": [{"name": "it's", "datatype": "BYTES", "shape": [-1, -1]}]}, True),
        ({"inputs": []}, True),
    ],
)
def test_an_input_without_a_short_form_in_json_has_no_command(described: dict[str, Any], body: bool) -> None:
    try:
        request = first_request._inference(described, {})
    except first_request._Unknown:
        assert not body
    else:
        assert body
        line = first_request._curl("http://h/v2/models/m/infer", "hr-1", request)[-1]
        assert shlex.split(line)[0] == "-d"
        assert re.search(r"inputs", line)

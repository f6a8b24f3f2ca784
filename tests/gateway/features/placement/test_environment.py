"""The environment of a runtime that the gateway starts, in real processes."""

import json
import os
import sys
from pathlib import Path

import pytest

from config.schema.config import CommandRuntime, LlmRuntime, RuntimeConfig, TensorRuntime
from gateway.features.placement.launch import environment
from gateway.features.placement.local import LocalRuntime, LocalRuntimes
from tests.support.variables import NEEDED, SECRETS
from tests.support.waiting import until


def test_variables_of_the_section_win() -> None:
    config = LlmRuntime.model_validate(
        {
            "kind": "llm",
            "model": "m",
            "env": {"OMP_NUM_THREADS": 2, "ANYTHING": "mine"},
            "secrets": {"HF_TOKEN": "mine"},
        }
    )
    variables = environment({**NEEDED, **SECRETS}, config.env, config)
    assert variables == {**NEEDED, "OMP_NUM_THREADS": "2", "ANYTHING": "mine", "HF_TOKEN": "mine"}


@pytest.mark.processes
@pytest.mark.parametrize(
    "written",
    [
        {"kind": "command", "command": [sys.executable, "{port}"], "env": {"MINE": "1"}},
        {"kind": "llm", "model": "m", "env": {"MINE": "1"}},
        {"kind": "tensor", "repository": "r", "env": {"MINE": "1"}},
    ],
    ids=lambda written: written["kind"],
)
async def test_no_process_of_a_runtime_has_the_gateway_s_secrets(
    written: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real start of each kind, with a program that writes its environment down in the runtime's place."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    dump = tmp_path / "environment.json"
    kinds: dict[object, type[RuntimeConfig]] = {"command": CommandRuntime, "llm": LlmRuntime, "tensor": TensorRuntime}
    runtimes = LocalRuntimes()
    runtime = runtimes.make("one", kinds[written["kind"]].model_validate(written), lambda reason: None)
    script = f"import json, os, time; json.dump(dict(os.environ), open({str(dump)!r} + '~', 'w'))"
    script += f"; os.rename({str(dump)!r} + '~', {str(dump)!r}); time.sleep(1000)"
    assert isinstance(runtime, LocalRuntime)
    command = runtime._launch.command
    command[-2 if written["kind"] == "command" else 0 :] = [sys.executable, "-c", script]
    runtime.start()
    try:
        await until(dump.exists)
    finally:
        await runtime.stop()
        runtimes.close()
    variables = json.loads(dump.read_text())
    assert not SECRETS.keys() & variables.keys()
    assert (variables["MINE"], variables["PATH"]) == ("1", os.environ["PATH"])

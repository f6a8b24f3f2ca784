from pathlib import Path

import pytest

from config.loader import load
from config.schema.config import CommandRuntime, VllmRuntime
from config.schema.pool import PoolConfig

from .conftest import RIGHT

SPARE = "endpoints: [http://10.0.0.7:8000]"
COMMAND = "runtime: {kind: command, command: [serve, --port, '{port}']}"
VLLM = "runtime: {kind: vllm, model: m}"


def pool(tmp_path: Path, runtime: str) -> PoolConfig:
    path = tmp_path / "file.yaml"
    path.write_text(RIGHT.replace(SPARE, runtime))
    return load(path).pools[1]


def test_a_command_is_a_list_in_which_numbers_need_no_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "s3cret-from-env")
    (tmp_path / "key.txt").write_text("s3cret-from-file\n")
    written = """runtime:
      kind: command
      command: [llama-server, -m, "my model.gguf", -c, 8192, --temp, 0.5, --port, "{port}", --json, '{"a": 1}']
      env: {LEVEL: 3, METRICS: "{port:metrics}"}
      secrets: {TOKEN: "${A_TOKEN}", KEY: "file:key.txt"}
      ready: /health
      cwd: /srv
      stop_signal: SIGINT
      stop_timeout: 3s"""
    runtime = pool(tmp_path, written).runtime
    assert isinstance(runtime, CommandRuntime)
    assert runtime.command[3:7] == ("-c", "8192", "--temp", "0.5")
    assert runtime.env == {"LEVEL": "3", "METRICS": "{port:metrics}"}
    assert runtime.secrets["TOKEN"].get_secret_value() == "s3cret-from-env"
    assert runtime.secrets["KEY"].get_secret_value() == "s3cret-from-file"
    assert "s3cret" not in repr(runtime)
    assert (runtime.listens, runtime.ready, runtime.stop_signal, runtime.stop_timeout) == (
        "port",
        "/health",
        "SIGINT",
        3,
    )


def test_a_pool_of_a_foreign_server_serves_the_kinds_of_its_protocol(tmp_path: Path) -> None:
    assert pool(tmp_path, f"{COMMAND}\n    model: theirs").model_name == "theirs"
    assert pool(tmp_path, COMMAND).serves == {"text"}
    assert pool(tmp_path, f"{COMMAND}\n    protocol: oip-grpc").serves == {"tensors"}
    vllm = pool(tmp_path, f"{VLLM}\n    protocol: {{name: openai, passes: [score]}}")
    assert isinstance(vllm.runtime, VllmRuntime)
    assert vllm.model_name == "spare"
    assert vllm.serves == {"text"}

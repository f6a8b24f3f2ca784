from pathlib import Path

import pytest

from config.loader import load
from config.schema.config import CommandRuntime, VllmRuntime
from config.schema.pool import PoolConfig

from .conftest import RIGHT, Complaints, fields_of

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


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("runtime: {kind: command, command: []}", "pools[1].runtime.command: needs 1 or more entries"),
        ("runtime: {kind: command, command: ls -l}", "pools[1].runtime.command: expected a list"),
        (
            "runtime: {kind: command, command: [serve, --port, 8000]}",
            "pools[1].runtime: does not set where to listen: write either {port} or {socket}, in command or env",
        ),
        (
            "runtime: {kind: command, command: [serve, '{port}', '{socket}']}",
            "pools[1].runtime: does not set where to listen: write either {port} or {socket}, in command or env",
        ),
        (
            "runtime: {kind: command, command: [serve, '{port:http}']}",
            "pools[1].runtime: does not set where to listen: write either {port} or {socket}, in command or env",
        ),
        (
            "runtime: {kind: command, command: ['{port}'], env: {not a name: x}}",
            "pools[1].runtime.env.not a name: expected the name of an environment variable",
        ),
        (
            "runtime: {kind: command, command: ['{port}'], ready: health}",
            "pools[1].runtime.ready: expected a path such as /health",
        ),
        (
            "runtime: {kind: command, command: ['{port}'], stop_signal: SIGKILL}",
            "pools[1].runtime.stop_signal: expected SIGTERM or SIGINT or SIGQUIT or SIGHUP",
        ),
        (
            "runtime: {kind: command, command: ['{port}'], model: m}",
            f"pools[1].runtime.model: unknown field: the fields here are {fields_of(CommandRuntime)}",
        ),
        ("runtime: {kind: vllm}", "pools[1].runtime.model: is required"),
        (
            "runtime: {kind: vllm, model: 'bundled:smollm2-135m-instruct'}",
            "pools[1].runtime: bundled models are GGUF files, which vLLM does not read: name a folder or hf:ORG/NAME",
        ),
        (
            "runtime: {kind: vllm, model: m, args: [--port, 8000]}",
            "pools[1].runtime: --port is not for `args`: the gateway sets the model and the address",
        ),
        (
            "runtime: {kind: vllm, model: m, args: ['--served_model_name=x']}",
            "pools[1].runtime: --served-model-name is not for `args`: the gateway sets the model and the address",
        ),
        (f"{VLLM}\n    protocol: oip-http", "pools[1].protocol: vLLM speaks openai"),
        (f"{VLLM}\n    model: x", "pools[1].model: has no effect on a runtime of the kind vllm: remove it"),
        (
            f"{COMMAND}\n    balance: {{by: load}}",
            "pools[1].balance: has no effect on a runtime of one replica: remove it",
        ),
        (f"{COMMAND}\n    probe: null", "pools[1].probe: is needed: a runtime is ready when its probe succeeds"),
        (
            f"{COMMAND}\n    probe: {{path: /x}}",
            "pools[1].probe.path: has no effect: the probe of a runtime uses its `ready` path",
        ),
        (
            "runtime: {kind: command, command: ['{port}'], ready: /x}\n    protocol: oip-grpc",
            "pools[1].runtime.ready: has no effect: gRPC has no paths: the probe calls the readiness method",
        ),
        (f"{COMMAND}\n    key_header: api-key", "pools[1].key_header: has no effect without key"),
        (
            f"{COMMAND}\n    protocol: oip-http\n    resume: text",
            "pools[1].resume: has no effect: oip-http has no text to continue",
        ),
        (
            "runtime: {kind: llm, model: m}\n    probe: {interval: 1s}",
            "pools[1].probe: has no effect on a runtime of the kind llm: remove it",
        ),
    ],
)
def test_refused(complaints: Complaints, written: str, problem: str) -> None:
    (line,) = complaints(RIGHT.replace(SPARE, written))
    assert line.partition(": ")[2].startswith(problem)


def test_a_secret_of_a_server_is_never_written_in_the_file(complaints: Complaints) -> None:
    written = "runtime: {kind: command, command: ['{port}'], secrets: {TOKEN: opensesame}}"
    (line,) = complaints(RIGHT.replace(SPARE, written))
    assert "pools[1].runtime.secrets.TOKEN: is a secret, which is never written here" in line
    assert "opensesame" not in line

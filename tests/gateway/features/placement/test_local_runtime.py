import asyncio
from pathlib import Path

import psutil
import pytest

from config.schema.config import LlmRuntime, TensorRuntime
from gateway.features.placement import local
from gateway.features.placement.launch import Launch
from gateway.features.placement.local import LocalRuntime, command
from tests.support.waiting import until


def runtime(folder: Path, line: list[str], exits: list[str], stop_seconds: float = 10) -> LocalRuntime:
    launch = Launch(line, f"unix:{folder}/s.sock", stop_seconds, {})
    return LocalRuntime("pool/one", LlmRuntime(kind="llm", model="any"), launch, exits.append)


@pytest.mark.processes
async def test_a_child_that_dies_is_started_again_with_backoff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FIRST_BACKOFF", 0.01)
    exits: list[str] = []
    child = runtime(tmp_path, ["/bin/sh", "-c", "exit 3"], exits)
    started = asyncio.get_running_loop().time()
    child.start()
    await until(lambda: len(exits) >= 5)
    await child.stop()
    assert exits[:5] == ["ended with status 3"] * 5
    assert asyncio.get_running_loop().time() - started > 0.01 + 0.02 + 0.04 + 0.08  # each pause twice the last
    assert child.restarts >= 4


@pytest.mark.processes
async def test_a_killed_child_is_reported_at_once_and_replaced(tmp_path: Path) -> None:
    exits: list[str] = []
    child = runtime(tmp_path, ["/bin/sleep", "1000"], exits)
    child.start()
    await until(lambda: child.pid)
    first = child.pid
    assert first is not None
    psutil.Process(first).kill()
    await until(lambda: exits)
    assert exits == ["was killed by signal 9"]
    await until(lambda: child.pid and child.pid != first)
    await child.stop()
    assert not psutil.pid_exists(first)


@pytest.mark.processes
async def test_stopping_leaves_nothing_even_of_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    deaf = 'trap "" TERM; echo ready >"$0"; while :; do read -r _ || sleep 1; done'
    flag = tmp_path / "flag"
    child = runtime(tmp_path, ["/bin/sh", "-c", deaf, str(flag)], [], stop_seconds=0.2)
    child.start()
    await until(lambda: flag.exists() and child.pid)
    process = psutil.Process(child.pid)
    await child.stop()
    assert not process.is_running()
    assert child.pid is None


@pytest.mark.processes
async def test_a_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    exits: list[str] = []
    child = runtime(tmp_path, ["/nowhere/at/all"], exits)
    child.start()
    await until(lambda: exits)
    await child.stop()
    assert "could not be started" in exits[0]


def test_the_command_line_carries_every_setting(tmp_path: Path) -> None:
    config = LlmRuntime(
        kind="llm", model="bundled:m", dtype="float32", device="cpu", threads=3, max_model_len=512, max_num_seqs=4,
        max_num_batched_tokens=64, kv_cache="1MiB", max_queue=9, weights="int4", pooling="mean", matryoshka=True,
        kv_cache_dtype="int8", adapters={"red": "adapters/red"}, max_adapters=3,
        speculation={"kind": "ngram", "tokens": 5}, tensor_parallel=2,
    )  # fmt: skip
    line = " ".join(command("name", config, tmp_path / "s.sock"))
    for expected in (
        "-m runtimes.llm", "--model bundled:m", "--served-name name", "--dtype float32", "--device cpu", "--threads 3",
        "--max-model-len 512", "--max-num-seqs 4", "--max-num-batched-tokens 64", "--kv-cache 1MiB", "--max-queue 9",
        "--weights int4", f"--socket {tmp_path}/s.sock", "--exit-with-parent", "--pooling mean", "--matryoshka",
        "--kv-cache-dtype int8", '--adapters {"red": "adapters/red"} --max-adapters 3',
        '--speculation {"kind": "ngram", "tokens": 5}', "--tensor-parallel 2",
    ):  # fmt: skip
        assert expected in line


def test_the_command_line_names_the_draft_model(tmp_path: Path) -> None:
    speculation = {"kind": "draft_model", "model": "hf:small/one", "weights": "int4"}
    line = command("name", LlmRuntime(kind="llm", model="m", speculation=speculation), tmp_path / "s.sock")
    expected = '{"kind": "draft_model", "tokens": 8, "model": "hf:small/one", "weights": "int4"}'
    assert line[line.index("--speculation") + 1] == expected


def test_the_command_line_of_a_tensor_runtime_carries_every_setting(tmp_path: Path) -> None:
    explicit = TensorRuntime(
        kind="tensor", repository="r", mode="explicit", models=("a", "b"), bundled=("magika",), memory="1MiB",
        cache="2MiB", env={"MODE": "fast"}, secrets={"BUCKET_KEY": "k"},
    )  # fmt: skip
    line = " ".join(command("name", explicit, tmp_path / "s.sock"))
    for expected in (
        "-m runtimes.tensor", "--repository r", "--mode explicit", "--load a --load b --add magika",
        "--memory-budget 1048576", "--cache-size 2097152", "--pass-env MODE --pass-env BUCKET_KEY",
        f"--socket {tmp_path}/s.sock", "--exit-with-parent",
    ):  # fmt: skip
        assert expected in line
    poll = command("name", TensorRuntime(kind="tensor", repository="r", mode="poll", poll_interval="2s"), tmp_path)
    assert " ".join(poll).endswith("--mode poll --cache-size 67108864 --poll-interval 2.0s")
    places = ["r", "https://h/m.zip"]
    pulled = command("name", TensorRuntime(kind="tensor", repository=places, repository_cache="1MiB"), tmp_path)
    for expected in ("--repository r --repository https://h/m.zip", "--repository-cache 1048576"):
        assert expected in " ".join(pulled)

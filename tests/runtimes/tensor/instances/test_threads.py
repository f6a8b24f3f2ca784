"""Threads that hang, which cannot be killed."""

import asyncio
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from runtimes.tensor.api.metrics import Metrics
from runtimes.tensor.instances import copy, placement, thread
from runtimes.tensor.instances.worker import ModelLog
from runtimes.tensor.interfaces import InstanceLost, ModelFailed, ModelLoadError
from runtimes.tensor.models.manager import ModelManager
from tests.runtimes.tensor.instances.support import (
    at_last,
    floats,
    one_to_one,
    outcome,
    ready,
    running,
    write,
)
from tests.support.conditions import until

GATES: list[threading.Event] = []
WAIT = """
from tests.runtimes.tensor.instances import test_threads
class Model:
    def infer(self, inputs):
        if inputs["x"][0, 0]:
            gate = test_threads.threading.Event()
            test_threads.GATES.append(gate)
            gate.wait()
        return {"y": inputs["x"]}
    def close(self):
        test_threads.CLOSED.append(self)
"""
CLOSED: list[object] = []
NO_MODELS = Metrics(cast(ModelManager, SimpleNamespace(table=SimpleNamespace(records=list))))
FINE, HANG = floats([0, 0]), floats([1, 0])


@pytest.fixture(autouse=True)
async def fresh() -> None:
    """No thread of another test is left alone."""
    await until(lambda: not thread.left_alone().get("model"))
    GATES.clear()
    CLOSED.clear()


async def test_a_thread_that_hangs_is_left_alone_and_replaced(tmp_path: Path) -> None:
    async with running(one_to_one("thread", execution_timeout=1.0), write(tmp_path, WAIT)) as instance:
        lost = await outcome(instance, {"x": HANG})
        assert isinstance(lost, InstanceLost)
        assert "took longer than 1 s" in str(lost)
        await ready(instance)
        assert thread.left_alone()["model"] == 1
        assert b'headrace_tensor_threads_left_alone{model="model"} 1\n' in NO_MODELS.text()
        assert (await at_last(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()
        GATES[0].set()  # the thread returns after all, and its result is discarded
        await until(lambda: thread.left_alone()["model"] == 0 and CLOSED)
        assert (await at_last(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()


async def test_threads_that_hang_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "MAX_LEFT_ALONE", 2)
    monkeypatch.setattr(copy, "LONGEST_BACKOFF", 0.2)
    async with running(one_to_one("thread", execution_timeout=1.0), write(tmp_path, WAIT)) as instance:
        for _ in range(2):
            assert isinstance(await outcome(instance, {"x": HANG}), InstanceLost)
            if thread.left_alone()["model"] < 2:
                await ready(instance)
        await until(lambda: instance.restarts >= 4)
        assert not instance.ready
        for gate in GATES:
            gate.set()
        assert (await at_last(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()
        await until(lambda: thread.left_alone()["model"] == 0)


async def test_a_batch_that_cannot_be_joined_fails_alone(tmp_path: Path) -> None:
    async with running(one_to_one("thread"), write(tmp_path, WAIT)) as instance:
        got = await outcome(instance, {"x": FINE}, {"x": FINE[:, :1]})
        assert isinstance(got, ModelFailed)
        assert (await at_last(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()


async def test_a_mistake_of_ours_ends_the_load_and_not_the_wait(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="KeyError: 'FP33'"):
        await placement.start(one_to_one("thread", "FP33"), write(tmp_path, WAIT))


async def test_closing_does_not_wait_for_a_thread_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "CLOSE_SECONDS", 0.1)
    async with running(one_to_one("thread"), write(tmp_path, WAIT)) as instance:
        answer = asyncio.create_task(outcome(instance, {"x": HANG}))
        await until(lambda: GATES)
    assert isinstance(await answer, InstanceLost)
    GATES[0].set()
    await until(lambda: thread.left_alone()["model"] == 0)


def test_a_model_s_output_forges_no_line_and_commands_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = ModelLog("m")
    log.feed("a\0b\x1b[31mc\x85d\u2028e\x9bf\tg\n".encode() + b"\xff\n\0\n")
    log.text("h\u2029i")
    assert [record.getMessage() for record in caplog.records] == ["m: ab[31mcdef\tg", "m: \\xff", "m: h", "m: i"]

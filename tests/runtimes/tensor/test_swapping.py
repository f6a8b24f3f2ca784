"""Real models, real processes: versions change under load, and clients notice only the new answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.instances import placement
from runtimes.tensor.models.loading import Parts
from runtimes.tensor.models.manager import ManagerOptions, ModelManager
from runtimes.tensor.models.repository import Repository
from runtimes.tensor.schedulers import make_scheduler
from tests.support.conditions import until

CONFIG = """
backend: python
max_batch_size: 8
inputs: [{name: A, datatype: INT32, dims: [2]}]
outputs: [{name: B, datatype: INT32, dims: [2]}]
dynamic_batching: true
instances: [{count: 1, placement: PLACEMENT}]
warmup: [{inputs: [{name: A, datatype: INT32, dims: [2]}]}]
"""
MODEL = """
class Model:
    def infer(self, inputs):
        return {"B": inputs["A"] + NUMBER}
"""
VALUES = np.array([[1, 2]], "<i4")


def put(root: Path, number: int, code: str, where: str = "thread") -> None:
    folder = root / "m" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (root / "m" / "model.yaml").write_text(CONFIG.replace("PLACEMENT", where))
    (folder / "model.py").write_text(code.replace("NUMBER", str(number)))


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[ModelManager]:
    parts = Parts(placement.complete, placement.start, lambda config, instances, _: make_scheduler(config, instances))
    manager = ModelManager(Repository(tmp_path), parts, ManagerOptions("explicit"))
    await manager.start()
    yield manager
    await manager.aclose()


async def infer(manager: ModelManager) -> tuple[str, list[int]]:
    served = manager.lease("m", "") or await manager.wait_for("m", "", None)
    try:
        outputs = await served.scheduler.infer(Inference("m", inputs=[Tensor("A", "INT32", (1, 2), VALUES.tobytes())]))
        return served.version, np.frombuffer(outputs[0].data, "<i4").tolist()
    finally:
        served.release()


async def test_a_swap_under_load_fails_no_request_and_mixes_no_versions(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, 1, MODEL)
    await manager.load("m")
    stop = asyncio.Event()
    answers: list[tuple[str, list[int]]] = []

    async def caller() -> None:
        while not stop.is_set():
            answers.append(await infer(manager))

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(caller())
        for number in (2, 3):
            put(tmp_path, number, MODEL)
            await manager.load("m")
            version, _ = await infer(manager)
            assert version == str(number)
        stop.set()
    assert all(values == [1 + int(version), 2 + int(version)] for version, values in answers)
    assert {"1", "3"} <= {version for version, _ in [*answers, await infer(manager)]}


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        ("def broken(:", "SyntaxError"),
        (MODEL + "    def __init__(self): raise OSError('no weights')", "no weights"),
        ("class Model:\n    def infer(self, inputs): raise ValueError('not like this')", "not like this"),
        ("class Model:\n    def infer(self, inputs): return {'C': inputs['A']}", "B"),
        pytest.param("import os\nos._exit(3)", "", marks=pytest.mark.processes),
    ],
)
async def test_a_version_that_cannot_answer_never_takes_traffic(
    tmp_path: Path, manager: ModelManager, code: str, reported: str
) -> None:
    put(tmp_path, 1, MODEL)
    await manager.load("m")
    put(tmp_path, 2, code, where="process" if "_exit" in code else "thread")
    with pytest.raises(CallerError, match="version 2: .*" + reported):
        await manager.load("m")
    assert await infer(manager) == ("1", [2, 3])
    index = {entry.version: entry for entry in await manager.index()}
    assert (index["1"].state, index["2"].state) == ("READY", "UNAVAILABLE")
    assert reported in index["2"].reason


@pytest.mark.processes
async def test_unloading_ends_the_process(tmp_path: Path, manager: ModelManager) -> None:
    put(tmp_path, 1, MODEL, where="process")
    await manager.load("m")
    served = manager.lease("m", "")
    assert served is not None
    pid = served.instances[0].report.pid
    assert psutil.pid_exists(pid)
    served.release()
    await manager.unload("m")
    await until(lambda: not psutil.pid_exists(pid))

"""Processes that die, hang, print, take all memory, or lose the server."""

import asyncio
import errno
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from runtimes.tensor.configuration.model_config import InstanceGroup
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Batch, InstanceLost, ModelFailed, ModelLoadError
from tests.runtimes.tensor.instances.support import (
    PATIENCE,
    Kind,
    at_last,
    floats,
    one_to_one,
    outcome,
    outputs,
    ready,
    running,
    write,
)
from tests.support.conditions import until

pytestmark = pytest.mark.processes
DO = """
import os, signal, sys, time
class Model:
    def infer(self, inputs):
        behaviour = inputs["x"][0, 0]
        if behaviour == 1:
            os._exit(7)
        if behaviour == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == 3:
            time.sleep(1000)
        if behaviour == 4:
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
            while True:
                pass
        if behaviour == 5:
            bytearray(2 ** 36)
        if behaviour == 6:
            sys.stdout.write("a line\\n" * 3_000_000)
        if behaviour == 7:
            sys.stderr.buffer.write(b"x" * 10_000_000 + b"\\n" + bytes(range(256)) + b"\\n")
        return {"y": inputs["x"]}
"""


def alive(process: psutil.Process) -> bool:
    """Whether a process is alive; False after its number was reused."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


FINE, EXIT, CRASH, SLEEP, SPIN, MEMORY, PRINT, NOISE = (floats([behaviour, 0]) for behaviour in range(8))


@pytest.mark.parametrize(
    ("behaviour", "how"),
    [
        (EXIT, "ended with status 7"),
        (CRASH, "was killed by SIGSEGV"),
    ],
)
async def test_a_model_that_ends_its_process_costs_its_own_batch_and_is_replaced(
    tmp_path: Path, behaviour: np.ndarray, how: str
) -> None:
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        lost = await outcome(instance, {"x": behaviour})
        assert isinstance(lost, InstanceLost)
        assert how in str(lost)
        meanwhile = await outcome(instance, {"x": FINE})
        assert isinstance(meanwhile, InstanceLost)
        await ready(instance)
        assert (await outputs(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()
        assert instance.restarts == 1


async def test_a_process_that_is_killed_while_a_large_batch_is_on_its_way(tmp_path: Path) -> None:
    async with running(one_to_one("process", dims=(-1,)), write(tmp_path, DO)) as instance:
        large = np.zeros((1, 20_000_000), np.float32)
        for _ in range(3):
            answer = asyncio.create_task(outcome(instance, {"x": large}))
            await asyncio.sleep(0)
            os.kill(instance.report.pid, signal.SIGKILL)
            assert isinstance(await answer, InstanceLost)
            await ready(instance)
        assert (await outputs(instance, {"x": large}))["y"].shape == large.shape


async def test_a_process_that_is_killed_while_it_is_idle_is_replaced(tmp_path: Path) -> None:
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        again = asyncio.Event()
        instance.on_ready = again.set
        os.kill(instance.report.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await again.wait()
        assert (await outputs(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()


@pytest.mark.parametrize("behaviour", [SLEEP, SPIN])
async def test_a_model_that_hangs_is_killed_and_replaced(tmp_path: Path, behaviour: np.ndarray) -> None:
    async with running(one_to_one("process", execution_timeout=1.0), write(tmp_path, DO)) as instance:
        process = psutil.Process(instance.report.pid)
        lost = await outcome(instance, {"x": behaviour})
        assert isinstance(lost, InstanceLost)
        assert "took longer than 1 s" in str(lost)
        await ready(instance)
        assert not alive(process)
        assert (await at_last(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()


async def test_a_stream_that_hangs_is_lost(tmp_path: Path) -> None:
    source = """
    import time
    class Model:
        def infer(self, inputs):
            yield {"y": inputs["x"]}
            time.sleep(1000)
    """
    async with running(one_to_one("process", decoupled=True, execution_timeout=1), write(tmp_path, source)) as instance:
        end: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        instance.stream({"x": FINE}, lambda _: None, end.set_result)
        async with asyncio.timeout(PATIENCE):
            assert isinstance(await end, InstanceLost)
        await ready(instance)


async def test_a_replacement_that_cannot_be_loaded_is_tried_again(tmp_path: Path) -> None:
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        (tmp_path / "model.py").rename(tmp_path / "away.py")
        assert isinstance(await outcome(instance, {"x": EXIT}), InstanceLost)
        await until(lambda: instance.restarts >= 2)
        assert not instance.ready
        (tmp_path / "away.py").rename(tmp_path / "model.py")
        await ready(instance)
        assert (await outputs(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()


async def test_memory_that_a_model_may_not_have_fails_its_batch_only(tmp_path: Path) -> None:
    model = one_to_one("process", parameters={"memory_limit": "1 GiB"})
    async with running(model, write(tmp_path, DO)) as instance:
        with pytest.raises(ModelFailed, match="MemoryError"):
            await outputs(instance, {"x": MEMORY})
        assert (await outputs(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()
        assert instance.restarts == 0


async def test_a_memory_limit_is_for_processes(tmp_path: Path) -> None:
    model = one_to_one("thread", parameters={"memory_limit": "1 GiB"})
    with pytest.raises(ModelLoadError, match="`memory_limit` is for a process: set the instance group"):
        await placement.start(model, tmp_path)
    with pytest.raises(ModelLoadError, match="parameter `memory_limit`"):
        await placement.start(one_to_one("process", parameters={"memory_limit": "much"}), tmp_path)


async def test_a_model_that_prints_a_lot_is_logged_a_little(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "runtimes.tensor.models")
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        for behaviour in (PRINT, NOISE, PRINT):
            assert (await outputs(instance, {"x": behaviour}))["y"].tolist() == behaviour.tolist()
    lines = [record.getMessage() for record in caplog.records if record.name == "runtimes.tensor.models"]
    assert "model_0_0: a line" in lines
    assert sum(len(line) for line in lines) < 500_000
    assert not any(character in line for line in lines for character in "\0\x1b\n\r")


async def test_a_model_is_pinned_and_imports_modules_beside_it(tmp_path: Path) -> None:
    [core, *_] = os.sched_getaffinity(0)
    write(tmp_path, "SCALE = 3", "scale.py")
    write(
        tmp_path,
        """
        import os
        import scale
        from . import scale as the_same
        class Model:
            def infer(self, inputs):
                return {"y": inputs["x"] * scale.SCALE + the_same.SCALE + sum(os.sched_getaffinity(0))}
        """,
    )
    model = one_to_one("process", dims=(1,), group=InstanceGroup(placement="process", cpus=(core,)))
    async with running(model, tmp_path) as instance:
        assert (await outputs(instance, {"x": floats([2])}))["y"].tolist() == [[9 + core]]


async def test_cores_that_are_not_there_are_named(tmp_path: Path) -> None:
    kinds: tuple[Kind, ...] = ("thread", "process")
    for kind in kinds:
        model = one_to_one("process", group=InstanceGroup(placement=kind, cpus=(4095,)))
        with pytest.raises(ModelLoadError, match=r"cores \[4095\]"):
            await placement.start(model, write(tmp_path, DO))


async def test_the_error_of_a_model_that_dies_while_loading_has_its_last_output(tmp_path: Path) -> None:
    source = "import os\nprint('the licence has run out', flush=True)\nos._exit(9)"
    with pytest.raises(ModelLoadError, match=r"ended with status 9 while it loaded .* the licence has run out"):
        await placement.start(one_to_one("process"), write(tmp_path, source))


async def test_loading_can_be_cancelled_and_no_process_stays(tmp_path: Path) -> None:
    source = f"""
    import os, time
    from pathlib import Path
    Path({str(tmp_path)!r}, "pid.part").write_text(str(os.getpid()))
    Path({str(tmp_path)!r}, "pid.part").rename(Path({str(tmp_path)!r}, "pid"))
    time.sleep(1000)
    """
    task = asyncio.create_task(placement.start(one_to_one("process"), write(tmp_path, source)))
    await until(lambda: (tmp_path / "pid").exists())
    process = psutil.Process(int((tmp_path / "pid").read_text()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(process)


async def test_child_processes_of_a_model_end_with_it(tmp_path: Path) -> None:
    source = """
    import subprocess
    class Model:
        def __init__(self):
            self.child = subprocess.Popen(["sleep", "1000"])
        def infer(self, inputs):
            return {"y": inputs["x"] + self.child.pid}
    """
    async with running(one_to_one("process", "INT64"), write(tmp_path, source)) as instance:
        got = await outputs(instance, {"x": np.zeros((1, 2), np.int64)})
        child = psutil.Process(int(got["y"][0, 0]))
        assert alive(child)
    await until(lambda: not alive(child))


async def test_a_failed_spawn_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = psutil.Process().num_fds()
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        monkeypatch.setattr(os, "pidfd_open", none_left)
        with pytest.raises(ModelLoadError, match=r"no process could be started with .*: Too many open files"):
            await placement.start(one_to_one("process"), tmp_path)
        assert isinstance(await outcome(instance, {"x": EXIT}), InstanceLost)
        await until(lambda: instance.restarts >= 2)
        monkeypatch.undo()
        assert (await at_last(instance, {"x": FINE}))["y"].tolist() == FINE.tolist()
    assert psutil.Process().num_fds() <= before


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    write(tmp_path, DO)
    async with running(one_to_one("process"), tmp_path) as instance:
        await outputs(instance, {"x": FINE})
    before = psutil.Process().num_fds()
    for _ in range(3):
        async with running(one_to_one("process"), tmp_path) as instance:
            await outcome(instance, {"x": CRASH})
    assert psutil.Process().num_fds() <= before


SERVER = """
import asyncio, sys, pathlib
import numpy as np
from runtimes.tensor.interfaces import Batch
from runtimes.tensor.instances import placement
from tests.runtimes.tensor.instances.support import one_to_one

async def main():
    folder = pathlib.Path(sys.argv[1])
    idle, busy = [(await placement.start(one_to_one("process"), folder))[0] for _ in range(2)]
    busy.start(Batch([{"x": np.full((1, 2), 4, "f4")}], [1]), print)
    print(idle.report.pid, busy.report.pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_no_process_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    write(tmp_path, DO)
    (tmp_path / "server.py").write_text(textwrap.dedent(SERVER))
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(tmp_path / "server.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        pids = [int(pid) for pid in server.stdout.readline().split()]
        assert len(pids) == 2
        processes = [psutil.Process(pid) for pid in pids]
        server.kill()
    end = time.monotonic() + PATIENCE
    while any(alive(process) for process in processes):
        assert time.monotonic() < end, "a model's process outlives its server"
        time.sleep(0.01)


async def test_an_instance_that_is_idle_does_nothing(tmp_path: Path) -> None:
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        await outputs(instance, {"x": FINE})
        process = psutil.Process(instance.report.pid)
        before = process.num_ctx_switches().voluntary
        await asyncio.sleep(0.2)
        assert process.num_ctx_switches().voluntary - before <= 2


async def test_one_batch_at_a_time(tmp_path: Path) -> None:
    async with running(one_to_one("process"), write(tmp_path, DO)) as instance:
        answer = asyncio.get_running_loop().create_future()
        instance.start(Batch([{"x": FINE}], [1]), answer.set_result)
        with pytest.raises(AssertionError, match="one batch at a time"):
            instance.start(Batch([{"x": FINE}], [1]), answer.set_result)
        async with asyncio.timeout(PATIENCE):
            await answer


async def test_a_model_may_have_a_python_of_its_own(tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nWRAPPED=9 exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    source = """
    import os
    class Model:
        def infer(self, inputs):
            return {"y": inputs["x"] + int(os.environ["WRAPPED"])}
    """
    write(tmp_path, source)
    model = one_to_one("process", "INT64", parameters={"interpreter": str(wrapper)})
    async with running(model, tmp_path) as instance:
        assert (await outputs(instance, {"x": np.ones((1, 2), np.int64)}))["y"].tolist() == [[10, 10]]
    model = one_to_one("process", parameters={"interpreter": "/nowhere/python"})
    with pytest.raises(ModelLoadError, match="no process could be started with /nowhere/python: No such file"):
        await placement.start(model, tmp_path)


async def test_rows_and_answers_with_texts_that_are_no_unicode_leave_the_copy_alive(tmp_path: Path) -> None:
    """A client sends bytes, and the model makes a path of them."""
    source = """
    import numpy as np
    BAD = "caf\\udce9.txt"
    class Model:
        def infer(self, inputs):
            x = inputs["x"]
            if x[0, 0] == b"row":
                return {"y": x}, {0: BAD}
            if x[0, 0] == b"output":
                return {"y": np.full(x.shape, BAD, object)}
            raise ValueError(BAD)
    """
    config = one_to_one("process", "BYTES", (1,))
    async with running(config, write(tmp_path, textwrap.dedent(source))) as instance:
        pid = instance.report.pid
        for word in (b"row", b"raise"):
            failure = await outcome(instance, {"x": np.array([[word]], object)})
            assert isinstance(failure, ModelFailed)
            assert "caf?.txt" in str(failure)
        got = await outputs(instance, {"x": np.array([[b"output"]], object)})
        assert got["y"].tolist() == [[b"caf?.txt"]]
        assert (instance.restarts, instance.report.pid) == (0, pid)

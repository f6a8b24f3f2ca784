"""The tensor runtime on the device, under callers that wait for each answer, beside the same model called directly."""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import torch

from loadtests.gpu.limits import synchronize
from loadtests.gpu.run import Run

WIDTH, CLASSES = 1024, 1000
YAML = """\
backend: {backend}
max_batch_size: 64
inputs: [{{name: x, datatype: FP32, dims: [{width}]}}]
outputs: [{{name: y, datatype: FP32, dims: [{classes}]}}]
dynamic_batching: {{}}
instances: [{{kind: {kind}}}]
"""


def tensors(run: Run) -> None:
    """A network of four layers as TorchScript, and as ONNX where the providers of this machine can run it."""
    torch.manual_seed(1)
    hidden = 64 if run.tiny else 8192
    network = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, CLASSES),
    ).eval()  # fmt: skip
    kind = "cpu" if run.device == "cpu" else "gpu"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        example = torch.zeros(2, WIDTH)
        for name, backend, file in (("script", "torch", "model.pt"), ("graph", "onnx", "model.onnx")):
            try:
                (root / name / "1").mkdir(parents=True)
                target = root / name / "1" / file
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # both forms are what people have
                    if backend == "torch":
                        torch.jit.save(torch.jit.trace(network, example), str(target))
                    else:
                        _exported(network, example, target, run)
                (root / name / "model.yaml").write_text(
                    YAML.format(backend=backend, width=WIDTH, classes=CLASSES, kind=kind)
                )
            except Exception as error:
                run.skipped[f"tensors: {name}"] = f"{type(error).__name__}: {error}"[:300]
                (root / name).rename(root / f".{name}")
        socket = str(root / ".socket")
        command = [sys.executable, "-m", "runtimes.tensor", "--repository", str(root), "--socket", socket]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            try:
                asyncio.run(_served(run, root, network, socket, process))
            finally:
                process.terminate()


def _exported(network: Any, example: Any, target: Path, run: Run) -> None:
    import onnxruntime

    providers = onnxruntime.get_available_providers()
    if run.device != "cpu" and "CUDAExecutionProvider" not in providers:
        raise RuntimeError(f"ONNX Runtime has {', '.join(providers)}")
    torch.onnx.export(
        network, (example,), str(target), input_names=["x"], output_names=["y"], dynamo=False,
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
    )  # fmt: skip


async def _served(run: Run, root: Path, network: Any, socket: str, process: "subprocess.Popen[bytes]") -> None:
    import aiohttp

    network = network.to(run.device)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket, limit=0)) as http:
        await _ready(http, process)
        for name in ("script", "graph"):
            if (root / name).exists():
                await _measured(run, http, name, network)


async def _ready(http: Any, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the models are loaded."""
    async with asyncio.timeout(120):
        while process.poll() is None:
            with contextlib.suppress(OSError):
                async with http.get("http://runtime/v2/health/ready") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
    raise RuntimeError(f"the tensor runtime ended with {process.returncode}")


async def _measured(run: Run, http: Any, name: str, network: Any) -> None:
    rows = torch.randn(256, WIDTH)
    with torch.inference_mode():
        expected = network(rows.to(run.device)).cpu()
    url = f"http://runtime/v2/models/{name}/infer"
    first = await _infer(http, url, rows[0].numpy().tobytes())
    worst = float((torch.frombuffer(bytearray(first), dtype=torch.float32) - expected[0]).abs().max())
    scale = float(expected[0].abs().max())
    run.check("tensors", f"{name}: the values of the model", worst < 1e-2 * scale, f"differ by {worst / scale:.1e}")
    duration = 1.0 if run.tiny else 3.0
    for callers in (1, 4) if run.tiny else (1, 8, 32, 256):
        count, until = 0, time.perf_counter() + duration
        async for _ in _answers(http, url, callers, rows, until):
            count += 1
        direct = _direct(run, network, rows[:1], duration / 3)
        run.add("tensors", f"{name}, {callers} callers", count / duration, "answers/s", None, count / duration / direct)


async def _answers(http: Any, url: str, callers: int, rows: Any, until: float) -> AsyncIterator[None]:
    """An item for each answer; every caller sends its own row again and again."""
    done: asyncio.Queue[bool] = asyncio.Queue()

    async def call(index: int) -> None:
        body = rows[index % len(rows)].numpy().tobytes()
        while time.perf_counter() < until:
            await _infer(http, url, body)
            done.put_nowait(True)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(call(index)) for index in range(callers)]
        while not all(task.done() for task in running) or not done.empty():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await done.get()
                    yield None


async def _infer(http: Any, url: str, body: bytes) -> bytes:
    """One row in binary form."""
    head = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,%d],"parameters":{"binary_data_size":%d}}]' % (
        WIDTH, len(body),
    )  # fmt: skip
    head += b',"parameters":{"binary_data_output":true}}'
    fields = {"inference-header-content-length": str(len(head))}
    async with http.post(url, data=head + body, headers=fields) as response:
        answer: bytes = await response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer[:300]!r}")
        return answer[int(response.headers["inference-header-content-length"]) :]


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _direct(run: Run, network: Any, row: Any, duration: float) -> float:
    """Rows a second of the model alone, a row at a time, from the host's memory and back."""
    count, until = 0, time.perf_counter() + duration
    while time.perf_counter() < until:
        network(row.to(run.device)).cpu()
        count += 1
    synchronize(run.device)
    return count / duration

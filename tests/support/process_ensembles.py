"""A repository of one folder, and its models in service in this process: ensembles may have processes of their own."""

import contextlib
import functools
import textwrap
from collections.abc import AsyncIterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from adapters.tensors import Inference, Tensor
from runtimes.tensor.api.log_settings import LogSettings
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.api.trace import Tracer, TraceSettings
from runtimes.tensor.ensembles.processes import placement as ensemble_placement
from runtimes.tensor.ensembles.scheduler import EnsembleSchedulers
from runtimes.tensor.instances import placement
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.models.loading import Parts
from runtimes.tensor.models.manager import ManagerOptions, ModelManager
from runtimes.tensor.models.records import ModelTable
from runtimes.tensor.models.repository import Repository
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling.cached import ResponseStore

PATIENCE = 300.0
UTILS = """
import os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

def value(request, name="x"):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

def response(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.asarray(array, np.float32))])

class TritonPythonModel:
"""
PLAIN = """
import os, sys, time
import numpy as np

class Model:
"""
DOUBLE = "def infer(self, inputs):\n    return {'y': inputs['x'] * 2}"


def rows(x: str = "FP32, dims: [2]", y: str = "", more: str = "") -> str:
    """The configuration of a model of `x` to `y`."""
    return (
        f"backend: python\nmax_batch_size: 8\n{more}\n"
        f"inputs: [{{name: x, datatype: {x}}}]\noutputs: [{{name: y, datatype: {y or x}}}]\n"
    )


BATCHED = rows(more="dynamic_batching: true")


class Server:
    """A repository of one folder, and its models in service."""

    def __init__(self, folder: Path, cache: int) -> None:
        self.folder = folder
        store, table, self.services = ResponseStore(cache), ModelTable(), ModelServices()
        ensembles = EnsembleSchedulers(table.describe, store)
        parts = Parts(
            placement.complete,
            functools.partial(placement.start, services=self.services),
            functools.partial(make_scheduler, store=store, ensembles=ensembles),
            functools.partial(
                ensemble_placement.start,
                describe=table.describe,
                folder_of=table.folder_of,
                services=self.services,
            ),
        )
        self.manager = ModelManager(Repository(folder), parts, ManagerOptions(mode="explicit", parallel_loads=2), table)
        self.tracer = Tracer(TraceSettings(str(folder / "traces.json")))
        self.service = InferenceService(self.manager, SharedMemory(), self.tracer, LogSettings())
        self.services.bind(self.service, self.manager)
        ensembles.calls = self.service

    def add(self, name: str, body: str, head: str = PLAIN, config: str = BATCHED) -> None:
        """A model of `x` to `y`, rows of two floats, unless the configuration has others."""
        version = self.folder / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "model.py").write_text(head + textwrap.indent(textwrap.dedent(body), "    "))
        (version.parent / "model.yaml").write_text(config)

    def add_ensemble(self, name: str, steps: Sequence[str], processes: int = 1, more: str = "") -> None:
        """A chain of models, of `x` to `y`."""
        lines = [
            f"    - {{model: {step}, inputs: {{x: t{at}}}, outputs: {{y: t{at + 1}}}}}" for at, step in enumerate(steps)
        ]
        (self.folder / name / "1").mkdir(parents=True, exist_ok=True)
        (self.folder / name / "model.yaml").write_text(
            f"max_batch_size: 8\nprocesses: {processes}\n{more}"
            f"inputs: [{{name: t0, datatype: FP32, dims: [2]}}]\n"
            f"outputs: [{{name: t{len(steps)}, datatype: FP32, dims: [2]}}]\nensemble:\n  steps:\n" + "\n".join(lines)
        )

    async def load(self, *names: str) -> None:
        for name in names:
            await self.manager.load(name)

    async def infer(self, name: str, rows: Any, deadline: float = inf, **parameters: Any) -> np.ndarray[Any, Any]:
        computed = await self.service.infer(request(name, rows, **parameters), deadline)
        return floats(computed.outputs[0])

    def counts(self, name: str) -> tuple[int, int, int, int]:
        """Inferences, executions, successes and failures of a model."""
        report = self.manager.table.models[name].versions[1].statistics.report(name, "1")
        parts = report["inference_stats"]
        return report["inference_count"], report["execution_count"], parts["success"]["count"], parts["fail"]["count"]

    def scheduler(self, name: str) -> Any:
        return self.manager.table.leases[name, ""].scheduler


@contextlib.asynccontextmanager
async def serving(folder: Path, cache: int = 1 << 20) -> AsyncIterator[Server]:
    server = Server(folder, cache)
    await server.manager.look()
    try:
        yield server
    finally:
        await server.manager.aclose()


def request(name: str, rows: Any, **parameters: Any) -> Inference:
    array = np.asarray(rows, np.float32).reshape(-1, 2)
    return Inference(name, inputs=[Tensor("t0", "FP32", array.shape, array.tobytes())], parameters=parameters)


def floats(tensor: Tensor) -> np.ndarray[Any, Any]:
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)

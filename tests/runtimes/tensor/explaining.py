"""Models to explain: folders of them, and a scheduler of one that adds its features."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ExplainRules, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import datatype_of
from runtimes.tensor.explanations.explanation import Attributions
from runtimes.tensor.explanations.sampled import SampledExplainer
from runtimes.tensor.interfaces import Array
from runtimes.tensor.models.served_model import ServedModel
from tests.runtimes.tensor import loaded

RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 5))
BEHIND = X[:6]
TRUSTED = "parameters: {allow_pickle: true}\n"


def a_model(root: Path, yaml: str, save: Callable[[Path], object]) -> Path:
    """A repository's folder of one model, with background rows."""
    folder = root / "m"
    (folder / "1").mkdir(parents=True)
    save(folder / "1")
    (folder / "model.yaml").write_text(yaml)
    np.save(folder / "behind.npy", BEHIND)
    return folder


def pickled(root: Path, model: Any, explain: str) -> Path:
    yaml = f"backend: sklearn\n{TRUSTED}explain: {explain}\n"
    return a_model(root, yaml, lambda folder: joblib.dump(model, folder / "model.joblib"))


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[ServedModel]:
    model = await loaded.load(folder)
    try:
        yield model
    finally:
        await model.aclose()


def request(rows: Array, **parameters: Any) -> Inference:
    tensor = Tensor("input", datatype_of(rows.dtype), rows.shape, np.ascontiguousarray(rows).tobytes())
    return Inference("m", parameters=parameters, inputs=[tensor])


async def explained(model: ServedModel, rows: Array, seconds: float = 300, **parameters: Any) -> Attributions:
    assert model.explainer is not None
    deadline = asyncio.get_running_loop().time() + seconds
    return await model.explainer.explain(request(rows, **parameters), deadline)


class Timed(asyncio.Future[list[Tensor]]):
    """An answer that took a quarter of a second."""

    device_seconds = 0.25


class Summing:
    """A scheduler of a model that adds features, times a `hint` if a request has one. From a call on it is `late`: it
    raises, or it never answers. With several `outputs`, each is the sum times its number, from 1."""

    outputs = 1

    def __init__(self, calls: int, late: type[Exception] | None = None) -> None:
        self.calls = calls
        self._late = late

    def infer(self, inference: Inference, deadline: float) -> asyncio.Future[list[Tensor]]:
        future = Timed()
        self.calls -= 1
        if self.calls < 0:
            if self._late is not None:
                raise self._late("late")
            return future
        sent, *hint = [np.frombuffer(tensor.data).reshape(tensor.shape) for tensor in inference.inputs]
        sums = sent.sum(axis=1) * (hint[0][:, 0] if hint else 1)
        outputs = sums[:, None] * np.arange(1, self.outputs + 1)
        future.set_result([Tensor("y", "FP64", outputs.shape, outputs.tobytes())])
        return future


def summing(
    scheduler: Summing,
    width: int = 13,
    budget: int = 100_000,
    behind: float = 0,
    dims: tuple[int, ...] = (1,),
    **rules: Any,
) -> SampledExplainer:
    """Two calls for base and output; two calls for each of ten permutations of 13 features."""
    output = TensorSpec("y", "FP64", dims)
    config = ModelConfig(
        "m", inputs=(TensorSpec("input", "FP64", (width,)), TensorSpec("hint", "FP64", (1,), optional=True)),
        outputs=(output,), max_batch_size=48, explain=ExplainRules(budget=budget, **rules),
    )  # fmt: skip
    return SampledExplainer(config, output, scheduler, {"input": np.full((4, width), behind)})

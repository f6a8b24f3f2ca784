"""A model of scikit-learn whose requests are followed, from its folder to its metrics."""

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as client

from runtimes.tensor.interfaces import ModelLoadError
from tests.runtimes.tensor.loaded import load
from tests.support.tensor_runtime import tensor_runtime

MODEL = """
class Model:
    def infer(self, inputs):
        return {"y": (inputs["x"][:, :1] > 0).astype("int64")}
"""
CONFIG = """
backend: python
max_batch_size: 64
inputs: [{name: x, datatype: FP32, dims: [2]}]
outputs: [{name: y, datatype: INT64, dims: [1]}]
drift: {reference: training.csv, rows: 640}
"""


def followed(root: Path, reference: str) -> Path:
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "1" / "model.py").write_text(MODEL)
    (root / "m" / "model.yaml").write_text(CONFIG)
    (root / "m" / "training.csv").write_text(reference)
    return root


def training() -> str:
    rows = np.random.default_rng(0).normal(size=(4000, 2))
    return "\n".join(["age,income,y", *(f"{a},{b},{int(a > 0)}" for a, b in rows)])


async def test_a_reference_that_does_not_fit_fails_the_load(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"drift\.reference: training\.csv: has 3 columns for `x`"):
        await load(followed(tmp_path, "a,b,c\n1,2,3\n") / "m")


@pytest.mark.processes
async def test_the_metrics_have_the_drift_of_the_last_window(tmp_path: Path) -> None:
    root = followed(tmp_path, training())
    random = np.random.default_rng(1)
    with tensor_runtime("--repository", str(root)) as runtime, client.InferenceServerClient(runtime.http) as http:
        for _ in range(10):
            rows = random.normal(size=(64, 2)).astype(np.float32) + np.array([0, 2], np.float32)
            given = client.InferInput("x", [64, 2], "FP32")
            given.set_data_from_numpy(rows)
            http.infer("m", [given])
        async with asyncio.timeout(300):
            while "headrace_tensor_drift_psi{" not in (page := http._get("metrics", {}, {}).read().decode()):
                await asyncio.sleep(0.05)
    psi = dict(re.findall(r'headrace_tensor_drift_psi{model="m",version="1",feature="(\w+)"} (.+)', page))
    assert float(psi["age"]) < 0.2 < 1 < float(psi["income"])
    assert re.search(r'headrace_tensor_drift_ks{model="m",version="1",feature="income"} 0\.[67]', page)
    assert re.search(r'headrace_tensor_drift_share{model="m",version="1",feature="y",label="1"} 0\.[45]', page)
    assert 'headrace_tensor_drift_window_rows{model="m",version="1"} 640' in page
    assert 'headrace_tensor_drift_skipped_total{model="m",version="1"} 0' in page

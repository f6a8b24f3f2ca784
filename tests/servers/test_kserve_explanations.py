"""KServe's client receives explanations of the tensor runtime, alone and through the gateway."""

import asyncio
import json
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from tests.servers.kserve import install
from tests.servers.programs import __path__ as programs
from tests.support.processes import gateway
from tests.support.tensor_runtime import tensor_runtime

pytestmark = pytest.mark.timeout(1800)  # the first run installs the client
X = np.random.default_rng(7).normal(size=(60, 3))
MODEL = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, X[:, 0] * X[:, 1]), 4)


async def test_kserves_client_explains_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "wine"
    (folder / "1").mkdir(parents=True)
    MODEL.save_model(folder / "1" / "model.txt")
    (folder / "model.yaml").write_text("explain: {method: occlusion, baseline: 0.5}\n")
    configuration = {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(tmp_path / "models")}}],
        "models": [{"name": "wine", "routes": [{"to": "models"}]}],
        "tenants": [{"name": "acme", "models": ["wine"]}],
    }
    python, program = str(install() / "bin/python"), str(Path(programs[0]) / "kserve_explain.py")
    with tensor_runtime("--repository", str(tmp_path / "models")) as runtime:
        async with gateway(tmp_path, configuration) as made:
            await made.printed("Ready.")
            urls = [f"http://{runtime.http}", made.url]
            process = await asyncio.create_subprocess_exec(
                python, program, await made.key(), "wine", json.dumps(X[:2].tolist()), *urls,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            async with asyncio.timeout(300):
                output, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()
    lines = output.decode().splitlines()
    assert len(lines) == 2
    for line in lines:
        explanations, predictions = json.loads(line)
        np.testing.assert_allclose(np.ravel(predictions), MODEL.predict(X[:2]))
        for row, explanation in zip(X[:2], explanations, strict=True):
            covered = [np.where(np.arange(3) == at, 0.5, row) for at in range(3)]
            parts = MODEL.predict(row[None]) - MODEL.predict(np.array(covered))
            np.testing.assert_allclose(explanation["values"], parts, atol=1e-12)
            np.testing.assert_allclose(explanation["base"], MODEL.predict([[0.5] * 3])[0])

"""Recorded chats and tensors are sent to a pool of a file, and expectations decide the exit status."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import yaml

from tests.support.processes import GatewayProcess, command, gateway
from tests.support.scorers import repository

pytestmark = pytest.mark.timeout(900)
SECRET = "the key of this record"
COUNT = 10
TENSORS = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "data": [1, 2, 3, 4, 5, 6, 7, 8]}]}
HEAD = (
    b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [8], "parameters": {"binary_data_size": 32}}],'
    b' "parameters": {"binary_data_output": true}}'
)
BINARY = HEAD + np.arange(1, 9, dtype="<f4").tobytes()


def base(folder: Path) -> dict[str, Any]:
    record = {"to": str(folder / "traffic"), "key": "${RECORD_KEY}", "share": "100%", "answers": True}
    return {"record": record, "tenants": [{"name": "acme", "models": ["*"], "limits": {"requests": "10000/h"}}]}


def models(pools: dict[str, Path]) -> list[dict[str, Any]]:
    return [
        {"name": name, "runtime": {"kind": "tensor", "repository": str(repository)}}
        for name, repository in pools.items()
    ]


async def post(g: GatewayProcess, key: str, path: str, **body: Any) -> None:
    headers = {"authorization": f"Bearer {key}", **body.pop("headers", {})}
    async with aiohttp.ClientSession() as http, http.post(f"{g.url}{path}", headers=headers, **body) as response:
        assert response.status == 200, await response.text()
        await response.read()


async def against(folder: Path, file: dict[str, Any], pool: str, *expected: str) -> tuple[int, dict[str, Any]]:
    path = folder / "new.yaml"
    path.write_text(yaml.safe_dump({"version": 1, **file}))
    options = [option for condition in expected for option in ("--expect", condition)]
    replay = ("replay", str(folder / "traffic"), "--config", str(path), "--against", pool, "--speed", "max", "--json")
    status, out, err = await command(*replay, *options)
    assert out, err
    assert "Traceback" not in err
    return status, json.loads(out)


async def test_tensors_are_sent_to_another_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON and as binary tensors, by name and by version, to a runtime that the replay starts itself."""
    monkeypatch.setenv("RECORD_KEY", SECRET)
    pools = {
        "old": repository(tmp_path / "old", "x * 2"),
        "same": repository(tmp_path / "same", "x * 2"),
        "worse": repository(tmp_path / "worse", "x * 2 + np.float32(0.01)"),
    }
    own = [{"name": "scorer", "aliases": ["points"], "versions": ["1"], "routes": [{"to": "old"}]}]
    file = {**base(tmp_path), "pools": models({"old": pools["old"]}), "models": own}
    async with gateway(tmp_path, file) as g:
        await g.printed("Ready.")
        key = await g.key()
        for _ in range(COUNT):
            await post(g, key, "/v2/models/scorer/infer", json=TENSORS)
            headers = {"Inference-Header-Content-Length": str(len(HEAD))}
            await post(g, key, "/v2/models/scorer/versions/1/infer", data=BINARY, headers=headers)
        await g.until_idle()
        assert await g.stop() == 0
    file = {**base(tmp_path), "pools": models(pools), "models": own}
    file["tenants"][0]["limits"] = {"requests": "1/h"}  # limits of the file do not apply
    status, report = await against(tmp_path, file, "same", "failed == 0", "differing == 0", "status == 0%")
    assert (status, report["unmet"]) == (0, []), report
    assert (report["sent"], report["body"]["compared"]) == (2 * COUNT, 2 * COUNT)
    status, report = await against(tmp_path, file, "worse", "failed == 0", "differing <= 1%")
    assert status == 1
    assert report["unmet"] == ["expected differing <= 1%, got 100%"]
    assert report["body"]["parts"] == {"scores": 2 * COUNT}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "nowhere", "--config", "FILE"], "the file has no such pool. It has dead"),
        (["--against", "dead", "--config", "FILE", "--expect", "changed == 0"], "expected a comparison of failed,"),
        (["--against", "dead"], "--against POOL needs --config"),
        (["--against", "http://127.0.0.1:9", "--config", "FILE", "--export", "mooncake"], "give one of"),
    ],
)
async def test_a_wrong_command_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setenv("RECORD_KEY", SECRET)
    (tmp_path / "traffic").mkdir()
    pools = [{"name": "dead", "endpoints": ["http://127.0.0.1:9"]}]
    file = {"version": 1, **base(tmp_path), "pools": pools, "models": [{"name": "m", "routes": [{"to": "dead"}]}]}
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(file))
    named = [str(tmp_path / "file.yaml") if option == "FILE" else option for option in options]
    status, _, err = await command("replay", str(tmp_path / "traffic"), *named)
    assert status == 2
    assert message in err

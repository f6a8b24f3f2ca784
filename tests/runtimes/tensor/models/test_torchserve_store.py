"""Model stores of TorchServe on the runtime: handlers, batches, versions, archives that are broken."""

import asyncio
import json
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.tensor_runtime import TensorRuntime, tensor_runtime
from tests.support.torchserve_store import FUNCTION, RUNTIME, archive, reporter

pytestmark = pytest.mark.processes


def bad_archives(store: Path) -> None:
    """Archives that are not served, each for a reason of its own."""
    manifest = json.dumps({**RUNTIME, "model": {"modelName": "x", "handler": "h.py", "modelVersion": "1.0"}})
    for name, entry in {"climbs": "../h.py", "absolute": "/h.py"}.items():
        with zipfile.ZipFile(store / f"{name}.mar", "w") as written:
            written.writestr("MAR-INF/MANIFEST.json", manifest.replace('"x"', f'"{name}"'))
            written.writestr(entry, "")
    with zipfile.ZipFile(store / "links.mar", "w") as written:
        written.writestr("MAR-INF/MANIFEST.json", manifest.replace('"x"', '"links"'))
        link = zipfile.ZipInfo("h.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        written.writestr(link, "/etc/passwd")
    with zipfile.ZipFile(store / "bomb.mar", "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("MAR-INF/MANIFEST.json", manifest.replace('"x"', '"bomb"'))
        written.writestr("h.py", bytes(96 << 20))
    (store / "noise.mar").write_bytes(b"no archive")
    with zipfile.ZipFile(store / "bare.mar", "w") as written:
        written.writestr("h.py", "")
    archive(store / "pictures.mar", "pictures", "own_classifier", {"model.pt": b""}, serializedFile="model.pt")
    archive(store / "raises.mar", "raises", "h.py", {"h.py": "def handle(requests, context):\n    1 / 0\n"})
    archive(store / "two.mar", "two", "h.py", {"h.py": "class A: pass\nclass B: pass\n"})
    archive(store / "apart.mar", "apart", "h.py", {"h.py": ""}, settings="parallelType: pp\n")


REASONS = {
    "climbs": "outside of the archive",
    "absolute": "outside of the archive",
    "links": "is a link",
    "bomb": "bytes when it is unpacked",
    "noise": "is no zip file",
    "bare": "has no MAR-INF/MANIFEST.json",
    "pictures": "set `interpreter` to a Python that has torchserve",
    "raises": "ZeroDivisionError",
    "two": "neither a function `handle` nor one class",
    "apart": "`parallelType` of its model-config.yaml is not served here",
}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    store = tmp_path_factory.mktemp("store")
    reporter(store, settings="handler:\n  top: 3\nbatchSize: 4\nmaxBatchDelay: 20\n")
    for version in ("1.0", "2.0"):
        archive(store / f"f{version}.mar", "function", "code/f.py:entry", {"f.py": FUNCTION}, version=version)
    bad_archives(store)
    models = {
        "function": {"1.0": {"defaultVersion": True, "batchSize": 8, "maxBatchDelay": 200, "marName": "f1.0.mar"}}
    }
    models["function"]["2.0"] = {**models["function"]["1.0"], "defaultVersion": False, "marName": "f2.0.mar"}
    (store / "config.properties").write_text(
        "# a comment\ninference_address=http://127.0.0.1:8080\nmodel_store=.\nload_models=all\n"
        f"models={json.dumps(models)}\n"
    )
    with tensor_runtime("--repository", str(store)) as running:
        yield running


async def sent(runtime: TensorRuntime, path: str, body: Any = None, **more: Any) -> tuple[int, str, bytes]:
    data = body if isinstance(body, bytes | aiohttp.FormData) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} if not isinstance(body, aiohttp.FormData) else {}
    async with aiohttp.ClientSession() as session:
        options = {"data": data, "headers": {**headers, **more.pop("headers", {})}, **more}
        async with session.post(f"http://{runtime.http}{path}", **options) as response:
            return response.status, response.headers.get("content-type", ""), await response.read()


async def test_a_handler_gets_the_body_and_its_headers(runtime: TensorRuntime) -> None:
    status, _, body = await sent(runtime, "/predictions/reporter?k=5", {"a": 1}, headers={"X-Test": "yes"})
    assert (status, json.loads(body)) == (
        200,
        {
            "values": {"body": ["dict", {"a": 1}]},
            "kinds": {"body": {"content-type": "application/json"}},
            "header": "yes",
            "setting": {"top": 3},
        },
    )


async def test_the_parts_of_a_form(runtime: TensorRuntime) -> None:
    form = aiohttp.FormData()
    form.add_field("data", b"\x00\r\n--\xff", filename="a.bin", content_type="application/octet-stream")
    form.add_field("words", "näh")
    status, _, body = await sent(runtime, "/predictions/reporter", form)
    assert (status, json.loads(body)["values"]) == (
        200,
        {"data": ["bytearray", b"\x00\r\n--\xff".hex()], "words": ["bytearray", "näh".encode().hex()]},
    )


async def test_a_status_type_and_header_of_the_handler(runtime: TensorRuntime) -> None:
    options = {"status": 418, "type": "text/x-test", "text": "no tea"}
    assert await sent(runtime, "/predictions/reporter", options) == (418, "text/x-test", b"no tea")
    status, _, body = await sent(runtime, "/predictions/reporter", {"bytes": [0, 255]})
    assert (status, body) == (200, b"\x00\xff")
    for split in ({"type": "a\r\nx: y", "text": "t"}, {"type": "a", "status": 9999, "text": "t"}):
        status, kind, _ = await sent(runtime, "/predictions/reporter", split)
        assert (status, "\n" in kind) in ((200, False), (500, False))


async def test_requests_share_a_batch_and_a_failure_is_alone(runtime: TensorRuntime) -> None:
    answers = await asyncio.gather(*[sent(runtime, "/predictions/function", {}) for _ in range(6)])
    rows = [json.loads(body)["rows"] for _, _, body in answers]
    assert max(rows) > 1
    mixed = [{"fail": 1}, *[{"text": str(number)} for number in range(7)]]
    answers = await asyncio.gather(*[sent(runtime, "/predictions/reporter", one) for one in mixed])
    assert [(status, body) for status, _, body in answers[1:]] == [(200, str(one).encode()) for one in range(7)]
    status, _, body = answers[0]
    assert status == 503
    assert json.loads(body) == {"code": 503, "type": "InternalServerException", "message": "Prediction failed"}
    assert (await sent(runtime, "/predictions/reporter", {"odd": 1}))[0] == 503


async def test_versions_are_labels_and_the_default_is_that_of_the_file(runtime: TensorRuntime) -> None:
    for path, version in (("", "1.0"), ("/1.0", "1.0"), ("/2.0", "2.0")):
        _, _, body = await sent(runtime, f"/predictions/function{path}", {})
        assert json.loads(body)["version"] == version
    status, _, body = await sent(runtime, "/predictions/function/3.0", {})
    assert (status, json.loads(body)["type"]) == (404, "ModelNotFoundException")


async def test_a_malformed_form_is_the_clients_mistake_alone(runtime: TensorRuntime) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    status, _, _ = await sent(runtime, "/predictions/reporter", b"--b\r\nno end", headers=headers)
    assert status == 400
    assert (await sent(runtime, "/predictions/reporter", {}))[0] == 200


async def test_health_and_lists(runtime: TensorRuntime) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{runtime.http}/ping") as response:
            assert (response.status, await response.json()) == (200, {"status": "Healthy"})
        async with session.get(f"http://{runtime.http}/models") as response:
            names = {one["modelName"] for one in (await response.json())["models"]}
            assert names == {"reporter", "function"}
        async with session.get(f"http://{runtime.http}/models/reporter") as response:
            (described,) = await response.json()
            assert (described["batchSize"], described["maxBatchDelay"]) == (4, 20)
            assert described["workers"] == [{"id": "0", "status": "READY"}]
        async with session.get(f"http://{runtime.http}/models/nobody") as response:
            assert response.status == 404


async def test_broken_archives_have_reasons_and_the_others_serve(runtime: TensorRuntime) -> None:
    _, _, body = await sent(runtime, "/v2/repository/index", {})
    index = json.loads(body)
    reasons = {entry["name"]: entry.get("reason", "") for entry in index if entry["state"] == "UNAVAILABLE"}
    assert reasons.keys() == REASONS.keys()
    for name, words in REASONS.items():
        assert words in reasons[name], name


async def test_the_open_inference_protocol_reaches_a_handler_too(runtime: TensorRuntime) -> None:
    inputs = [{"name": "data", "shape": [1, 1], "datatype": "BYTES", "data": ["raw"]}]
    status, _, body = await sent(runtime, "/v2/models/reporter/infer", {"inputs": inputs})
    assert status == 200
    outputs = {one["name"]: one["data"][0] for one in json.loads(body)["outputs"]}
    assert json.loads(outputs["data"])["values"] == {"data": ["bytearray", b"raw".hex()]}
    assert json.loads(outputs["response"]) == {"status": 200, "headers": {}}

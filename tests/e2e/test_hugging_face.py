"""Folders of Hugging Face behind a gateway that starts the runtime: requests of each form, and bad ones."""

import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
import transformers
import tritonclient.grpc.aio as over_grpc
import yaml
from PIL import Image

from tests.support.hugging_face import LIMIT, save_bert, save_vit
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

ENTITIES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}
TEXTS = ["good", "the city of Rome is big and good"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    save_bert(root / "reviews", transformers.BertForSequenceClassification, num_labels=3)
    names = save_bert(root / "names" / "model", transformers.BertForTokenClassification, id2label=ENTITIES)
    settings = {
        "implementation": "mlserver_huggingface.HuggingFaceRuntime",
        "parameters": {"extra": {"task": "ner", "pretrained_model": "./model"}},
    }
    (names.parent / "model-settings.json").write_text(json.dumps(settings))
    saved = save_vit(root / "pets" / "model", num_labels=4)
    components = root / "pets" / "components" / "image_processor"
    components.mkdir(parents=True)
    (saved / "preprocessor_config.json").rename(components / "preprocessor_config.json")
    flavor = {"task": "image-classification", "model_binary": "model", "components": ["image_processor"]}
    (root / "pets" / "MLmodel").write_text(yaml.safe_dump({"flavors": {"transformers": flavor}}))
    chat = save_bert(root / "chat", transformers.BertForMaskedLM)
    config = json.loads((chat / "config.json").read_text())
    (chat / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(models: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[GatewayProcess, str]]:
    configuration = {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(models)}}],
        "models": [{"name": name, "routes": [{"to": "models"}]} for name in ("reviews", "names", "pets", "chat")],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path_factory.mktemp("gateway"), configuration) as process:
        await process.printed(r"Ready\.")
        yield process, await process.key()
        await process.until_idle()


async def post(running: tuple[GatewayProcess, str], path: str, body: Any) -> tuple[int, Any]:
    process, key = running
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{process.url}{path}", json=body, headers=headers) as response,
    ):
        return response.status, await response.json()


async def infer(running: tuple[GatewayProcess, str], model: str, *texts: str) -> tuple[int, Any]:
    given = {"name": "args", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}
    return await post(running, f"/v2/models/{model}/infer", {"inputs": [given]})


def by_name(body: Any) -> dict[str, Any]:
    return {one["name"]: one for one in body["outputs"]}


async def test_texts_are_classified(running: tuple[GatewayProcess, str], models: Path) -> None:
    pipe = transformers.pipeline("text-classification", model=str(models / "reviews"))
    expected = [pipe(text)[0] for text in TEXTS]
    status, body = await infer(running, "reviews", *TEXTS)
    assert status == 200
    outputs = by_name(body)
    assert outputs["label"]["data"] == [one["label"] for one in expected]
    assert outputs["score"]["data"] == pytest.approx([one["score"] for one in expected], abs=1e-5)
    assert outputs["scores"]["shape"] == [2, 3]
    assert [json.loads(one)["label"] for one in outputs["output"]["data"]] == [one["label"] for one in expected]
    status, body = await post(running, "/v1/models/reviews:predict", {"instances": TEXTS})
    assert status == 200
    assert [row["label"] for row in body["predictions"]] == [one["label"] for one in expected]


async def test_a_client_of_triton_has_the_classes_over_grpc(running: tuple[GatewayProcess, str]) -> None:
    process, key = running
    async with over_grpc.InferenceServerClient(process.grpc) as client:
        given = over_grpc.InferInput("args", [2], "BYTES")
        given.set_data_from_numpy(np.array([text.encode() for text in TEXTS], np.object_))
        outputs = [over_grpc.InferRequestedOutput("scores", class_count=1), over_grpc.InferRequestedOutput("label")]
        headers = {"authorization": f"Bearer {key}"}
        response = await client.infer("reviews", [given], outputs=outputs, headers=headers)
    best = [one[0].decode().split(":")[2] for one in response.as_numpy("scores")]
    assert best == [one.decode() for one in response.as_numpy("label")]


async def test_tokens_of_a_folder_of_mlserver_are_classified(running: tuple[GatewayProcess, str], models: Path) -> None:
    pipe = transformers.pipeline("ner", model=str(models / "names" / "model"))
    for text in [*TEXTS, "one", ","]:
        status, body = await infer(running, "names", text)
        assert status == 200
        entities, outputs = pipe(text), by_name(body)
        assert outputs["count"]["data"] == [len(entities)]
        assert outputs["labels"]["shape"] == [1, len(entities)]
        assert outputs["labels"]["data"] == [one["entity"] for one in entities]
        status, body = await post(running, "/v1/models/names:predict", {"instances": [text]})
        assert status == 200
        assert [row["labels"] for row in body["predictions"]] == [[one["entity"] for one in entities]]
    rows = [TEXTS[at % 2] for at in range(9)] + ["one"]  # more than a batch has
    counts = [len(pipe(text)) for text in rows]
    assert counts[0] != counts[1]
    status, body = await infer(running, "names", *rows)
    outputs = by_name(body)
    assert outputs["count"]["data"] == counts
    assert outputs["scores"]["shape"] == [10, max(counts)]


async def test_pictures_of_a_folder_of_mlflow_are_classified(running: tuple[GatewayProcess, str]) -> None:
    picture = Image.fromarray(np.random.default_rng(5).integers(0, 256, (40, 50, 3), np.uint8))
    file = io.BytesIO()
    picture.save(file, "PNG")
    encoded = {"b64": base64.b64encode(file.getvalue()).decode()}
    status, body = await post(running, "/v1/models/pets:predict", {"instances": [{"args": encoded}]})
    assert status == 200, body
    pixels = {"name": "pixels", "datatype": "UINT8", "shape": [1, 40, 50, 3], "data": np.asarray(picture).tolist()}
    status, same = await post(running, "/v2/models/pets/infer", {"inputs": [pixels]})
    assert status == 200, same
    (row,) = body["predictions"]
    assert by_name(same)["scores"]["data"] == pytest.approx(row["scores"], abs=1e-6)


@pytest.mark.parametrize(
    ("model", "inputs", "reason"),
    [
        ("reviews", {"args": ["one " * LIMIT]}, f"`args` has {LIMIT + 2} tokens, and {LIMIT} is the most."),
        ("pets", {"args": ["no picture"]}, "`args` is not a JPEG, PNG, WebP or GIF picture."),
        ("reviews", {"text": ["good"]}, "unexpected inference input 'text'"),
    ],
)
async def test_a_bad_row_is_the_mistake_of_the_caller(
    running: tuple[GatewayProcess, str], model: str, inputs: dict[str, list[str]], reason: str
) -> None:
    tensors = [{"name": name, "datatype": "BYTES", "shape": [1], "data": data} for name, data in inputs.items()]
    status, body = await post(running, f"/v2/models/{model}/infer", {"inputs": tensors})
    assert status == 400
    assert reason in body["error"]


async def test_bytes_that_are_no_text_are_the_mistake_of_the_caller(running: tuple[GatewayProcess, str]) -> None:
    encoded = {"b64": base64.b64encode(b"good \xff").decode()}
    status, body = await post(running, "/v1/models/reviews:predict", {"instances": [{"args": encoded}]})
    assert (status, body["error"]) == (400, "`args` is not UTF-8 text: byte 5 is wrong.")


async def test_a_generator_of_text_is_not_ready_and_names_the_runtime_for_it(
    running: tuple[GatewayProcess, str],
) -> None:
    status, index = await post(running, "/v2/repository/index", {})
    assert status == 200
    (chat,) = [one for one in index if one["name"] == "chat"]
    assert chat["state"] == "UNAVAILABLE"
    assert "LlamaForCausalLM generates text: serve it with `runtime: {kind: llm}`" in chat["reason"]

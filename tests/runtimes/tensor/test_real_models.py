"""Published models of the catalogue, each served by the real runtime and called by Triton's own client."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import tritonclient.http as triton

from runtimes.tensor.catalogue.repository import add
from tests.support import ocr
from tests.support.tensor_runtime import TensorRuntime

pytestmark = pytest.mark.processes
Array = npt.NDArray[Any]
OCR = ("ocr-detect", "ocr-classify", "ocr-recognise")
DATATYPES = {"f4": "FP32", "i4": "INT32", "i8": "INT64"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("magika", "minilm", *OCR):
        add(name, folder)
    return folder


@pytest.fixture
def client(runtime: TensorRuntime) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(runtime.http, concurrency=8, network_timeout=60, connection_timeout=60) as client:
        yield client


def tensors(arrays: dict[str, Array]) -> list[triton.InferInput]:
    made = []
    for name, array in arrays.items():
        tensor = triton.InferInput(
            name, list(array.shape), {"f4": "FP32", "i4": "INT32", "i8": "INT64"}[array.dtype.str[1:]]
        )
        tensor.set_data_from_numpy(np.ascontiguousarray(array))
        made.append(tensor)
    return made


def infer(client: triton.InferenceServerClient, model: str, **inputs: Array) -> triton.InferResult:
    return client.infer(model, tensors(inputs))


def session(repository: Path, model: str, file: str = "model.onnx") -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(repository / model / "1" / file, providers=["CPUExecutionProvider"])


# ── what bytes are ────────────────────────────────────────────────────────────────────────────────────


def features(content: bytes) -> Array:
    """The features in the form of Magika's own client."""
    content = content.strip()
    begin, end = list(content[:1024]), list(content[-1024:])
    return np.array([[*begin, *[256] * (1024 - len(begin)), *[256] * (1024 - len(end)), *end]], np.int32)


CONTENTS = {
    "python": b"import os\n\n\ndef main() -> None:\n    for name in os.listdir('.'):\n        print(name)\n" * 4,
    "jsonl": b'{"version": 1, "models": [{"name": "chat", "routes": [{"to": "a"}]}], "limits": null}\n' * 4,
    "html": b"<!DOCTYPE html><html><head><title>x</title></head><body><p>text</p></body></html>" * 4,
    "c": b'#include <stdio.h>\n\nint main(void) {\n    printf("hello");\n    return 0;\n}\n' * 4,
}


def test_magika_classifies_bytes(client: triton.InferenceServerClient, repository: Path) -> None:
    """The numbers equal ONNX Runtime's, and the classes have their names."""
    direct = session(repository, "magika")
    for kind, content in CONTENTS.items():
        given = features(content)
        answer = infer(client, "magika", bytes=given).as_numpy("target_label")
        np.testing.assert_array_equal(answer, direct.run(None, {"bytes": given})[0])
        best = triton.InferRequestedOutput("target_label", class_count=1)
        top = client.infer("magika", tensors({"bytes": given}), outputs=[best]).as_numpy("target_label")
        score, index, label = top.reshape(-1)[0].decode().split(":")
        assert (int(index), label) == (int(answer.argmax()), kind)
        assert float(score) == pytest.approx(float(answer.max()), rel=1e-4)


def test_many_at_once_get_their_own_answers(client: triton.InferenceServerClient, repository: Path) -> None:
    direct = session(repository, "magika")
    given = [features(content) for content in CONTENTS.values()] * 8
    sent = [client.async_infer("magika", tensors({"bytes": row})) for row in given]
    for row, request in zip(given, sent, strict=True):
        answer = request.get_result(timeout=60).as_numpy("target_label")
        np.testing.assert_allclose(answer, direct.run(None, {"bytes": row})[0], atol=1e-5)


# ── images ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_picture_is_read(client: triton.InferenceServerClient, repository: Path) -> None:
    """Found, turned upright, recognised: three models, pictures of any size."""
    alphabet = ocr.characters(session(repository, "ocr-recognise").get_modelmeta().custom_metadata_map["character"])

    def sent(model: str, picture: Array) -> Array:
        result = infer(client, model, x=picture)
        return np.array(result.as_numpy(result.get_response()["outputs"][0]["name"]))

    assert ocr.read(ocr.picture(), alphabet, sent) == ["Headrace 2026", "turned around"]


# ── what a sentence means ─────────────────────────────────────────────────────────────────────────────

SENTENCES = [
    "The water drives a wheel below the dam.",
    "A turbine is turned by a river.",
    "My accountant charges too much.",
]


def test_sentences_that_mean_alike_are_near(client: triton.InferenceServerClient, repository: Path) -> None:
    """Sent alone or together with longer ones, each gets the vector that the module itself gives."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(repository / "minilm" / "tokenizer.json"))
    tokenizer.no_padding()
    encoded = [np.array([tokenizer.encode(sentence).ids], np.int64) for sentence in SENTENCES]
    sent = [
        client.async_infer("minilm", tensors({"input_ids": ids, "attention_mask": np.ones_like(ids)}))
        for ids in encoded * 4
    ]
    vectors = [request.get_result(timeout=60).as_numpy("sentence_embedding")[0] for request in sent]
    module = _minilm(repository)
    for ids, vector in zip(encoded * 4, vectors, strict=True):
        np.testing.assert_allclose(vector, module(ids), atol=1e-5)
    water, river, money = vectors[:3]
    assert water @ river > 0.4 > 0.2 > water @ money


def _minilm(repository: Path) -> Any:
    """The model's own program, run here."""
    import torch
    from safetensors.torch import load_file

    folder = repository / "minilm" / "1"
    spec = importlib.util.spec_from_file_location("minilm_program", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    module = program.Model().eval()
    module.load_state_dict(load_file(folder / "model.safetensors"))

    def vector(ids: Array) -> Array:
        with torch.inference_mode():
            actual = module(torch.from_numpy(ids), torch.ones(ids.shape, dtype=torch.long))
        vector: Array = actual["sentence_embedding"][0].numpy()
        return vector

    return vector

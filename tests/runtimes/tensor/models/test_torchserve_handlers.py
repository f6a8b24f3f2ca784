"""Archives with TorchServe's own handlers answer as those of TorchServe 0.12.0 with torchvision do.

`torchserve_answers.json` has the answers of these classes to the requests and archives of `torchserve_handlers`.
"""

import asyncio
import base64
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.tensor_runtime import TensorRuntime, tensor_runtime
from tests.support.torchserve_handlers import PICTURES, TEXTS, own_handlers_store, picture
from tests.support.torchserve_store import archive

pytestmark = pytest.mark.processes
ANSWERS = json.loads(Path(__file__).with_name("torchserve_answers.json").read_text())
SUBCLASS = """
from ts.torch_handler.image_classifier import ImageClassifier

class Two(ImageClassifier):
    topk = 2
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorRuntime]:
    store = own_handlers_store(tmp_path_factory.mktemp("store"))
    script = _member(store / "classes.mar", "w.pt")
    archive(store / "two.mar", "two", "two.py", {"two.py": SUBCLASS, "w.pt": script}, serializedFile="w.pt")
    odd: dict[str, str | bytes] = {"index_to_name.json": '{"0": 1}', "w.pt": script}
    archive(store / "odd.mar", "odd", "image_classifier", odd, serializedFile="w.pt")
    archive(store / "absent.mar", "absent", "absent_handler", {"w.pt": script}, serializedFile="w.pt")
    archive(store / "mute.mar", "mute", "text_classifier", {"w.pt": script}, serializedFile="w.pt")
    torch.save([1, 2], vocabulary := io.BytesIO())
    files: dict[str, str | bytes] = {"w.pt": script, "source_vocab.pt": vocabulary.getvalue()}
    archive(store / "listed.mar", "listed", "text_classifier", files, serializedFile="w.pt")
    with tensor_runtime("--repository", str(store)) as running:
        yield running


def _member(path: Path, name: str) -> bytes:
    with zipfile.ZipFile(path) as opened:
        return opened.read(name)


async def sent(runtime: TensorRuntime, model: str, body: bytes, kind: str = "image/png") -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{runtime.http}/predictions/{model}", data=body, headers={"content-type": kind}) as answer,
    ):
        return answer.status, json.loads(await answer.read())


def close(got: Any, expected: Any) -> None:
    """The same keys, order and lists, with numbers that differ by the last digits of FP32."""
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            close(got[key], expected[key])
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            close(one, other)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["classes", "pixels", "objects"])
@pytest.mark.parametrize("name", PICTURES)
async def test_answers_equal_those_of_torchserve(model: str, name: str, runtime: TensorRuntime) -> None:
    status, got = await sent(runtime, model, picture(*PICTURES[name]))
    assert status == 200, got
    close(got, ANSWERS[f"{model} {name}"])


async def test_requests_in_one_batch_have_their_own_answers(runtime: TensorRuntime) -> None:
    """One that is no picture fails alone, as the client's mistake."""
    bodies = [*[picture(*size) for size in PICTURES.values()], b"no picture"]
    answers = await asyncio.gather(*[sent(runtime, "classes", body) for body in bodies])
    for name, (status, got) in zip(PICTURES, answers, strict=False):
        assert status == 200
        close(got, ANSWERS[f"classes {name}"])
    status, got = answers[-1]
    assert (status, got["code"]) == (400, 400)
    assert "no picture that can be read" in got["message"]


async def test_base64_and_numbers_are_pictures_too(runtime: TensorRuntime) -> None:
    status, got = await sent(runtime, "classes", base64.b64encode(picture(*PICTURES["wide"])), "text/plain")
    assert status == 200
    close(got, ANSWERS["classes wide"])
    numbers = np.zeros((3, 224, 224)).tolist()
    status, got = await sent(runtime, "classes", json.dumps(numbers).encode(), "application/json")
    assert (status, len(got)) == (200, 5)


@pytest.mark.parametrize("mode", ["L", "P", "1", "RGBA", "CMYK"])
async def test_other_modes_are_converted(mode: str, runtime: TensorRuntime) -> None:
    """TorchServe itself fails on them."""
    body = picture(64, 64, "RGB") if mode == "CMYK" else picture(64, 64, mode)
    if mode == "CMYK":
        Image.open(io.BytesIO(body)).convert("CMYK").save(buffer := io.BytesIO(), "JPEG")
        body = buffer.getvalue()
    assert (await sent(runtime, "classes", body))[0] == 200


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "image/png"), (b"\x89PNG\r\n\x1a\n", "image/png"), (picture(300, 300)[:300], "image/png"),
        (b"!!", "text/plain"), (b"{}", "application/json"), (b'["a"]', "application/json"),
        (b"null", "application/json"), (b"602112", "application/json"), (picture(1, 40_000), "image/png"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "image/png"),
    ],
)  # fmt: skip
async def test_a_body_without_a_picture_is_the_clients_mistake(body: bytes, kind: str, runtime: TensorRuntime) -> None:
    assert (await sent(runtime, "classes", body, kind))[0] == 400


async def test_a_detector_takes_no_picture_that_would_fill_the_memory(runtime: TensorRuntime) -> None:
    """A PNG of one color has few bytes, and the model would get all of its pixels as numbers."""
    Image.new("RGB", (8192, 4097)).save(buffer := io.BytesIO(), "PNG")
    status, answer = await sent(runtime, "objects", buffer.getvalue())
    assert (status, "8192 × 4097 pixels" in str(answer)) == (400, True)


async def test_handlers_of_archives_build_on_these_classes(runtime: TensorRuntime) -> None:
    status, got = await sent(runtime, "two", picture(*PICTURES["wide"]))
    names = {"tench": "0", "goldfish": "1", "shark": "2", "ray": "3", "cock": "4", "hen": "5", "ostrich": "6"}
    expected = {names[name]: value for name, value in list(ANSWERS["classes wide"].items())[:2]}
    assert status == 200
    close(got, expected)


async def test_an_archive_that_cannot_be_served_has_a_reason(runtime: TensorRuntime) -> None:
    async with aiohttp.ClientSession() as session, session.post(f"http://{runtime.http}/v2/repository/index") as answer:
        index = await answer.json(content_type=None)
    reasons = {one["name"]: one.get("reason", "") for one in index if one["state"] == "UNAVAILABLE"}
    assert "must be either str or List[str]" in reasons["odd"]
    assert "this handler of TorchServe needs its packages" in reasons["absent"]
    assert "has no source_vocab.pt" in reasons["mute"]
    assert "source_vocab.pt is no dict of numbers by word" in reasons["listed"]


@pytest.mark.parametrize("name", TEXTS)
async def test_texts_have_the_answers_of_torchserve(name: str, runtime: TensorRuntime) -> None:
    """Also within one batch with a text of unknown words, which TorchServe cannot compute with a dict."""
    texts = [TEXTS[name], "a dog"]
    answers = await asyncio.gather(*[sent(runtime, "words", text.encode(), "text/plain") for text in texts])
    assert [status for status, _ in answers] == [200, 200]
    close(answers[0][1], ANSWERS[f"words {name}"])


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"!?", b"<b></b>"])
async def test_a_request_without_words_is_the_clients_mistake(body: bytes, runtime: TensorRuntime) -> None:
    assert (await sent(runtime, "words", body, "application/octet-stream"))[0] == 400

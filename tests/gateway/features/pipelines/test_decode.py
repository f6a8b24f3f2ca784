"""Pictures and sound of a request: what reaches the model, and files that are no pictures."""

import base64
import io
import struct
import wave
import zlib
from typing import Any

import aiohttp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from adapters.errors import CallerError, StepFailed, TooLarge
from adapters.tensors import Tensor, join_bytes
from gateway.features.pipelines.decode import files_of
from tests.gateway.features.pipelines.rigs import chat_fake, floats, infer, infers, rig, sent
from tests.support.gateways import Rig, listening

pytestmark = pytest.mark.processes


def picture(width: int = 8, height: int = 6, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (255, 0, 51)).save(out, kind)
    return out.getvalue()


def sound() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 4, "NONE", ""))
        file.writeframes(struct.pack("<4h", 0, 16384, -16384, 0))
    return out.getvalue()


def vision(**decode: Any) -> Rig:
    steps = [
        {"name": "pixels", "in": {"image": "request.image"}, "decode": decode},
        {"name": "answer", "model": "m", "in": {"x": "pixels.image"}},
    ]
    return rig({"steps": steps}, {"m": infers(floats("y", 1))}, tensors="m")


def files(*contents: bytes) -> Tensor:
    return Tensor("image", "BYTES", (len(contents),), join_bytes(list(contents)))


async def received(one: Rig, value: Tensor) -> Tensor:
    await one.core.handle(one.principal, infer(value), {}, one.record())
    tensor: Tensor = sent(one, "m")["x"]
    return tensor


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
async def test_pictures_become_one_tensor(kind: str) -> None:
    one = vision(image={"height": 4, "width": 5, "scale": 1 / 255, "mean": [0.5], "deviation": [0.5]})
    tensor = await received(one, files(picture(kind=kind), picture(20, 20, kind)))
    assert (tensor.datatype, tensor.shape) == ("FP32", (2, 3, 4, 5))
    values = np.frombuffer(tensor.data, "<f4").reshape(tensor.shape)
    np.testing.assert_allclose(values[:, :, 2, 2], [[1.0, -1.0, -0.6]] * 2, atol=0.05)


async def test_a_file_has_several_forms() -> None:
    file = picture()
    text = base64.b64encode(file)
    url = b"data:image/png;base64," + text
    forms = [files(file), files(text), files(url), Tensor("image", "UINT8", (len(file),), file)]
    made = [await received(vision(image={"datatype": "UINT8"}), each) for each in forms]
    assert {(each.shape, bytes(each.data)) for each in made} == {((1, 3, 6, 8), bytes(made[0].data))}


async def test_sound_becomes_a_tensor() -> None:
    tensor = await received(vision(sound={"rate": 8000}), files(sound()))
    assert tensor.shape == (1, 4)
    assert np.frombuffer(tensor.data, "<f4").tolist() == [0.0, 0.5, -0.5, 0.0]


def bomb() -> bytes:
    """A PNG of 60000 × 60000 pixels in a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def scanned(times: int) -> bytes:
    """A small JPEG with so many scans."""
    file = picture(16, 16, "JPEG")
    return file[:-2] + file[file.rfind(b"\xff\xda") : -2] * (times - 1) + file[-2:]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (files(scanned(33)), "more than 32 scans"),
        (files(bomb()), "more than .* pixels"),
        (files(picture(400, 400, "JPEG")[:800]), "truncated or damaged"),
        (files(b"GIF89a" + b"\0" * 100), "not a JPEG, PNG or WebP"),
        (files(b""), "not a JPEG, PNG or WebP"),
        (files(b"data:image/png;base64,???"), "not base64"),
        (files(*[picture()] * 65), "65 files"),
        (files(), "0 files"),
        (floats("image", 1), "tensor of FP32"),
        (files(picture(), picture(4, 4)), "set height and width"),
    ],
)
async def test_a_file_that_is_no_picture_is_the_clients_mistake(value: Tensor, message: str) -> None:
    one = vision(image={})
    with pytest.raises(CallerError, match=message) as caught:
        await received(one, value)
    assert isinstance(caught.value, TooLarge) == ("more than" in message)
    assert one.adapters["m"][0].calls == []


async def test_a_picture_that_another_step_made_is_not_the_clients_mistake() -> None:
    steps = [{"name": "draw", "model": "d"}, {"name": "pixels", "in": {"image": "draw.image"}, "decode": {"image": {}}}]
    one = rig({"steps": steps}, {"d": infers(files(b"nothing"))}, tensors="d")
    with pytest.raises(StepFailed, match=r"pixels.*not a JPEG"):
        await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())


async def test_a_chat_with_a_picture_through_the_front() -> None:
    steps = [
        {"name": "pixels", "in": {"image": "request.images"}, "decode": {"image": {"height": 2, "width": 2}}},
        {"name": "label", "model": "m", "in": {"x": "pixels.image"}},
        {"name": "prompt", "in": {"label": "label.name"}, "template": "Describe a {{ label }}."},
        {"name": "answer", "model": "c", "in": {"prompt": "prompt.text"}},
    ]
    name = Tensor("name", "BYTES", (1,), join_bytes([b"cat"]))
    one = rig({"steps": steps}, {"m": infers(name), "c": chat_fake("It is a cat.")}, tensors="m")
    headers = {"authorization": f"Bearer {one.key.plaintext}"}
    async with listening(one) as url, aiohttp.ClientSession(url, headers=headers) as session:
        for data, status in ((picture(), 200), (b"none", 400)):
            url_of_picture = "data:image/png;base64," + base64.b64encode(data).decode()
            part = {"type": "image_url", "image_url": {"url": url_of_picture}}
            body = {"model": "whole", "messages": [{"role": "user", "content": [part]}]}
            async with session.post("/v1/chat/completions", json=body) as response:
                answer = await response.json()
                assert response.status == status, answer
                if status == 400:
                    assert answer["error"]["code"] == "invalid_image"
    assert sent(one, "c")["messages"] == [{"role": "user", "content": "Describe a cat."}]
    assert sent(one, "m")["x"].shape == (1, 3, 2, 2)
    await one.until_idle()


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_any_bytes_are_files_or_a_clear_error(contents: list[bytes]) -> None:
    try:
        made = files_of(files(*contents), "image")
    except CallerError:
        return  # raised on purpose; any other error fails the test
    assert len(made) == len(contents)

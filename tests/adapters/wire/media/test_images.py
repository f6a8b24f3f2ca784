"""Images as tensors; files that are not images, truncated, too large or of another format than declared."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from adapters import offload
from adapters.errors import CallerError, TooLarge
from adapters.tensors import Tensor
from adapters.wire.media.encoded import file_bytes
from adapters.wire.media.images import MAX_PICTURES, ImageOptions, decode_images, target_size

DTYPES = {"UINT8": "u1", "FP16": "<f2", "FP32": "<f4"}


def picture(width: int = 4, height: int = 3, mode: str = "RGB") -> Image.Image:
    channels = len(Image.new(mode, (1, 1)).getbands())
    values = np.arange(width * height * channels, dtype=np.uint8).reshape(height, width, channels) * 5
    return Image.fromarray(values.squeeze(-1) if channels == 1 else values, None if mode == "RGB" else mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return np.frombuffer(tensor.data, DTYPES[tensor.datatype]).reshape(tensor.shape)


def decoded(*files: bytes, **options: Any) -> np.ndarray[Any, Any]:
    return array(decode_images(files, ImageOptions(**options), "image"))


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True})])
def test_lossless_pictures_are_exact(kind: str, options: dict[str, bool]) -> None:
    source = picture()
    result = decoded(encoded(source, kind, **options), datatype="UINT8", layout="hwc")
    assert (result == np.asarray(source)[None]).all()


def test_a_jpeg_is_near_and_its_orientation_is_applied() -> None:
    source = Image.new("RGB", (32, 16), (200, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    result = decoded(encoded(source, "JPEG", exif=exif), datatype="UINT8", layout="hwc")
    assert result.shape == (1, 32, 16, 3)
    assert np.abs(result.astype(int) - [200, 10, 10]).max() < 8


def test_layout_colour_and_normalisation() -> None:
    source = picture(2, 1)
    result = decoded(encoded(source), color="bgr", scale=1 / 255, mean=(0.5, 0.5, 0.5), deviation=(0.5, 0.25, 0.5))
    values = np.asarray(source)[..., ::-1].astype(np.float32) / 255
    expected = ((values - 0.5) / np.array([0.5, 0.25, 0.5], np.float32)).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert decoded(encoded(source), color="gray").shape == (1, 1, 1, 2)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "CMYK", "P", "1", "I;16"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    if mode == "I;16":
        source = Image.fromarray(np.full((2, 2), 0x8000, np.uint16))
    else:
        source = Image.new("RGB", (2, 2), (128, 128, 128)).convert(mode)
    result = decoded(encoded(source, "JPEG" if mode == "CMYK" else "PNG"), datatype="UINT8", layout="hwc")
    assert result.shape == (1, 2, 2, 3)
    if mode not in ("1", "P"):  # Pillow dithers these
        assert np.abs(result.astype(int) - 128).max() <= 3


def test_transparent_pixels_have_the_background() -> None:
    source = Image.new("RGBA", (1, 1), (9, 9, 9, 0))
    result = decoded(encoded(source), datatype="UINT8", background=(1, 2, 3))
    assert result.reshape(-1).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("size", "options", "result"),
    [
        ((100, 50), {}, (100, 50)),
        ((100, 50), {"height": 10, "width": 10}, (10, 10)),
        ((100, 50), {"height": 48}, (96, 48)),
        ((100, 50), {"width": 10}, (10, 5)),
        ((1000, 700), {"longest": 500}, (500, 350)),
        ((100, 50), {"longest": 500}, (100, 50)),
        ((1000, 700), {"longest": 960, "multiple_of": 32}, (960, 672)),
        ((1, 5000), {"multiple_of": 32}, (32, 4992)),
        ((1, 16000), {"width": 64}, (64, 16384)),
    ],
)
def test_sizes(size: tuple[int, int], options: dict[str, int], result: tuple[int, int]) -> None:
    assert target_size(*size, ImageOptions(**options)) == result  # type: ignore[arg-type]


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_pictures_of_several_sizes_become_one_batch(fit: str) -> None:
    files = [encoded(picture(4, 3)), encoded(picture(9, 2), "WEBP"), encoded(picture(3, 8), "JPEG")]
    assert decoded(*files, height=6, width=5, fit=fit).shape == (3, 3, 6, 5)
    with pytest.raises(CallerError, match="Picture 2 of `image` has the size 9 × 2, the first has 4 × 3"):
        decoded(*files)


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG whose header states any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def text_bomb() -> bytes:
    file = encoded(picture())
    data = b"Comment\0\0" + zlib.compress(b"a" * 100_000_000)
    bomb = struct.pack(">I", len(data)) + b"zTXt" + data + struct.pack(">I", zlib.crc32(b"zTXt" + data))
    return file[:33] + bomb + file[33:]


ANIMATED = encoded(
    Image.new("RGB", (2, 2)), "WEBP", save_all=True, append_images=[Image.new("RGB", (2, 2), "red")], lossless=True
)


@pytest.mark.parametrize(
    ("file", "error", "message"),
    [
        (b"", CallerError, "not a JPEG, PNG or WebP"),
        (b"hello", CallerError, "not a JPEG, PNG or WebP"),
        (encoded(picture(), "GIF"), CallerError, "not a JPEG, PNG or WebP"),
        (encoded(picture(), "BMP"), CallerError, "not a JPEG, PNG or WebP"),
        (encoded(picture(), "TIFF"), CallerError, "not a JPEG, PNG or WebP"),
        (b"%PDF-1.7\n", CallerError, "not a JPEG, PNG or WebP"),
        (encoded(picture(64, 64))[:-40], CallerError, "truncated or damaged"),
        (encoded(picture(64, 64), "JPEG")[:-40], CallerError, "truncated or damaged"),
        (png(100, 100, b"\0" * 10), CallerError, "truncated or damaged"),
        (png(60_000, 60_000), TooLarge, "pixels"),
        (png(5_000, 5_000), TooLarge, "more than 24000000 pixels"),
        (png(2**31 - 1, 2**31 - 1), TooLarge, "pixels"),
        (png(0, 0), CallerError, "picture"),
        (ANIMATED, CallerError, "an animation"),
        (text_bomb(), CallerError, "`image`"),
    ],
)
def test_files_that_are_no_usable_picture(file: bytes, error: type[CallerError], message: str) -> None:
    with pytest.raises(error) as caught:
        decoded(file)
    assert message in caught.value.message
    assert caught.value.param == "image"
    assert type(caught.value) is error


def test_no_pictures_and_too_many() -> None:
    for files in ([], [encoded(picture())] * (MAX_PICTURES + 1)):
        with pytest.raises(CallerError, match="send 1 to 64"):
            decoded(*files)


def test_many_large_pictures() -> None:
    file = encoded(Image.new("1", (4_800, 5_000)))
    with pytest.raises(TooLarge, match="have more than 96000000 pixels"):
        decoded(*[file] * 5, height=2, width=2)


def test_a_tensor_that_is_too_large() -> None:
    with pytest.raises(TooLarge, match="makes a tensor of more than"):
        decoded(encoded(picture()), height=5000, width=5000)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["PNG", "JPEG", "WEBP"]),
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=4)), min_size=1, max_size=4),
    st.integers(0, 500),
)
def test_damaged_files_are_refused_or_decoded(kind: str, changes: list[tuple[int, bytes]], cut: int) -> None:
    file = bytearray(encoded(picture(16, 16), kind))
    for at, data in changes:
        file[at % len(file) : at % len(file) + len(data)] = data
    try:
        result = decoded(bytes(file[: max(cut, 20)]), height=4, width=4)
    except CallerError as error:
        assert error.param == "image"  # noqa: PT017
        return
    assert result.shape == (1, 3, 4, 4)


@pytest.mark.processes
async def test_a_worker_process_decodes() -> None:
    options = ImageOptions(height=2, width=2, datatype="UINT8")
    tensor = await offload.run(offload.LARGE, decode_images, [encoded(picture())], options, "image")
    assert tensor.shape == (1, 3, 2, 2)
    with pytest.raises(CallerError, match="not a JPEG"):
        await offload.run(offload.LARGE, decode_images, [b"?"], options, "image")


def test_files_within_requests() -> None:
    assert file_bytes(b"abc", "x") == b"abc"
    assert file_bytes("YWJj", "x") == b"abc"
    assert file_bytes("data:image/png;base64,YWJj", "x") == b"abc"
    for value in ("https://example.com/a.png", "file:///etc/passwd", "data:image/png,abc", "a b", "é", 7, None):
        with pytest.raises(CallerError, match="`x`"):
            file_bytes(value, "x")

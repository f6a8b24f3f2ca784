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
from adapters.wire.media.images import (
    MAX_COMPRESSED,
    MAX_METADATA,
    MAX_PARTS,
    MAX_PICTURES,
    MAX_SCANS,
    ImageOptions,
    decode_images,
    decoding_cost,
    parts_of,
    target_size,
)

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


def png_with(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG with chunks behind its header."""
    file = encoded(picture())
    added = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return file[:33] + b"".join(added) + file[33:]


def text_bomb() -> bytes:
    return png_with((b"zTXt", b"Comment\0\0" + zlib.compress(b"a" * 100_000_000)))


def jpeg_with(scans: int = 1, metadata: int = 0) -> bytes:
    """A JPEG with so many scans, of which the later ones repeat the last, and with so many bytes of comments."""
    file = encoded(Image.new("L", (16, 16), 128), "JPEG", progressive=scans > 1)
    last, end = file.rfind(b"\xff\xda"), len(file) - 2
    more = file[last:end] * (scans - file.count(b"\xff\xda"))
    comments = b""
    while metadata:
        size = min(metadata, 0xFFFF)
        comments += b"\xff\xfe" + struct.pack(">H", size) + b"\xda\xff" * (size // 2 - 1) + b"x" * (size % 2)
        metadata -= size
    return file[:2] + comments + file[2:end] + more + file[end:]


def webp_with(frames: int = 1, metadata: int = 0) -> bytes:
    """A WebP file, by its structure; its frames are no pictures."""
    parts = [(b"VP8X", struct.pack("<I", 2) + b"\3\0\0\3\0\0"), *[(b"ANMF", b"\0" * 16)] * frames]
    chunks = b"".join(kind + struct.pack("<I", len(data)) + data for kind, data in [*parts, (b"EXIF", bytes(metadata))])
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP" + chunks


def near(most: int) -> st.SearchStrategy[int]:
    """Counts at a limit, and anywhere around it."""
    return st.sampled_from([most, most + 1]) | st.integers(1, 3 * most)


def png_chunks(kind: bytes, data: bytes) -> Any:
    return lambda count: png_with(*[(kind, data)] * count)


LIMITS: dict[str, tuple[int, Any]] = {
    "scans": (MAX_SCANS, jpeg_with),
    "animation": (1, lambda count: png_with(*[(b"fcTL", b"\0" * 26)] * count)),
    "an animation": (1, webp_with),
    "bytes of metadata": (MAX_METADATA // 2**10 - 1, lambda count: jpeg_with(metadata=count * 2**10)),
    "8388608 bytes of metadata": (MAX_METADATA // 2**10, lambda count: webp_with(metadata=count * 2**10)),
    "bytes of": (MAX_METADATA // 2**16, png_chunks(b"tEXt", b"a\0" + b"x" * (2**16 - 2))),
    "compressed texts": (MAX_COMPRESSED, png_chunks(b"zTXt", b"a\0\0" + zlib.compress(b"a" * 1000))),
    "compressed": (MAX_COMPRESSED, png_chunks(b"iTXt", b"a\0\1\0\0\0" + zlib.compress(b"a"))),
    "profiles": (MAX_COMPRESSED, png_chunks(b"iCCP", b"p\0\0" + zlib.compress(b"a" * 1000))),
    "parts": (MAX_PARTS - 3, png_chunks(b"IDAT", b"")),
}
"""By a part of the error: the largest number, and a file of any number."""


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LIMITS)).flatmap(lambda part: st.tuples(st.just(part), near(LIMITS[part][0]))))
def test_a_picture_of_many_parts_is_refused_by_its_header(drawn: tuple[str, int]) -> None:
    part, count = drawn
    most, made = LIMITS[part]
    file = made(count)
    if count <= most:
        assert decoding_cost([file], ImageOptions(), "image") > 0
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(Image, "open")  # nothing is decoded
        for check in (decoding_cost, decode_images):
            with pytest.raises(CallerError, match=part) as caught:
                check([file], ImageOptions(), "image")
            assert caught.value.param == "image"
            assert isinstance(caught.value, TooLarge) == ("animation" not in part)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["PNG", "JPEG", "WEBP"]),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.sampled_from([{}, {"progressive": True}, {"lossless": True}]),
    st.binary(max_size=3000),
)
def test_the_cost_is_that_of_the_decoded_picture(
    kind: str, size: tuple[int, int], options: dict[str, bool], profile: bytes
) -> None:
    file = encoded(Image.new("RGB", size), kind, icc_profile=profile or None, **options)
    parts = parts_of(file)
    assert (parts.width, parts.height) == size
    assert parts.frames == 1
    assert (parts.scans > 1) == (kind == "JPEG" and "progressive" in options)
    assert parts.metadata >= len(profile) * (kind != "PNG")
    assert decoding_cost([file], ImageOptions(), "image") >= 2 * size[0] * size[1]
    assert decoded(file, height=2, width=2).shape == (1, 3, 2, 2)


def test_no_part_of_a_jpeg_hides_its_scans_or_its_size() -> None:
    file = jpeg_with(MAX_SCANS + 1)
    first = file.find(b"\xff\xda")
    for hidden in (b"\xff\xff", b"\xff\x02\x7f\xff", b"\xff\x01\xff\xff", b"\xff\xd0\x7f\xff", b"\0" * 9):
        assert parts_of(file[:first] + hidden + file[first:]).scans > MAX_SCANS
    for junk in (b"\xff" * 2**20, b"\xff\xd0" * 2**20, b"\0" * 2**20):
        assert parts_of(b"\xff\xd8\xff" + junk).parts > MAX_PARTS
    trailing = encoded(picture(), "JPEG")
    assert parts_of(trailing + file).scans == 1  # such as a second picture


def gif(screen: tuple[int, int], before: bytes, frame: tuple[int, int, int, int]) -> bytes:
    """A GIF of one frame (left, top, width, height), with bytes in front of it."""
    return b"GIF89a" + struct.pack("<HH", *screen) + b"\0\0\0" + before + b"," + struct.pack("<4H", *frame) + b"\0\2\0;"


blocks = st.lists(st.binary(max_size=12).map(lambda data: bytes([len(data)]) + data), max_size=3).map(b"".join)
labels = st.sampled_from([b"!\xfe", b"!\xf9", b"!\xff", b"!\xff\x0bNETSCAPE2.0", b"!\1", b"x", b"\0", b",", b"!", b";"])
sides = st.integers(0, 300)


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(sides, sides),
    st.lists(st.tuples(labels, blocks, st.sampled_from([b"\0", b""])).map(b"".join), max_size=4).map(b"".join),
    st.tuples(sides, sides, sides, sides),
)
def test_a_gif_has_the_size_that_its_decoder_sees(
    screen: tuple[int, int], before: bytes, frame: tuple[int, int, int, int]
) -> None:
    file = gif(screen, before, frame)
    parts = parts_of(file)
    try:
        opened = Image.open(io.BytesIO(file), formats=["GIF"])
    except Exception:  # Pillow's parser raises errors of many kinds
        return
    assert (parts.width, parts.height) == opened.size


def test_the_pixels_of_a_gif_are_counted() -> None:
    written: list[dict[str, Any]] = [{}, {"comment": b"c" * 1000}, {"loop": 3}]
    for options in written:
        file = encoded(picture(50, 40).convert("P"), "GIF", **options)
        parts = parts_of(file)
        assert (parts.width, parts.height, parts.frames) == (50, 40, 1)
        assert decoding_cost([file], ImageOptions(), "image") >= 2 * 50 * 40
        assert parts.metadata >= len(options.get("comment", b""))
    hidden = gif((1, 1), b"!\xff\x0bNETSCAPE2.0\0\0", (0, 0, 3000, 2000))
    assert parts_of(hidden)[:2] == (3000, 2000)
    for junk in (b"x" * 2**20, b"!\xfe" + b"\1x" * 2**19, b"!\1\0\0" * 2**18):
        with pytest.raises(TooLarge, match="parts"):
            decoding_cost([gif((1, 1), junk, (0, 0, 1, 1))], ImageOptions(), "image")


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

"""Decodes JPEG, PNG and WebP pictures into one tensor, and these or GIF into pixels alone."""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from adapters.errors import CallerError, TooLarge
from adapters.tensors import Tensor

# Counts the parts of a JPEG, PNG, WebP or GIF file that cost a decoder time. Nothing is decoded.

MAX_PARTS = 16_384
"""Segments or chunks. PNG files of usual encoders have one for each 8 KiB."""
_JPEG, _PNG, _GIF = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", (b"GIF87a", b"GIF89a")
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")
"""Markers of segments, and of the end. Others are data of a scan, or have no segment."""
_EOI, _SOS, _COM = 0xD9, 0xDA, 0xFE
_NO_FRAME = (0xC4, 0xC8, 0xCC)
"""Markers between those of frames that are none: Huffman tables, reserved, arithmetic coding."""
_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"fdAT", b"IEND", b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANMF")
_COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")


class PictureParts(NamedTuple):
    """The parts of one file, at least as many as a decoder finds; after `MAX_PARTS` no more are counted."""

    width: int = 0
    height: int = 0
    scans: int = 1
    """Passes over all pixels of a JPEG."""
    frames: int = 1
    metadata: int = 0
    """Bytes of colour profiles, EXIF, XMP, texts and other parts without pixels, as they are in the file."""
    compressed: int = 0
    """Colour profiles and texts that are compressed on their own."""
    parts: int = 0
    """Segments, chunks or blocks, and bytes that are in none: of a JPEG before its first scan, and of a GIF."""


def parts_of(file: bytes) -> PictureParts:
    """The parts of a file; none of a file of another kind."""
    if file.startswith(_JPEG):
        return _of_jpeg(file)
    if file.startswith(_PNG):
        return _of_chunks(file, _png_chunks(file))
    if file.startswith(b"RIFF") and file[8:12] == b"WEBP":
        return _of_chunks(file, _webp_chunks(file))
    return _of_gif(file) if file.startswith(_GIF) else PictureParts()


def _of_jpeg(file: bytes) -> PictureParts:
    """The parts up to the first end: libjpeg reads no further. (ITU T.81, B.1.1)"""
    width = height = scans = metadata = parts = 0
    at = 2
    while parts <= MAX_PARTS:
        match = _MARKER.search(file, at)
        if not scans:  # Pillow skips each of these bytes on its own
            parts += (len(file) if match is None else match.start()) - at
        if match is None or match[1][0] == _EOI:
            break
        marker, at = match[1][0], match.end()
        parts += 1
        length = int.from_bytes(file[at : at + 2], "big")
        if marker == _SOS:
            scans += 1
        elif marker < _EOI and marker not in _NO_FRAME:
            height, width = (int.from_bytes(file[at + i : at + i + 2], "big") for i in (3, 5))
        elif 0xE0 <= marker <= 0xEF or marker == _COM:
            metadata += length
        at = min(at + length, len(file))
    return PictureParts(width, height, scans, 1, metadata, 0, parts)


def _png_chunks(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The kind, the place and the length of each chunk. (https://www.w3.org/TR/png-3/#5Chunk-layout)"""
    at = len(_PNG)
    while at + 8 <= len(file):
        length, kind = int.from_bytes(file[at : at + 4], "big"), file[at + 4 : at + 8]
        yield kind, at + 8, length
        if kind == b"IEND":
            return
        at += 12 + length


def _webp_chunks(file: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The same of a WebP file. (RFC 9649, 2.3)"""
    at = 12
    while at + 8 <= len(file):
        kind, length = file[at : at + 4], int.from_bytes(file[at + 4 : at + 8], "little")
        yield kind, at + 8, length
        at += 8 + length + length % 2


def _of_chunks(file: bytes, chunks: Iterator[tuple[bytes, int, int]]) -> PictureParts:
    width = height = frames = metadata = compressed = parts = 0
    for kind, at, length in chunks:
        parts += 1
        if parts > MAX_PARTS:
            break
        if not width:
            width, height = _size_in_head(kind, file[at : at + 10])
        frames += kind in (b"fcTL", b"ANMF")
        compressed += kind in _COMPRESSED
        metadata += 0 if kind in _PIXELS else length
    return PictureParts(width, height, 1, max(frames, 1), metadata, compressed, parts)


def _size_in_head(kind: bytes, head: bytes) -> tuple[int, int]:
    """The width and the height in a chunk that has them; otherwise 0."""
    if kind == b"IHDR":
        return int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    if kind == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if kind == b"VP8 ":
        return int.from_bytes(head[6:8], "little") & 0x3FFF, int.from_bytes(head[8:10], "little") & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return 0, 0


def _of_gif(file: bytes) -> PictureParts:
    """The parts up to the first frame, which Pillow enlarges the screen to. It skips bytes that begin no block.
    (https://www.w3.org/Graphics/GIF/spec-gif89a.txt)"""
    width, height = (int.from_bytes(file[at : at + 2], "little") for at in (6, 8))
    flags = int.from_bytes(file[10:11])
    at = 13 + (3 << (flags & 7) + 1 if flags & 128 else 0)
    parts = metadata = 0
    while parts <= MAX_PARTS and (kind := file[at : at + 1]) not in (b"", b";"):
        parts, at = parts + 1, at + 1
        if kind == b",":
            left, top, wide, high = (int.from_bytes(file[at + i : at + i + 2], "little") for i in (0, 2, 4, 6))
            return PictureParts(max(width, left + wide), max(height, top + high), 1, 1, metadata, 0, parts)
        if kind == b"!":
            blocks, end = _gif_extension(file, at, MAX_PARTS - parts + 1)
            parts, metadata, at = parts + blocks, metadata + end - at, end
    return PictureParts(width, height, 1, 1, metadata, 0, parts)


def _gif_extension(file: bytes, at: int, most: int) -> tuple[int, int]:
    """The number of an extension's blocks, at most one more than `most`, and the place where Pillow sees its end."""
    label, blocks = file[at : at + 1], 1
    block, at = _gif_block(file, at + 1)
    if label == b"\xfe" and not block:
        return blocks, at
    if label == b"\xff" and block.startswith(b"NETSCAPE2.0"):
        _, at = _gif_block(file, at)  # the repeats, also where the extension ends without them
    while blocks == 1 or (block and blocks <= most):
        block, at = _gif_block(file, at)
        blocks += 1
    return blocks, at


def _gif_block(file: bytes, at: int) -> tuple[bytes, int]:
    """The data of a block, and the place after it."""
    end = at + 1 + int.from_bytes(file[at : at + 1])
    return file[at + 1 : end], end


MAX_PIXELS = {"JPEG": 24_000_000, "MPO": 24_000_000, "PNG": 24_000_000, "WEBP": 14_000_000, "GIF": 14_000_000}
"""Pixels of one picture before resizing, by its format: with these a worker process stays within its memory."""
MAX_ALL_PIXELS = 96_000_000
"""Pixels of all pictures of one tensor, so that decoding ends in seconds."""
MAX_PICTURES = 64
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of the tensor."""
MAX_SIDE = 16_384
MAX_SCANS = 32
"""Scans of a JPEG. Progressive encoders make 10 to 15; libjpeg leaves a limit to its callers."""
MAX_METADATA = 8 * 1024 * 1024
"""Bytes of colour profile, EXIF, XMP and texts."""
MAX_COMPRESSED = 32
"""Compressed texts and profiles. Pillow decompresses 1 MiB of each at most."""
_FORMATS = ("JPEG", "PNG", "WEBP")
_WITH_GIF = (*_FORMATS, "GIF")
_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS,
}  # fmt: skip
_DTYPES = {"UINT8": np.uint8, "FP16": np.float16, "FP32": np.float32}


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """The tensor that a model expects."""

    height: int | None = None
    """Pixels; None leaves the picture unchanged."""
    width: int | None = None
    fit: Literal["stretch", "crop", "pad"] = "stretch"
    """For `height` and `width`: change the proportions, cut the longer side, or fill with `background`."""
    longest: int | None = None
    """Pixels to which the longer side is reduced, with its proportions."""
    multiple_of: int = 1
    """Sides are rounded to a multiple, for models that halve them repeatedly."""
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    color: Literal["rgb", "bgr", "gray"] = "rgb"
    layout: Literal["chw", "hwc"] = "chw"
    datatype: Literal["UINT8", "FP16", "FP32"] = "FP32"
    scale: float = 1.0
    """Factor of each value of 0 to 255, such as 1/255. Then the mean is subtracted and divided by the deviation."""
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    background: tuple[int, int, int] = (255, 255, 255)
    """Colour behind transparent pixels and beside padded pictures."""


def decoding_cost(files: Sequence[bytes], options: ImageOptions, name: str) -> int:
    """The size of the work for `offload`, from the headers of the files, without decoding.

    A pixel counts as a byte, each scan as an eighth of the pixels. Raises `CallerError` or `TooLarge`.
    """
    cost = 0
    for index, file in enumerate(files):
        parts = _checked(file, _place(files, index, name), name)
        width, height = target_size(max(parts.width, 1), max(parts.height, 1), options)
        cost += parts.width * parts.height * (8 + parts.scans) // 8 + width * height
        cost += parts.compressed * 2**16 + parts.parts * 2**6 + parts.metadata // 2**4
    return cost


def decode_images(files: Sequence[bytes], options: ImageOptions, name: str) -> Tensor:
    """The pictures as one tensor of the shape [pictures, …], by the options. Raises `CallerError` or `TooLarge`.

    Pictures are turned as their EXIF orientation demands. `name` is the name of the tensor and of the input in errors.
    """
    if not files or len(files) > MAX_PICTURES:
        raise CallerError(f"`{name}` has {len(files)} pictures: send 1 to {MAX_PICTURES}.", param=name)
    rows: list[NDArray[np.uint8]] = []
    pixels = 0
    for index, file in enumerate(files):
        place = _place(files, index, name)
        _checked(file, place, name)
        picture = _opened(file, place, name)
        pixels += picture.width * picture.height
        if pixels > MAX_ALL_PIXELS:
            raise TooLarge(f"The pictures of `{name}` have more than {MAX_ALL_PIXELS} pixels.", param=name)
        rows.append(_pixels(_decoded(picture, place, name, _in_rgb), options))
        if rows[-1].shape != rows[0].shape:
            message = f"{place} has the size {_size(rows[-1])}, the first has {_size(rows[0])}: set height and width."
            raise CallerError(message, param=name)
        if sum(row.size for row in rows) * np.dtype(_DTYPES[options.datatype]).itemsize > MAX_BYTES:
            raise TooLarge(f"`{name}` makes a tensor of more than {MAX_BYTES} bytes.", param=name)
    batch = _normalised(np.stack(rows), options)
    if options.layout == "chw":
        batch = batch.transpose(0, 3, 1, 2)
    return Tensor(name, options.datatype, batch.shape, np.ascontiguousarray(batch).tobytes())


def _place(files: Sequence[bytes], index: int, name: str) -> str:
    return f"`{name}`" if len(files) == 1 else f"Picture {index + 1} of `{name}`"


def _checked(file: bytes, place: str, name: str) -> PictureParts:
    """The parts of a file whose decoding is bounded."""
    parts = parts_of(file)
    if parts.frames > 1:
        raise CallerError(f"{place} is an animation: send one frame.", code="invalid_image", param=name)
    for count, most, noun, advice in (
        (parts.scans, MAX_SCANS, "scans", "a baseline JPEG"),
        (parts.metadata, MAX_METADATA, "bytes of metadata", "it without metadata"),
        (parts.compressed, MAX_COMPRESSED, "compressed texts or profiles", "it without metadata"),
        (parts.parts, MAX_PARTS, "parts", "it as another encoder writes it"),
    ):
        if count > most:
            raise TooLarge(f"{place} has more than {most} {noun}: send {advice}.", param=name)
    return parts


def _size(row: NDArray[np.uint8]) -> str:
    return f"{row.shape[1]} × {row.shape[0]}"


def decode_rgb(file: bytes, name: str) -> Image.Image:
    """The picture in RGB, upright, its transparency removed, as transformers' `load_image` returns it.

    Of an animated GIF it is the first frame. Raises `CallerError` or `TooLarge`.
    """
    place = f"`{name}`"
    _checked(file, place, name)
    return _decoded(_opened(file, place, name, _WITH_GIF), place, name, lambda picture: picture.convert("RGB"))


def _opened(file: bytes, place: str, name: str, formats: tuple[str, ...] = _FORMATS) -> Image.Image:
    """The picture with its size, which is checked before anything is decompressed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = Image.open(io.BytesIO(file), formats=formats)
    except Image.DecompressionBombError:
        raise _too_many_pixels(place, name, max(MAX_PIXELS.values())) from None
    except Exception:  # Pillow's plugins raise errors of many kinds for a malformed file
        kinds = "JPEG, PNG, WebP or GIF" if "GIF" in formats else "JPEG, PNG or WebP"
        raise CallerError(f"{place} is not a {kinds} picture.", code="invalid_image", param=name) from None
    kind = picture.format or ""
    if picture.width * picture.height > MAX_PIXELS[kind]:
        raise _too_many_pixels(place, name, MAX_PIXELS[kind])
    return picture


def _decoded(picture: Image.Image, place: str, name: str, in_rgb: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """The picture as `in_rgb` converts it, upright."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture.load()
            return in_rgb(ImageOps.exif_transpose(picture))
    except MemoryError:
        raise
    except Exception:
        message = f"{place} is truncated or damaged."
        raise CallerError(message, code="invalid_image", param=name) from None


def _too_many_pixels(place: str, name: str, limit: int) -> TooLarge:
    return TooLarge(f"{place} has more than {limit} pixels.", param=name)


def _in_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I") or picture.mode == "F":  # 16 bits a pixel
        values = np.asarray(picture).astype(np.int64) >> 8
        return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        return picture.convert("RGBA")
    return picture.convert("RGB")


def _pixels(picture: Image.Image, options: ImageOptions) -> NDArray[np.uint8]:
    """The resized picture: height × width × channels."""
    if picture.mode == "RGBA":
        behind = Image.new("RGBA", picture.size, (*options.background, 255))
        picture = Image.alpha_composite(behind, picture).convert("RGB")
    picture = _resized(picture, options)
    if options.color == "gray":
        return np.asarray(picture.convert("L"))[..., None]
    pixels = np.asarray(picture)
    return pixels[..., ::-1] if options.color == "bgr" else pixels


def _resized(picture: Image.Image, options: ImageOptions) -> Image.Image:
    resample = _RESAMPLING[options.resample]
    width, height = target_size(picture.width, picture.height, options)
    if (width, height) == picture.size:
        return picture
    if options.height is None or options.width is None or options.fit == "stretch":
        return picture.resize((width, height), resample)
    if options.fit == "crop":
        return ImageOps.fit(picture, (width, height), resample)
    return ImageOps.pad(picture, (width, height), resample, color=options.background)


def target_size(width: int, height: int, options: ImageOptions) -> tuple[int, int]:
    """The width and the height of the tensor for a picture of this size."""
    if options.height is not None and options.width is not None:
        return options.width, options.height
    if options.height is not None:
        width, height = round(width * options.height / height), options.height
    elif options.width is not None:
        width, height = options.width, round(height * options.width / width)
    if options.longest is not None and max(width, height) > options.longest:
        factor = options.longest / max(width, height)
        width, height = round(width * factor), round(height * factor)
    step = options.multiple_of

    def fitted(side: int) -> int:
        return min(max(round(side / step), 1) * step, max(MAX_SIDE // step, 1) * step)

    return fitted(width), fitted(height)


def _normalised(batch: NDArray[np.uint8], options: ImageOptions) -> NDArray[np.uint8 | np.floating]:
    if options.datatype == "UINT8":
        return batch
    values = batch.astype(np.float32)
    if options.scale != 1.0:
        values *= np.float32(options.scale)
    if any(options.mean) or set(options.deviation) != {1.0}:
        values -= np.array(options.mean, np.float32)
        values /= np.array(options.deviation, np.float32)
    return values.astype(_DTYPES[options.datatype])

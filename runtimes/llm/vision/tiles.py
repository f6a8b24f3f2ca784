"""A picture's file as tiles of pixels, bit for bit as transformers' Idefics3ImageProcessorPil cuts it.

Files come from clients, so these functions run in a worker process (`adapters.offload`), and import no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import NamedTuple

import numpy as np
from PIL import Image

from adapters.wire.media.encoded import file_bytes
from adapters.wire.media.images import ImageOptions, decode_rgb, decoding_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class TileSettings:
    """Sides are in pixels."""

    tile: int
    """The side of a tile."""
    longest: int
    """The longest side of a picture before it is cut."""
    splits: bool
    resample: int
    """A number of Pillow's."""

    @property
    def most_tiles(self) -> int:
        """Tiles of one picture."""
        return (-(-self.longest // self.tile)) ** 2 + 1 if self.splits else 1

    @property
    def work(self) -> int:
        """Pixels that cutting one picture costs, of any size."""
        return _RESIZES * self.most_tiles * self.tile**2


_RESIZES = 3
"""A picture is enlarged, enlarged to whole tiles, and made one tile."""


class TiledPicture(NamedTuple):
    """The tiles of one picture, row by row; the last one is the whole picture. Without `rows` it is the only one."""

    rows: int
    columns: int
    pixels: list[bytes]
    """Of each tile: tile × tile × RGB."""
    digests: list[bytes]


def file_of(url: bytes, settings: TileSettings, name: str) -> tuple[bytes, int]:
    """The file in a `data:` URL or base64, and the size of the work to cut it. Raises CallerError, TooLarge."""
    file = file_bytes(url.decode(), name)
    cost = decoding_cost([file], ImageOptions(), name)
    return file, cost + settings.work


def tiled(file: bytes, settings: TileSettings, name: str) -> TiledPicture:
    """The picture's tiles. Raises CallerError, TooLarge. `name` is that of the file in errors."""
    filter = Image.Resampling(settings.resample)
    picture = decode_rgb(file, name)
    picture = picture.resize(_enlarged(*picture.size, settings.longest), filter)
    side = settings.tile
    if settings.splits:
        picture = picture.resize(_whole_tiles(*picture.size, side), filter)
    rows, columns = picture.height // side, picture.width // side
    if not settings.splits or rows == columns == 1:
        rows = columns = 0
    whole = picture if picture.size == (side, side) else picture.resize((side, side), filter)
    tiles = [*_cut(picture, rows, columns, side), whole]
    pixels = [np.asarray(tile).tobytes() for tile in tiles]
    return TiledPicture(rows, columns, pixels, [blake2b(tile, digest_size=16).digest() for tile in pixels])


def _cut(picture: Image.Image, rows: int, columns: int, side: int) -> Iterator[Image.Image]:
    for top in range(0, rows * side, side):
        for left in range(0, columns * side, side):
            yield picture.crop((left, top, left + side, top + side))


def _enlarged(width: int, height: int, longest: int) -> tuple[int, int]:
    """The longer side becomes `longest`, and the other an even number. (`_resize_output_size_rescale_to_max_len`)"""
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    return max(width, 1), max(height, 1)


def _whole_tiles(width: int, height: int, side: int) -> tuple[int, int]:
    """Both sides become multiples of `side`. (`resize_for_vision_encoder`)"""
    ratio = width / height
    if width >= height:
        width = ceil(width / side) * side
        return width, ceil(int(width / ratio) / side) * side
    height = ceil(height / side) * side
    return ceil(int(height * ratio) / side) * side, height

"""The pictures of chats: from parts of messages to rows in the place of a prompt's embeddings.

Files are decoded in a worker process. The encoder computes in a thread, tile after tile, and tenants take turns. A
conversation sends its pictures with every turn, so the rows of the last ones stay in memory.
"""

import functools
from collections import Counter, OrderedDict
from collections.abc import Sequence

from torch import Tensor

from adapters import offload
from adapters.errors import CallerError, CapacityError, TooLarge
from runtimes.llm.api.encoding_thread import INLINE, EncodingThread
from runtimes.llm.api.messages import PicturePart
from runtimes.llm.memory import OutOfMemory, ran_out
from runtimes.llm.picture_rows import PictureRows
from runtimes.llm.vision.prompts import PicturePrompts
from runtimes.llm.vision.tiles import TiledPicture, file_of, tiled
from runtimes.llm.vision.tower import VisionTower

MAX_PICTURES = 64
"""Pictures of one request."""
MAX_WORK = 128_000_000
"""Pixels that the pictures of one request may cost."""
MAX_HELD = 1 << 30
"""Bytes that the pictures of all requests may take. A tenant's may take half of what those of others leave."""
MAX_CACHED = 1 << 28
"""Bytes of the rows that outlive their request."""
_NUMBER = 4


class PictureReader:
    """Reads pictures for one model. It belongs to one event loop."""

    def __init__(self, tower: VisionTower, prompts: PicturePrompts) -> None:
        self._tower = tower
        self.prompts = prompts
        self._thread = EncodingThread()
        self._cache: OrderedDict[tuple[bytes, bytes], Tensor] = OrderedDict()
        self._cached = 0
        self._held = Counter[str]()
        """By tenant. None has 0 bytes."""
        settings = tower.settings
        self.tile_bytes = settings.tiles.tile**2 * 3 + settings.rows * settings.text_hidden * _NUMBER
        """Bytes of a tile, as pixels and as rows."""
        self.least_tokens = settings.rows
        """The fewest tokens of a picture."""

    @property
    def held(self) -> int:
        """Bytes that the pictures of all requests take."""
        return self._held.total()

    async def read(self, parts: Sequence[PicturePart]) -> "RequestPictures":
        """The pictures of a request, decoded. Raises CallerError, or CapacityError if memory is full."""
        most, reserved = self._most(), self._tower.settings.tiles.most_tiles
        if len(parts) > most:
            message = f"`{parts[most].param}` is one picture too many: send {most} at most."
            raise CallerError(message, param=parts[most].param)
        pictures = RequestPictures(self, offload.TENANT.get(), len(parts) * reserved * self.tile_bytes)
        try:
            work = 0
            for number, part in enumerate(parts, start=1):
                picture, cost = await self._tiled(part, number, MAX_WORK - work)
                work += cost
                pictures.add(picture, (reserved - len(picture.pixels)) * self.tile_bytes)
        except BaseException:
            pictures.release()
            raise
        return pictures

    def _most(self) -> int:
        """Pictures of one request."""
        tiles = self._tower.settings.tiles
        return max(min(MAX_PICTURES, MAX_HELD // 2 // (tiles.most_tiles * self.tile_bytes), MAX_WORK // tiles.work), 1)

    async def _tiled(self, part: PicturePart, number: int, left: int) -> tuple[TiledPicture, int]:
        settings, url = self._tower.settings.tiles, part.url.encode(errors="replace")
        try:
            file, cost = await offload.run(len(url), file_of, url, settings, part.param)
            if cost > left:
                raise TooLarge(f"`{part.param}` and the pictures before it have too many pixels.")
            return await offload.decode_file(offload.PICTURE, cost, tiled, file, settings, part.param), cost
        except CallerError as error:
            code = "invalid_image" if isinstance(error, TooLarge) else error.code
            # The part by its number: the field has another name in other APIs.
            message = f"Picture {number} of the request: {error.message}"
            raise CallerError(message, code=code, param=part.param) from None

    async def rows_of(self, pictures: Sequence[TiledPicture], salt: bytes) -> list[Tensor]:
        """The rows of all tiles. Only requests of the same `salt` share computed ones."""
        rows: list[Tensor] = []
        for picture in pictures:
            for digest, pixels in zip(picture.digests, picture.pixels, strict=True):
                rows.append(await self._rows((salt, digest), pixels))
        return rows

    async def _rows(self, key: tuple[bytes, bytes], pixels: bytes) -> Tensor:
        if (cached := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return cached
        try:
            rows = await self._thread.run(INLINE + 1, functools.partial(self._computed, key, pixels))
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            raise OutOfMemory() from error
        if key not in self._cache:
            self._cached += rows.nbytes
        self._cache[key] = rows
        while self._cached > MAX_CACHED:
            self._cached -= self._cache.popitem(last=False)[1].nbytes
        return rows

    def _computed(self, key: tuple[bytes, bytes], pixels: bytes) -> Tensor:
        """The rows; another request may have computed them while this one waited for the thread."""
        cached = self._cache.get(key)
        return self._tower.rows(pixels) if cached is None else cached

    def take(self, tenant: str, size: int) -> None:
        """Count bytes of a tenant's request. Raises CapacityError if its requests, or all together, have too many."""
        own = self._held[tenant]
        if own + size > (MAX_HELD - self.held + own) // 2:
            raise CapacityError("Too many pictures are being read: try again later.", retry_after=1.0)
        self._held[tenant] += size

    def give(self, tenant: str, size: int) -> None:
        """Count bytes of a request no more."""
        self._held[tenant] -= size
        if not self._held[tenant]:
            del self._held[tenant]


class RequestPictures:
    """The pictures of one request. They count as memory until `release`, which may be called again."""

    def __init__(self, reader: PictureReader, tenant: str, size: int) -> None:
        reader.take(tenant, size)
        self.tiles: list[TiledPicture] = []
        self._reader = reader
        self._tenant = tenant
        self._size = size
        self._places: list[int] = []

    def add(self, picture: TiledPicture, spared: int) -> None:
        """Add a picture, which takes less than what was reserved for it by `spared` bytes."""
        self.tiles.append(picture)
        self._shrink(self._size - spared)

    def placed_in(self, prompt: Sequence[int]) -> list[int]:
        """The prompt with the tokens of all pictures. Raises CallerError if the template has left one out."""
        prompt, self._places = self._reader.prompts.expanded(prompt, self.tiles)
        return prompt

    async def rows(self, salt: bytes) -> PictureRows:
        """The rows in the prompt's places. The pixels are dropped."""
        rows = await self._reader.rows_of(self.tiles, salt)
        digests = [digest for picture in self.tiles for digest in picture.digests]
        self.tiles.clear()
        self._shrink(sum(one.nbytes for one in rows))
        return PictureRows(len(rows[0]), tuple(self._places), tuple(digests), tuple(rows))

    def release(self) -> None:
        self.tiles.clear()
        self._shrink(0)

    def _shrink(self, size: int) -> None:
        self._reader.give(self._tenant, self._size - size)
        self._size = size

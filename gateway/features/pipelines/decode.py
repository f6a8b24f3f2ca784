"""The node `decode`: pictures and sound as tensors."""

from adapters import offload
from adapters.errors import CallerError
from adapters.tensors import Tensor, element_count, split_bytes
from adapters.wire.media import images, sound
from adapters.wire.media.encoded import file_bytes
from config.schema.pipelines.leaves import DecodeConfig
from gateway.features.pipelines.scope import FreeNode, Output, StepScope
from gateway.features.pipelines.values import Value

MAX_FILES = 64
_ENCODED = (b"data:", b"/9j/", b"iVBOR", b"UklGR")
"""The beginnings of a data URL, and of JPEG, PNG, WebP and WAV files in base64."""


class DecodeNode(FreeNode):
    """Decodes each input in a worker process, which a malformed file may crash without any other effect."""

    def __init__(self, config: DecodeConfig) -> None:
        self._image = None if config.image is None else images.ImageOptions(**dict(config.image))
        self._sound = None if config.sound is None else sound.SoundOptions(**dict(config.sound))

    async def run(self, scope: StepScope) -> Output:
        inputs = scope.inputs or {}
        return Output({name: await self._decoded(files_of(value, name), name) for name, value in inputs.items()})

    async def _decoded(self, files: list[bytes], name: str) -> Tensor:
        if (options := self._image) is not None:
            cost = await offload.run(sum(map(len, files)), images.decoding_cost, files, options, name)
            return await offload.decode_file(offload.PICTURE, cost, images.decode_images, files, options, name)
        assert self._sound is not None
        if len(files) != 1:
            raise CallerError(f"`{name}` has {len(files)} files: send one WAV file.", param=name)
        cost = sound.decoding_cost(files[0], self._sound, name)
        return await offload.decode_file(offload.SOUND, cost, sound.decode_wav, files[0], self._sound, name)


def files_of(value: Value, name: str) -> list[bytes]:
    """The files of a value: a tensor of BYTES or of the bytes of one file, or base64 texts. Raises `CallerError`."""
    if isinstance(value, Tensor):
        if value.datatype in ("UINT8", "INT8"):
            return [bytes(value.data)]
        if value.datatype != "BYTES":
            raise CallerError(f"`{name}` is a tensor of {value.datatype}: send files as BYTES or UINT8.", param=name)
        count = element_count(value.shape)
        _limit(count, name)
        return [_file(element, name) for element in split_bytes(value.data, count, name)]
    values = value if isinstance(value, list) else [value]
    _limit(len(values), name)
    return [file_bytes(_url(each), name) for each in values]


def _limit(count: int, name: str) -> None:
    if not 1 <= count <= MAX_FILES:
        raise CallerError(f"`{name}` has {count} files: send 1 to {MAX_FILES}.", param=name)


def _file(element: bytes, name: str) -> bytes:
    """An element of BYTES: a file, or a file in base64, which JSON requires."""
    return file_bytes(element.decode("latin-1") if element.startswith(_ENCODED) else element, name)


def _url(value: Value) -> Value:
    """The URL of an `image_url` of a chat; any other value is unchanged."""
    return value.get("url") if isinstance(value, dict) else value

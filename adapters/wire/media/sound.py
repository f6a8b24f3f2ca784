"""Decodes WAV files into one tensor (RIFF WAVE:
https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html)."""

import struct
from dataclasses import dataclass
from math import gcd
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import CallerError, TooLarge
from adapters.tensors import Tensor

MAX_SAMPLES = 48_000 * 60 * 10
"""Samples of one file, over all channels: 10 minutes at 48 kHz."""
MAX_CHANNELS = 16
MAX_RATE = 384_000
MIN_RATE = 1_000
_MAX_CHUNKS = 64
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN_SIZE = 0xFFFFFFFF
"""The size of samples in a file that was streamed."""


@dataclass(frozen=True, slots=True)
class SoundOptions:
    """The tensor that a model expects."""

    rate: int | None = None
    """Samples a second; None leaves the file's rate unchanged."""
    mono: bool = True
    """The mean of all channels: the shape [1, samples] instead of [1, channels, samples]."""
    datatype: Literal["INT16", "FP32"] = "FP32"
    """FP32: from -1 to 1."""


class _Format(NamedTuple):
    kind: int
    channels: int
    rate: int
    bits: int


def decoding_cost(file: bytes, options: SoundOptions, name: str) -> int:
    """The size of the work for `offload`: a sample, before and after resampling, counts as a byte.

    Raises `CallerError`.
    """
    layout, data = _parts(file, name)
    samples = len(data) * 8 // layout.bits
    return samples + (0 if options.rate is None else samples * options.rate // layout.rate)


def decode_wav(file: bytes, options: SoundOptions, name: str) -> Tensor:
    """The sound as a tensor of the shape [1, samples] or [1, channels, samples]. Raises `CallerError` or `TooLarge`.

    `name` is the name of the tensor and of the input in errors. Supported are PCM of 8, 16, 24 and 32 bits, and floats
    of 32 and 64 bits.
    """
    layout, data = _parts(file, name)
    samples = _samples(layout, data, name)
    if options.mono:
        samples = samples.mean(axis=0, keepdims=True, dtype=np.float32)
    if options.rate is not None:
        if samples.size * options.rate > MAX_SAMPLES * layout.rate:
            raise TooLarge(f"`{name}` has more than {MAX_SAMPLES} samples at {options.rate} Hz.", param=name)
        samples = resample(samples, layout.rate, options.rate)
    if options.datatype == "INT16":
        values = np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2")
    else:
        values = samples.astype("<f4")
    shaped = values if options.mono else values[None]
    return Tensor(name, options.datatype, shaped.shape, np.ascontiguousarray(shaped).tobytes())


def _parts(file: bytes, name: str) -> tuple[_Format, memoryview]:
    """The format and the samples. Raises `CallerError`."""
    if len(file) < 12 or file[:4] != b"RIFF" or file[8:12] != b"WAVE":
        raise CallerError(f"`{name}` is not a WAV file.", code="invalid_audio", param=name)
    view, at, layout = memoryview(file), 12, None
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(file):
            break
        kind, size = bytes(view[at : at + 4]), struct.unpack_from("<I", file, at + 4)[0]
        at += 8
        if kind == b"fmt ":
            layout = _format(bytes(view[at : at + min(size, 40)]), name)
        elif kind == b"data":
            if layout is None:
                break
            present = len(file) - at
            size = present if size == _UNKNOWN_SIZE else size
            if size > present:
                message = f"`{name}` is truncated: {size} bytes of samples are declared, {present} are present."
                raise CallerError(message, code="invalid_audio", param=name)
            return layout, view[at : at + size]
        at += size + size % 2
    raise CallerError(f"`{name}` is a WAV file without a format or without samples.", code="invalid_audio", param=name)


def _format(chunk: bytes, name: str) -> _Format:
    if len(chunk) < 16:
        raise CallerError(f"`{name}` has a truncated WAV header.", code="invalid_audio", param=name)
    kind, channels, rate, _, align, bits = struct.unpack_from("<HHIIHH", chunk)
    if kind == _EXTENSIBLE and len(chunk) >= 26:
        kind = struct.unpack_from("<H", chunk, 24)[0]
    widths = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}.get(kind, ())
    if bits not in widths:
        message = f"`{name}` has the encoding {kind} with {bits} bits: send PCM of 8 to 32 bits, or floats."
        raise CallerError(message, code="invalid_audio", param=name)
    if not 1 <= channels <= MAX_CHANNELS or not MIN_RATE <= rate <= MAX_RATE or align != channels * bits // 8:
        message = f"`{name}` has an invalid WAV header: {channels} channels, {rate} Hz, {align} bytes a frame."
        raise CallerError(message, code="invalid_audio", param=name)
    return _Format(kind, channels, rate, bits)


def _samples(layout: _Format, data: memoryview, name: str) -> NDArray[np.float32]:
    """The samples as floats [channels, n] from -1 to 1."""
    frame = layout.channels * layout.bits // 8
    count = len(data) // frame
    if count * layout.channels > MAX_SAMPLES:
        raise TooLarge(f"`{name}` has more than {MAX_SAMPLES} samples.", param=name)
    if not count:
        raise CallerError(f"`{name}` has no samples.", code="invalid_audio", param=name)
    flat = _floats(layout, data[: count * frame])
    if not np.isfinite(flat).all():
        message = f"`{name}` has samples that are not finite numbers."
        raise CallerError(message, code="invalid_audio", param=name)
    return np.ascontiguousarray(flat.reshape(count, layout.channels).T)


def _floats(layout: _Format, data: memoryview) -> NDArray[np.float32]:
    if layout.kind == _FLOAT:
        return np.frombuffer(data, f"<f{layout.bits // 8}").astype(np.float32)
    if layout.bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - np.float32(128)) / np.float32(128)
    if layout.bits == 24:
        bytes_ = np.frombuffer(data, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(bytes_), 4), np.uint8)
        wide[:, 1:] = bytes_
        return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    return np.frombuffer(data, f"<i{layout.bits // 8}").astype(np.float32) / np.float32(2 ** (layout.bits - 1))


# Changes the sampling rate of sound.

_CROSSINGS = 16
"""Zero crossings of the kernel on each side."""
_BLOCK = 1024 * 1024
"""Products of samples and weights that are computed at once."""


def resample(samples: NDArray[np.float32], rate: int, target: int) -> NDArray[np.float32]:
    """Samples [channels, n] at another rate, by a sinc kernel with a Hann window.

    The kernel removes frequencies that the new rate cannot represent (Smith, Digital Audio Resampling,
    https://ccrma.stanford.edu/~jos/resample/). The result has ceil(n · target / rate) samples.
    """
    if rate == target or not samples.shape[1]:
        return samples
    up, down = target // gcd(rate, target), rate // gcd(rate, target)
    weights, reach = _weights(up, down)
    count = -(-samples.shape[1] * up // down)
    padded = np.pad(samples, ((0, 0), (reach, reach + 1)))
    result = np.empty((samples.shape[0], count), np.float32)
    taps, step = np.arange(1, 2 * reach + 1), max(_BLOCK // (2 * reach), 1)
    for begin in range(0, count, step):
        places = np.arange(begin, min(begin + step, count)) * down
        taken = padded[:, (places // up)[:, None] + taps]
        result[:, begin : begin + len(places)] = np.einsum("ctk,tk->ct", taken, weights[places % up])
    return result


def _weights(up: int, down: int) -> tuple[NDArray[np.float32], int]:
    """The kernel for each of the `up` phases of a new sample between two old ones, and its reach in old samples."""
    cutoff = min(1.0, up / down)
    reach = int(np.ceil(_CROSSINGS / cutoff))
    offsets = np.arange(-reach + 1, reach + 1)
    weights = np.empty((up, 2 * reach), np.float32)
    for begin in range(0, up, 4096):
        phases = np.arange(begin, min(begin + 4096, up)) / up
        distance = phases[:, None] - offsets
        window = np.cos(np.pi * np.clip(distance / reach, -1, 1) / 2) ** 2
        weights[begin : begin + 4096] = cutoff * np.sinc(cutoff * distance) * window
    return weights, reach

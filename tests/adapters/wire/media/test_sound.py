"""WAV files as tensors; files that are truncated, of another kind or of another format than declared."""

import io
import struct
import wave
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError, TooLarge
from adapters.wire.media.sound import MAX_SAMPLES, SoundOptions, decode_wav, resample


def wav(kind: int, channels: int, rate: int, bits: int, data: bytes, *, size: int | None = None) -> bytes:
    align = channels * bits // 8
    layout = struct.pack("<HHIIHH", kind, channels, rate, rate * align % 2**32, align, bits)
    head = b"fmt " + struct.pack("<I", len(layout)) + layout + b"LIST\x01\0\0\0x\0"
    body = head + b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def decoded(file: bytes, **options: Any) -> np.ndarray[Any, Any]:
    tensor = decode_wav(file, SoundOptions(**options), "sound")
    return np.frombuffer(tensor.data, "<i2" if tensor.datatype == "INT16" else "<f4").reshape(tensor.shape)


SAMPLES = np.array([0.0, 0.5, -0.5, -1.0, 0.25], np.float32)


@pytest.mark.parametrize(
    ("kind", "bits", "data"),
    [
        (1, 8, (SAMPLES * 128 + 128).astype(np.uint8).tobytes()),
        (1, 16, (SAMPLES * 2**15).astype("<i2").tobytes()),
        (1, 24, b"".join(int(v * 2**23).to_bytes(3, "little", signed=True) for v in SAMPLES)),
        (1, 32, (SAMPLES.astype(float) * 2**31).astype("<i4").tobytes()),
        (3, 32, SAMPLES.astype("<f4").tobytes()),
        (3, 64, SAMPLES.astype("<f8").tobytes()),
    ],
)
def test_every_encoding_is_exact(kind: int, bits: int, data: bytes) -> None:
    assert (decoded(wav(kind, 1, 16000, bits, data)) == SAMPLES[None]).all()


def test_a_file_of_the_standard_library() -> None:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([[1000, 3000], [-1000, -3000]], "<i2").tobytes())
    assert decoded(out.getvalue(), datatype="INT16").tolist() == [[2000, -2000]]
    assert decoded(out.getvalue(), datatype="INT16", mono=False).tolist() == [[[1000, -1000], [3000, -3000]]]


def test_a_streamed_file_has_no_size() -> None:
    file = wav(1, 1, 16000, 16, b"\1\0\2\0", size=0xFFFFFFFF)
    assert decoded(file, datatype="INT16").tolist() == [[1, 2]]


@pytest.mark.parametrize(("rate", "target"), [(48000, 16000), (8000, 16000), (44100, 16000), (16000, 44100)])
def test_a_tone_stays_the_same_at_another_rate(rate: int, target: int) -> None:
    def tone(at: int) -> np.ndarray[Any, Any]:
        return np.sin(2 * np.pi * 440 * np.arange(at // 4) / at).astype(np.float32)

    result = resample(tone(rate)[None], rate, target)[0]
    expected = tone(target)[: len(result)]
    assert abs(len(result) - target // 4) <= 1
    middle = slice(target // 50, -target // 50)
    assert np.abs(result[: len(expected)][middle] - expected[middle]).max() < 2e-3


def test_frequencies_beyond_the_new_rate_are_removed() -> None:
    tone = np.sin(2 * np.pi * 12_000 * np.arange(12_000) / 48_000).astype(np.float32)
    assert np.abs(resample(tone[None], 48_000, 16_000)[0, 200:-200]).max() < 0.01


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "not a WAV file"),
        (b"RIFF\0\0\0\0WAVE", "without a format"),
        (b"OggS" + b"\0" * 40, "not a WAV file"),
        (wav(1, 1, 16000, 16, b"\0" * 10, size=100), "truncated: 100 bytes"),
        (wav(1, 1, 16000, 16, b""), "no samples"),
        (wav(6, 1, 16000, 8, b"\0\0"), "has the encoding 6"),
        (wav(1, 1, 16000, 12, b"\0\0"), "12 bits"),
        (wav(1, 0, 16000, 16, b"\0\0"), "0 channels"),
        (wav(1, 99, 16000, 16, b"\0\0"), "99 channels"),
        (wav(1, 1, 0, 16, b"\0\0"), "0 Hz"),
        (wav(1, 1, 2**31, 16, b"\0\0"), "2147483648 Hz"),
        (wav(3, 1, 16000, 32, struct.pack("<f", float("nan"))), "not finite"),
        (wav(1, 1, 16000, 16, b"\0\0")[:30], "truncated WAV header"),
    ],
)
def test_files_that_are_no_usable_sound(file: bytes, message: str) -> None:
    with pytest.raises(CallerError) as caught:
        decoded(file)
    assert message in caught.value.message
    assert caught.value.param == "sound"


def test_sound_that_is_too_long() -> None:
    with pytest.raises(TooLarge, match="samples"):
        decoded(wav(1, 1, 16000, 8, bytes(MAX_SAMPLES + 1)))
    with pytest.raises(TooLarge, match="at 384000 Hz"):
        decoded(wav(1, 1, 1000, 8, bytes(1_000_000)), rate=384_000)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=4)), max_size=5),
    st.integers(0, 120),
    st.sampled_from([None, 16000]),
)
def test_damaged_files_are_refused_or_decoded(changes: list[tuple[int, bytes]], cut: int, rate: int | None) -> None:
    file = bytearray(wav(1, 2, 8000, 16, bytes(60)))
    for at, data in changes:
        file[at : at + len(data)] = data
    try:
        result = decoded(bytes(file[:cut]), rate=rate)
    except CallerError as error:
        assert error.param == "sound"  # noqa: PT017
        return
    assert result.shape[0] == 1
    assert np.isfinite(result).all()

"""Compressed bodies: read within a bound, and written as the client takes them."""

import gzip
import itertools
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError, TooLarge
from adapters.wire import compression

CODINGS = ["gzip", "deflate"] + (["zstd"] if "zstd" in compression.SUPPORTED else [])


@pytest.mark.parametrize("coding", CODINGS)
@given(body=st.binary(max_size=200))
def test_bodies_survive_compression_and_decompression(coding: str, body: bytes) -> None:
    packed = compression.compress(body, coding)
    assert compression.decompress(packed, f" {coding.upper()} ", len(body)) == body
    if body:
        with pytest.raises(TooLarge, match="when it is decompressed"):
            compression.decompress(packed, coding, len(body) - 1)


def test_deflate_without_its_header_is_read_too() -> None:
    encoder = zlib.compressobj(wbits=-15)
    assert compression.decompress(encoder.compress(b"abc") + encoder.flush(), "deflate", 10) == b"abc"


def test_bodies_of_other_compressors_are_read() -> None:
    assert compression.decompress(gzip.compress(b"abc"), "gzip", 10) == b"abc"
    assert compression.decompress(b"abc", "identity", 10) == b"abc"
    assert gzip.decompress(compression.compress(b"abc", "gzip")) == b"abc"


@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=9), cuts=st.lists(st.integers(0, 3000), max_size=9))
def test_a_gzip_body_may_have_several_members(parts: list[bytes], cuts: list[int]) -> None:
    packed, whole = b"".join(map(gzip.compress, parts)), b"".join(parts)
    assert compression.decompress(packed, "gzip", len(whole)) == whole
    inflater = compression.Inflater("gzip")
    at = sorted({0, len(packed), *(cut for cut in cuts if cut < len(packed))})
    assert b"".join(inflater.feed(packed[a:b]) for a, b in itertools.pairwise(at)) == whole
    inflater.finish()
    for broken in (packed[:-1], packed + b"m", packed + b"more" * 100):
        with pytest.raises(CallerError, match="not valid gzip"):
            compression.decompress(broken, "gzip", len(whole))
    if whole:
        with pytest.raises(TooLarge):
            compression.decompress(packed, "gzip", len(whole) - 1)


def test_a_gzip_body_of_very_many_members_is_refused() -> None:
    with pytest.raises(CallerError, match="not valid gzip"):
        compression.decompress(gzip.compress(b"") * (compression.MAX_MEMBERS + 1), "gzip", 10)


@pytest.mark.parametrize("coding", CODINGS)
@given(noise=st.binary(max_size=40))
def test_noise_is_refused(coding: str, noise: bytes) -> None:
    try:
        out = compression.decompress(noise, coding, 1000)
    except (CallerError, TooLarge):
        return
    assert isinstance(out, bytes)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("size", [6, 600, 100_000])
def test_bodies_that_end_too_early_or_too_late(coding: str, size: int) -> None:
    body = random.Random(size).randbytes(size)
    packed = compression.compress(body, coding)
    assert compression.decompress(packed, coding, size) == body
    for broken in (b"", packed[:-1], packed[: len(packed) // 2], packed + b"m", packed + b"more" * 100):
        with pytest.raises(CallerError, match=f"not valid {coding}"):
            compression.decompress(broken, coding, size)


@pytest.mark.parametrize("coding", CODINGS)
def test_a_bomb_is_refused_without_unpacking_it(coding: str) -> None:
    bomb = compression.compress(bytes(50_000_000), coding)
    with pytest.raises(TooLarge):
        compression.decompress(bomb, coding, 1000)


@pytest.mark.parametrize("coding", ["lzma", "gzip, gzip", "compress", "x" * 100])
def test_the_error_of_another_coding_lists_the_supported_ones(coding: str) -> None:
    with pytest.raises(CallerError, match="Send one of: gzip, deflate") as caught:
        compression.decompress(b"", coding, 10)
    assert caught.value.code == "unsupported_media_type"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (None, None),
        ("", None),
        ("gzip", "gzip"),
        ("deflate, gzip;q=0.5", "deflate"),
        ("GZIP;q=0.5, deflate ; q=0.5", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=x", None),
        ("br", None),
        ("identity", None),
        ("deflate;level=1", "deflate"),
    ],
)
def test_the_client_chooses(accepted: str | None, coding: str | None) -> None:
    assert compression.chosen(accepted) == coding


def test_any_coding_will_do() -> None:
    assert compression.chosen("*") in CODINGS
    assert compression.chosen("gzip;q=0, deflate;q=0, zstd;q=0, *") is None

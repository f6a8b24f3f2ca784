"""Header blocks, against another implementation and against nonsense."""

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.http2.fields import STATIC, Decoder, TooManyFields, encode
from adapters.http2.frames import ErrorCode, Violation

LIMIT = 1 << 20
names = st.one_of(
    st.sampled_from([name for name, _ in STATIC]), st.text("abcxyz-0123", min_size=1, max_size=40).map(str.encode)
)
values = st.one_of(st.sampled_from([value for _, value in STATIC]), st.binary(max_size=300))
Sent = list[tuple[bytes, bytes, bool]]
"""Fields, and whether they are never to be indexed."""
lists = st.lists(st.tuples(names, values, st.booleans()), max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(lists, max_size=8), st.booleans(), st.lists(st.integers(0, 4096), max_size=8))
def test_blocks_of_another_encoder_are_decoded(blocks: list[Sent], huffman: bool, sizes: list[int]) -> None:
    encoder, decoder = hpack.Encoder(), Decoder()
    for i, fields in enumerate(blocks):
        if i < len(sizes):
            encoder.header_table_size = sizes[i]
        block = encoder.encode(fields, huffman=huffman)
        assert decoder.decode(block, LIMIT) == [(name, value) for name, value, _ in fields]


@settings(max_examples=60, deadline=None)
@given(lists)
def test_our_blocks_are_decoded_by_another_decoder_and_leave_its_table_alone(
    fields: Sent,
) -> None:
    plain = [(name, value) for name, value, _ in fields]
    decoder = hpack.Decoder(LIMIT)
    block = encode(plain)
    assert [tuple(field) for field in decoder.decode(block, raw=True)] == plain
    assert not decoder.header_table.dynamic_entries
    ours = Decoder()
    assert ours.decode(block, LIMIT) == plain
    assert ours.changes == 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_noise_is_read_alike_or_refused(block: bytes) -> None:
    try:
        expected = [tuple(field) for field in hpack.Decoder(LIMIT).decode(block, raw=True)]
    except (hpack.HPACKError, IndexError):
        with pytest.raises(Violation) as caught:
            Decoder().decode(block, LIMIT)
        assert caught.value.code is ErrorCode.COMPRESSION_ERROR
    else:
        assert Decoder().decode(block, LIMIT) == expected


def test_changes_count_updates_that_alter_the_meaning_of_equal_blocks() -> None:
    encoder, decoder = hpack.Encoder(), Decoder()
    first = encoder.encode([(b"x-a", b"1")])
    again = encoder.encode([(b"x-a", b"1")])
    decoder.decode(first, LIMIT)
    assert decoder.changes == 1
    assert decoder.decode(again, LIMIT) == [(b"x-a", b"1")]
    assert decoder.changes == 1
    decoder.decode(encoder.encode([(b"x-b", b"2")]), LIMIT)
    assert decoder.changes == 2
    assert decoder.decode(again, LIMIT) == [(b"x-b", b"2")]


def test_a_list_that_is_too_large_is_refused_and_the_table_stays_in_step() -> None:
    encoder, decoder = hpack.Encoder(), Decoder()
    bomb = [(b"x-a", b"a" * 3000)] * 500
    block = encoder.encode(bomb)
    assert len(block) < 4000
    with pytest.raises(TooManyFields):
        decoder.decode(block, 32 * 1024)
    assert decoder.decode(encoder.encode(bomb[:2]), 32 * 1024) == bomb[:2]


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",  # a number without end
        b"\xbe",  # an entry that is not there
        b"\x40\x05ab",  # a name that is too short
        b"\x00\x01a\x7f\x80\x80\x80\x01",  # a value of 2 MiB in a few bytes
        b"\x00",  # a literal without a name
        b"\x82\x20",  # a size of the table behind a field
        b"\x3f\xe2\x1f",  # a table of 4097 bytes
        b"\x00\x81\xff\x00",  # a bad Huffman code
    ],
)
def test_a_block_that_cannot_be_read(block: bytes) -> None:
    with pytest.raises(Violation) as caught:
        Decoder().decode(block, LIMIT)
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR

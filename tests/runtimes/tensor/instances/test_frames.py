"""Packets between processes: the tensors that are sent are received, joined, for every type and size."""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.instances import frames
from runtimes.tensor.instances.frames import Arena
from runtimes.tensor.interfaces import Array, Tensors

pytestmark = pytest.mark.plain
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena()
    yield arena
    arena.close()


@st.composite
def tensors(draw: st.DrawFn) -> Array:
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    shape = draw(SHAPES)
    if not dtype.hasobject:
        return draw(arrays.arrays(dtype, shape))
    array = np.empty(shape, dtype=object)
    array.ravel()[:] = [draw(st.binary(max_size=9)) for _ in range(array.size)]
    return array


def packet_of(kind: int, number: int, members: Sequence[Tensors], arena: Arena) -> bytes:
    return frames.packed(frames.tensors_frame(kind, number, members), arena)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=8), tensors(), min_size=1, max_size=4), st.integers(0, 2**63))
def test_tensors_of_every_type_and_shape_come_out_as_they_went_in(given: dict[str, Array], number: int) -> None:
    arena = Arena()
    packet = frames.parse(packet_of(frames.OUTPUTS, number, (given,), arena), arena)
    got = frames.tensors_of(packet)
    assert (packet.kind, packet.number) == (frames.OUTPUTS, number)
    assert list(got) == list(given)
    for name, array in given.items():
        assert got[name].shape == array.shape
        assert got[name].dtype == array.dtype
        assert got[name].tolist() == array.tolist() or np.array_equal(got[name], array, equal_nan=True)
    arena.close()


@pytest.mark.parametrize("side", [3, 300])
def test_members_arrive_joined_also_where_they_lie_in_pieces(arena: Arena, side: int) -> None:
    whole = np.arange(6 * side * side, dtype=np.float32).reshape(6, side, side)
    members = [{"x": whole[:1]}, {"x": whole[1:4].transpose(0, 2, 1)}, {"x": whole[4:, ::-1]}]
    packet = packet_of(frames.INFER, 6, members, arena)
    [got] = frames.tensors_of(frames.parse(packet, arena)).values()
    np.testing.assert_array_equal(got, np.concatenate([member["x"] for member in members]))
    assert len(packet) <= frames.MAX_PACKET


def test_large_tensors_go_past_the_socket_and_the_memory_is_used_again(arena: Arena) -> None:
    other = Arena(arena.fd)
    for length in (100_000, 3_000_000, 200_000):
        texts = np.array([b"x" * length, b""], dtype=object)
        packet = packet_of(frames.INFER, 1, ({"n": np.arange(length), "t": texts},), arena)
        assert len(packet) < 200
        got = frames.tensors_of(frames.parse(packet, other))
        np.testing.assert_array_equal(got["n"], np.arange(length))
        assert got["t"].tolist() == texts.tolist()


def test_texts_that_need_no_padding(arena: Arena) -> None:
    for length in range(100_000, 100_064):
        texts = np.array([b"x" * length], dtype=object)
        [got] = frames.tensors_of(frames.parse(packet_of(frames.INFER, 1, ({"t": texts},), arena), arena)).values()
        assert got.tolist() == texts.tolist()


def test_more_tensors_than_a_packet_describes_are_refused(arena: Arena) -> None:
    with pytest.raises(frames.FrameTooLarge, match="more tensors"):
        packet_of(frames.INFER, 1, ({f"{i:099}": np.zeros(1) for i in range(1000)},), arena)


def test_a_frame_beyond_the_memory_is_refused(arena: Arena) -> None:
    huge = np.broadcast_to(np.zeros(1, np.int8), (2**50,))
    with pytest.raises((frames.FrameTooLarge, MemoryError)):
        packet_of(frames.INFER, 1, ({"x": huge},), arena)


def test_plain_bytes_cross_too(arena: Arena) -> None:
    for blob in (b"", b"why", msgspec.msgpack.encode(["x" * 100_000])):
        packet = frames.parse(frames.packed(frames.blob_frame(frames.FAILED, 0, blob), arena), arena)
        assert bytes(packet.payload) == blob


def test_an_arena_that_is_closed_takes_nothing_more() -> None:
    arena = Arena()
    arena.close()
    with pytest.raises(frames.FrameTooLarge, match="it is closed"):
        packet_of(frames.INFER, 1, ({"x": np.zeros(100_000)},), arena)

"""Messages to and from the process of a model that receives whole requests."""

import os
import socket

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import TensorHead

pytestmark = pytest.mark.plain
SIZES = st.lists(st.integers(0, 300) | st.sampled_from([messages.INLINE, 3 * messages.INLINE]), max_size=5)


@given(SIZES, st.integers(0, 2**63))
def test_a_message_arrives_as_it_was_sent(sizes: list[int], number: int) -> None:
    tensors = [os.urandom(size) for size in sizes]
    heads = [TensorHead(str(i), "UINT8", (size,), size) for i, size in enumerate(sizes)]
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        packet = messages.packed(messages.EXECUTE, number, heads, tensors)
        packet.send(left)
        packet.close()
        data, ancillary, _, _ = right.recvmsg(messages.MAX_PACKET, 256)
    message = messages.received(data, messages.files_of(ancillary))
    assert (message.kind, message.number) == (messages.EXECUTE, number)
    assert msgspec.msgpack.decode(message.header, type=list[TensorHead]) == heads
    parts, _ = message.tensors(heads, 0)
    assert [bytes(part) for part in parts] == tensors


def test_a_file_that_its_sender_could_shorten_is_refused() -> None:
    packet = messages.packed(messages.RESPONSE, 1, None, [bytes(2 * messages.INLINE)])
    packet.close()
    file = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 2 * messages.INLINE)
    with pytest.raises(OSError, match="not sealed"):
        messages.received(packet.data, [file])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)  # closed
    with pytest.raises(OSError, match="is missing"):
        messages.received(packet.data, [])


@given(st.integers(0, 3 * messages.INLINE), SIZES)
def test_a_long_header_travels_with_the_tensors(length: int, sizes: list[int]) -> None:
    tensors = [bytes(size) for size in sizes]
    packet = messages.packed(messages.LOG, 0, "x" * length, tensors)
    message = messages.received(packet.data, [] if packet.file is None else [packet.file])
    assert msgspec.msgpack.decode(message.header) == "x" * length
    heads = [TensorHead("", "UINT8", (size,), size) for size in sizes]
    assert [bytes(part) for part in message.tensors(heads, 0)[0]] == tensors


@given(st.text(st.characters(codec=None, categories=["L", "Cs"])), st.booleans())
def test_a_header_may_hold_any_text_of_a_model(text: str, within: bool) -> None:
    """Else the copy would not answer, and its client would wait."""
    packet = messages.packed(messages.RESPONSE, 1, {"error": [text]} if within else text)
    sent = text.encode(errors="replace").decode()
    header = msgspec.msgpack.decode(messages.received(packet.data, []).header)
    assert header == ({"error": [sent]} if within else sent)

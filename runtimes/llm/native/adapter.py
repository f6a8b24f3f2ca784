"""Adapters in the memory of the native step."""

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.lora import LowRank, LowRankAdapter
from runtimes.llm.sequence import Chunk

ADAPTER_PARAMETERS = {
    "adapter": (c_void_p, c_size_t, POINTER(c_void_p)),
    "low_rank": (c_void_p, c_void_p, c_int, c_char_p, c_void_p, c_int, c_void_p, c_void_p),
}


def call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    """Call a function of the step. Raises RuntimeError or MemoryError for its failure."""
    if wrong := getattr(library, f"headrace_{name}")(*arguments):
        message = wrong.decode()
        raise MemoryError(message) if message == "out of memory" else RuntimeError(message)


class NativeAdapter:
    """One adapter, in bfloat16. Its memory is freed with it."""

    def __init__(self, library: ctypes.CDLL, model: c_void_p, adapter: LowRankAdapter) -> None:
        self.digest = adapter.digest
        self._library = library
        self._handle = c_void_p()
        size = sum(_size(additions) for layer in adapter.layers for additions in layer.values())
        call(library, "adapter", model, size, byref(self._handle))
        for index, layer in enumerate(adapter.layers):
            for name, additions in layer.items():
                padded = [_even(one) for one in additions]
                parts = array("i", [n for one in padded for n in (one.first, *one.up.shape)])
                down = torch.cat([one.down for one in padded])
                up = torch.cat([one.up.flatten() for one in padded])
                address = parts.buffer_info()[0]
                call(
                    library, "low_rank", model, self._handle, index, name.encode(), address, len(padded),
                    down.data_ptr(), up.data_ptr(),
                )  # fmt: skip

    @property
    def address(self) -> int:
        return self._handle.value or 0

    def __del__(self) -> None:
        if hasattr(self, "_handle") and self._handle:
            self._library.headrace_adapter_destroy(self._handle)


def adapters_of(chunks: Sequence[Chunk]) -> Any:
    """Each chunk's adapter, as a step takes them; None if no chunk has one."""
    adapters = [chunk.adapter for chunk in chunks]
    if not any(adapters):
        return None
    addresses = [one.address if isinstance(one, NativeAdapter) else None for one in adapters]
    return (c_void_p * len(addresses))(*addresses)


def _size(additions: Sequence[LowRank]) -> int:
    """The numbers of one matrix's additions in memory: ranks are even, and all together a multiple of four."""
    ranks = [len(one.down) + len(one.down) % 2 for one in additions]
    up = sum(rank * len(one.up) for rank, one in zip(ranks, additions, strict=True))
    return -(-sum(ranks) // 4) * 4 * int(additions[0].down.shape[1]) + up


def _even(one: LowRank) -> LowRank:
    """The same numbers in bfloat16, of an even rank."""

    def numbers(tensor: Tensor, *padding: int) -> Tensor:
        return functional.pad(tensor, padding).bfloat16().contiguous()

    odd = len(one.down) % 2
    return LowRank(one.first, numbers(one.down, 0, 0, 0, odd), numbers(one.up, 0, odd))

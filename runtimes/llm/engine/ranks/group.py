"""The sums of ranks, by torch.distributed: gloo between processors, NCCL between GPUs.

The ranks are processes of one host. They meet through a file of a private folder. Gloo's connections are on the
loopback interface, at ports that the system chooses.
"""

import os
import socket
from datetime import timedelta

import torch
from torch import Tensor, distributed

from runtimes.llm.engine.ranks.channel import SECONDS
from runtimes.llm.model.split import ModelSplit

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


class TorchRanks:
    """A `RankGroup`. `connect` comes before the first step, and after it no more than one is connected in a process."""

    def __init__(self, split: ModelSplit) -> None:
        self.split = split
        self._widths = [len(split.vocabulary_of(rank)) for rank in range(split.size)]
        self._width = max(self._widths)

    def connect(self, store: str, device: torch.device) -> None:
        """Meet the other ranks through the file `store`. Raises RuntimeError if one of them does not come."""
        for name in _INTERFACES:
            os.environ.setdefault(name, _loopback())
        try:
            distributed.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                init_method=f"file://{store}",
                rank=self.split.rank,
                world_size=self.split.size,
                timeout=timedelta(seconds=SECONDS),
                device_id=device if device.type == "cuda" else None,
            )
        except BaseException:
            # A group's name is its number in the process, the same in all ranks: one that failed must not count.
            distributed.distributed_c10d._world.group_count = 0
            raise

    def close(self) -> None:
        """Leave the group, also while a sum is waited for. Idempotent."""
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def summed(self, part: Tensor) -> Tensor:
        # Processors add in float32, which rounds once; between GPUs half the bytes are worth more.
        whole = part.to(part.dtype if part.is_cuda else torch.float32, copy=True)
        distributed.all_reduce(whole)
        return whole.to(part.dtype)

    def joined(self, part: Tensor) -> Tensor:
        if not len(part):
            return part.new_empty(0, sum(self._widths))
        padded = part.new_zeros(len(part), self._width)
        padded[:, : part.shape[1]] = part
        if self.split.rank:
            distributed.gather(padded, None, dst=0)
            return padded
        parts = [torch.empty_like(padded) for _ in self._widths]
        distributed.gather(padded, parts, dst=0)
        return torch.cat([one[:, :width] for one, width in zip(parts, self._widths, strict=True)], dim=1)


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), names[0])

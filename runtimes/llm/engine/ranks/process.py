"""Another rank than 0: a process that computes its part of every step that rank 0 plans.

Rank 0 starts it with a socket as its stdin. It ends when rank 0 closes the socket, or has ended.
"""

import logging
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import cast

import torch

from runtimes.llm.engine.executor import Executor, make_executor, memory_of_steps
from runtimes.llm.engine.ranks.channel import (
    ANY_NUMBER,
    RankChannel,
    RankFailed,
    RankLoaded,
    RankOptions,
    RankReady,
    RankRoom,
    RankStart,
    StepPlan,
)
from runtimes.llm.engine.ranks.group import TorchRanks
from runtimes.llm.memory import kv_blocks, kv_bytes_per_token, kv_dtype
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.split import ModelSplit
from runtimes.llm.weights.loader import load_model, open_checkpoint
from runtimes.process import OneLine

log = logging.getLogger(__name__)


def main() -> int:
    """Serve rank 0 until it closes the socket; 1 if the rank failed before."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they stop rank 0, which drains and then ends the others
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    threading.Thread(target=_end_with_rank_0, args=(connection,), daemon=True).start()
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    channel = RankChannel(connection)
    try:
        options = channel.receive()
        if isinstance(options, RankOptions):
            _serve(options, channel)
    except Exception as error:
        log.exception("rank failed")
        channel.send(RankFailed((str(error).strip() or repr(error)).splitlines()[0]))
        return 1
    return 0


def _end_with_rank_0(connection: socket.socket) -> None:
    """End at once when the other end is closed, also while weights are loaded or a sum is waited for."""
    waiting = select.poll()
    waiting.register(connection, getattr(select, "POLLRDHUP", 0))  # errors and hang-ups are always reported
    waiting.poll()
    os._exit(0)


def _serve(options: RankOptions, channel: RankChannel) -> None:
    torch.set_num_threads(options.threads)
    path = Path(options.model)
    group = TorchRanks(ModelSplit.of(open_checkpoint(path).config, options.rank, options.size))
    model = load_model(
        path, dtype=options.dtype, device=options.device, weights=options.weights, native=False, ranks=group
    )
    channel.send(RankLoaded())
    group.connect(options.store, model.device)
    numbers = kv_dtype(options.kv_cache_dtype, model.dtype)
    channel.send(RankRoom(_room(options, model, numbers)))
    start = channel.receive()
    if not isinstance(start, RankStart):
        return
    executor = make_executor(
        options.executor, model, start.blocks, options.block_size, context_length=start.context_length, kv_dtype=numbers
    )
    channel.send(RankReady())
    log.info("rank %d of %d is ready", options.rank, options.size)
    _compute(executor, channel)


def _room(options: RankOptions, model: Llama, numbers: torch.dtype) -> int:
    """The pages that the GPU has memory for. Of the memory of processors, rank 0 takes care for all."""
    if model.device.type != "cuda":
        return ANY_NUMBER
    steps = memory_of_steps("auto", model, options.max_num_batched_tokens, options.step_rows, options.block_size)
    page = kv_bytes_per_token(model.config, numbers) * options.block_size
    return kv_blocks(options.kv_cache_bytes, options.kv_cache_share, page, model.device, steps)


def _compute(executor: Executor, channel: RankChannel) -> None:
    while (plan := channel.receive()) is not None:
        step = cast(StepPlan, plan)
        chunks = [one.chunk() for one in step.chunks]
        if step.call == "hidden":
            executor.hidden(chunks)
        else:
            executor.logits(chunks, step.rows)


if __name__ == "__main__":
    sys.exit(main())

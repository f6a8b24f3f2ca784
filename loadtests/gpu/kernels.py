"""The executor of a GPU beside the reference: the same steps of the same model must have the same logits.

Without a GPU, Triton's interpreter runs the kernels.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch

from loadtests.gpu.run import Run
from loadtests.gpu.shapes import LLAMA, QWEN, Shape, made, written

BLOCK = 16
PAGES = 256
CASES: dict[str, tuple[Shape, dict[str, Any]]] = {
    "heads of 128 in groups of 4": (LLAMA, {"head_dim": 128}),
    "heads of 64, no groups": (LLAMA, {"head_dim": 64, "num_key_value_heads": 4}),
    "heads of 80": (LLAMA, {"head_dim": 80}),
    "heads of 256": (LLAMA, {"head_dim": 256}),
    "norms of heads": (QWEN, {"head_dim": 128}),
}


def kernels(run: Run) -> None:
    """Steps of chunks, of single tokens and of both, with pages in any order."""
    if run.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    from runtimes.llm.cuda.executor import CudaExecutor
    from runtimes.llm.engine.executor import TorchExecutor
    from runtimes.llm.weights.loader import load_model

    for name, (shape, fields) in list(CASES.items())[: 1 if run.tiny else None]:
        if run.tiny:
            fields = {**fields, "head_dim": 16}
        configuration = shape.configuration(tiny=True, **fields)
        for dtype, bound in (("float32", 2e-3), *(() if run.tiny else (("bfloat16", 8e-2),))):
            with tempfile.TemporaryDirectory() as folder:
                path = written(made(configuration, run.device, getattr(torch, dtype)), Path(folder))
                model = load_model(path, dtype=dtype, device=run.device, native=False)  # type: ignore[arg-type]
            reference, ours = TorchExecutor(model, PAGES, BLOCK), CudaExecutor(model, PAGES, BLOCK)
            worst = 0.0
            for chunks, rows in steps(Random(name), configuration.vocab_size, 3 if run.tiny else 12):
                expected, computed = reference.logits(chunks, rows), ours.logits(chunks, rows)
                worst = max(worst, float((computed - expected).abs().max() / expected.abs().max()))
            run.check("kernels", f"{name}, {dtype}", worst < bound, f"differs by {worst:.1e} of the largest logit")


def steps(rng: Random, vocabulary: int, count: int) -> Iterator[tuple[list[Any], list[int]]]:
    """Steps of up to six sequences: their chunks, and the row of each newest token."""
    from runtimes.llm.sampling_params import SamplingParams
    from runtimes.llm.sequence import Chunk

    free = list(range(PAGES))
    rng.shuffle(free)
    tables = [[free.pop() for _ in range(PAGES // 8)] for _ in range(6)]
    filled = [0] * len(tables)
    for _ in range(count):
        chunks, rows, row = [], [], -1
        for identity in rng.sample(range(len(tables)), rng.randint(1, len(tables))):
            size = 1 if filled[identity] and rng.random() < 0.6 else rng.randint(1, 40)
            size = min(size, len(tables[identity]) * BLOCK - filled[identity])
            if not size:
                continue
            tokens = tuple(rng.randrange(vocabulary) for _ in range(size))
            table = tables[identity][: -(-(filled[identity] + size) // BLOCK)]
            chunks.append(
                Chunk(identity, filled[identity], tokens, tuple(table), True, SamplingParams(max_tokens=1), 0)
            )
            filled[identity] += size
            rows.append(row := row + size)
        if chunks:
            yield chunks, rows

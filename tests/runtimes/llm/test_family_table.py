"""Every row of the table of families gives the numbers that transformers computes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.model.llama import Llama
from runtimes.llm.sequence import Chunk
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.family_table import CONTEXT, GGUF, ROWS, WINDOW, tiny, write_gguf
from tests.runtimes.llm.reference import assert_greedy, save_safetensors
from tests.support.llm_engines import answers

BLOCK = 16
PROMPT = [(7 * i + i * i // 5) % 250 for i in range(120)]
PROMPTS = [[5], PROMPT[:34], PROMPT, PROMPT[:100]]  # the last is in the prefix cache
CUTS = [1, 17, 48, 49, 110]


def logits(model: Llama, cuts: list[int]) -> torch.Tensor:
    """After every token of PROMPT; computed in steps that end at `cuts`."""
    executor = TorchExecutor(model, CONTEXT // BLOCK, BLOCK, context_length=CONTEXT)
    params, pages = SamplingParams(max_tokens=1), tuple(reversed(range(CONTEXT // BLOCK)))
    parts = []
    for start, end in zip([0, *cuts], [*cuts, len(PROMPT)], strict=True):
        chunk = Chunk(0, start, tuple(PROMPT[start:end]), pages, True, params, 0)
        parts.append(executor.logits([chunk], range(end - start)))
    return torch.cat(parts)


def assert_same(path: Path, reference: Any) -> None:
    """The same logits in one step and in several, and the same answers from an engine."""
    model = load_model(path, dtype="float32", device="cpu")
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0].log_softmax(-1)
    for cuts in ([], CUTS):
        torch.testing.assert_close(logits(model, cuts).log_softmax(-1), expected, atol=2e-4, rtol=0)
    bounds: dict[str, Any] = {"max_num_batched_tokens": 50, "max_num_seqs": 8, "kv_cache_bytes": 1 << 22}
    engine = Engine.load(EngineConfig(model=path, dtype="float32", device="cpu", **bounds))
    for prompts in (PROMPTS[:3], PROMPTS[3:]):
        for prompt, answer in zip(prompts, answers(engine, prompts, WINDOW + 2), strict=True):
            assert_greedy(reference, prompt, answer)


@pytest.mark.parametrize("row", ROWS)
def test_a_family_is_that_of_transformers(tmp_path: Path, row: str) -> None:
    model = tiny(row)
    assert_same(save_safetensors(model, tmp_path), model)


@pytest.mark.parametrize("row", GGUF)
def test_a_gguf_file_is_the_same_model(tmp_path: Path, row: str) -> None:
    model = tiny(row)
    folder = save_safetensors(model, tmp_path)
    loaded = load_model(folder, dtype="float32", device="cpu")
    again = load_model(write_gguf(tmp_path / "model.gguf", folder, row, model), dtype="float32", device="cpu")
    torch.testing.assert_close(logits(again, CUTS), logits(loaded, CUTS), atol=2e-4, rtol=1e-4)

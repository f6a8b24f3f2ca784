"""An executor returns its results in the order of its chunks, for any order of computation."""

from pathlib import Path

import torch

from runtimes.llm.engine.executor import TorchExecutor
from runtimes.llm.sequence import Chunk, SamplingParams
from runtimes.llm.weights.loader import load_model
from tests.runtimes.llm.reference import save_safetensors, tiny_llama


def chunk(identity: int, tokens: list[int], pages: list[int], start: int = 0) -> Chunk:
    return Chunk(identity, start, tuple(tokens), tuple(pages), True, SamplingParams(max_tokens=1), 0)


def test_rows_and_hidden_states_follow_the_chunks(tmp_path: Path) -> None:
    reference = tiny_llama()
    executor = TorchExecutor(load_model(save_safetensors(reference, tmp_path), dtype="float32", device="cpu"), 8, 4)
    prompts = {0: [3, 1, 4, 1, 5], 1: [9], 2: [2, 6], 3: [5]}
    chunks = [chunk(identity, tokens, [2 * identity, 2 * identity + 1]) for identity, tokens in prompts.items()]
    with torch.inference_mode():
        expected = [reference(torch.tensor([tokens]), output_hidden_states=True) for tokens in prompts.values()]
    logits = executor.logits(chunks, [8, 4, 5])
    torch.testing.assert_close(
        logits, torch.stack([expected[i].logits[0, -1] for i in (3, 0, 1)]), atol=1e-4, rtol=1e-4
    )
    hidden = executor.hidden(chunks)
    states = torch.cat([one.hidden_states[-1][0] for one in expected])
    torch.testing.assert_close(hidden, states, atol=1e-4, rtol=1e-4)

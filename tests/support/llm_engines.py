"""Engines over whole models, prompts of real text for them, and their answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.model.llama import Llama
from runtimes.llm.sequence import StepAdapter, TokenOutput

LENGTHS = (1, 2, 15, 16, 17, 48, 64, 65, 330)
"""Lengths around the ends of pages (of 16 tokens) and chunks (of 48 and 64)."""
NEW_TOKENS = 17
"""One more than a page: every response begins a new page."""
ONE = SamplingParams(max_tokens=1)
TEXT = """
The old miller lived beside the river with a small dog and a very large book about the stars . Every morning
he opened the gate and let the water run over the wheel until the stones began to turn . In the village people
said that he could read the weather in the colour of the sky , and that his bread was better than any other in
the country . One day a young woman came to the door and asked for work . She had walked from the city in the
north , where the streets were full of smoke and the houses stood so close together that no one could see the
moon . He gave her a cup of tea and a question : how does a river know where the sea is ?
"""


def prompts_of(model: Path) -> list[list[int]]:
    """Real text, cut at a different word for each prompt, in the tokens of a GGUF file."""
    vocabulary = GGUFReader(model).fields["tokenizer.ggml.tokens"].contents()
    ids = {token: identity for identity, token in enumerate(vocabulary)}
    text = [ids["Ġ" + word] for word in TEXT.split() if "Ġ" + word in ids] * 5
    return [text[9 * index :][:length] for index, length in enumerate(LENGTHS)]


def make_engine(model: Llama, *, cache_tokens: int = 8192, **bounds: Any) -> Engine:
    size = model.kv_bytes_per_token * cache_tokens
    return Engine.serving(model, EngineConfig(model=Path(), kv_cache_bytes=size, **bounds))


def answers(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    tokens: int | Sequence[int] = NEW_TOKENS,
    *,
    adapter: StepAdapter | None = None,
    **how: Any,
) -> list[list[int]]:
    """`tokens` tokens for each prompt, all in one engine, with the `adapter`."""
    counts = [tokens] * len(prompts) if isinstance(tokens, int) else tokens
    how = {"temperature": 0} | how
    ids = [
        engine.add(prompt, SamplingParams(max_tokens=count, ignore_eos=True, **how), adapter=adapter)
        for prompt, count in zip(prompts, counts, strict=True)
    ]
    outputs = run(engine)
    return [[output.token_id for output in outputs[identity]] for identity in ids]


def run(engine: Engine) -> dict[int, list[TokenOutput]]:
    """All outputs by sequence, when nothing is left to do."""
    outputs: dict[int, list[TokenOutput]] = {}
    while engine.stats().running or engine.stats().waiting:
        for sequence_id, output in engine.step().items():
            outputs.setdefault(sequence_id, []).append(output)
    engine.check_idle()
    return outputs

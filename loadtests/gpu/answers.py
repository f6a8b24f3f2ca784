"""The engine beside transformers on the same device: tokens, log-probabilities, graphs, and the size of its cache."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch

from loadtests.gpu.run import Run
from loadtests.gpu.shapes import EXPERTS, LLAMA, QWEN, Model, made, written


def engine_of(path: Path, run: Run, **options: Any) -> Any:
    """An engine over a folder, on the device of the run."""
    from runtimes.llm.engine.core import Engine
    from runtimes.llm.engine.engine_config import EngineConfig

    return Engine.load(EngineConfig(model=path, device=run.device, **options))  # type: ignore[arg-type]


def answers(run: Run) -> None:
    """Greedy answers of sequences that are batched, of small models in float32, whose tokens may not differ."""
    for shape in (LLAMA, QWEN, EXPERTS):
        model = made(shape.configuration(tiny=True), run.device, torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            engine = engine_of(
                written(model, Path(folder)), run, dtype="float32", kv_cache_bytes=64 << 20, max_num_batched_tokens=64,
                max_num_seqs=8,
            )  # fmt: skip
        rng = Random(shape.name)
        prompts = [[rng.randrange(3, 512) for _ in range(rng.choice((1, 15, 16, 17, 70, 200)))] for _ in range(12)]
        ours = generated(engine, prompts, 24, logprobs=0)
        worst, equal = 0.0, 0
        for prompt, (tokens, logprobs) in zip(prompts, ours, strict=True):
            expected = _scored(model, [*prompt, *tokens])[len(prompt) - 1 : -1]
            chosen = expected[torch.arange(len(tokens)), torch.tensor(tokens, device=expected.device)]
            worst = max(worst, float((chosen.cpu() - torch.tensor(logprobs)).abs().max()))
            # Where two tokens are as likely as each other, either may be chosen.
            equal += bool((expected.max(dim=-1).values - chosen < 1e-3).all())
        run.check(
            "answers", shape.name, equal == len(prompts) and worst < 2e-3, f"log-probabilities within {worst:.1e}"
        )


def graphs(run: Run) -> None:
    """Steps that are replayed as graphs, beside the same steps computed one by one."""
    from runtimes.llm.engine.core import Engine
    from runtimes.llm.engine.engine_config import EngineConfig
    from runtimes.llm.engine.executor import make_executor
    from runtimes.llm.weights.loader import load_model

    model = made(LLAMA.configuration(tiny=True), run.device, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = written(model, Path(folder))
        ours = load_model(path, dtype="float32", device=run.device)  # type: ignore[arg-type]
        engine = Engine.serving(ours, EngineConfig(model=path, device=run.device, kv_cache_bytes=64 << 20))  # type: ignore[arg-type]
    rng = Random(3)
    for count in (1, 3, 17, 40):
        prompts = [[rng.randrange(3, 512) for _ in range(9)] for _ in range(count)]
        together = [tokens for tokens, _ in generated(engine, prompts, 12)]
        alone = [generated(engine, [prompt], 12)[0][0] for prompt in prompts[:4]]
        run.check("graphs", f"{count} sequences", together[:4] == alone, "the first four are as alone")
    executor = make_executor("auto", ours, 64, 16, context_length=256, kv_dtype=torch.float32, max_num_seqs=4)
    run.check(
        "graphs",
        "the executor",
        run.device == "cpu" or type(executor).__name__ == "CudaExecutor",
        type(executor).__name__,
    )


def memory(run: Run) -> None:
    """A cache of 90 % of what is left holds full steps: nothing may run out of memory."""
    model = made(LLAMA.configuration(tiny=True), run.device, torch.float32)
    size: Mapping[str, Any] = {"kv_cache_bytes": 64 << 20} if run.device == "cpu" else {"kv_cache_share": 0.9}
    with tempfile.TemporaryDirectory() as folder:
        engine = engine_of(
            written(model, Path(folder)), run, dtype="float32", max_num_seqs=64, max_num_batched_tokens=2048, **size
        )
    stats = engine.stats()
    positions = stats.kv_blocks_total * stats.block_size
    run.add("memory", "positions in the cache", positions, "tokens")
    longest = min(engine.max_model_len - 20, positions // 64)
    prompts = [[3 + i % 500] * longest for i in range(64)]
    finished = generated(engine, prompts, 16)
    run.check("memory", "64 long sequences", all(len(tokens) == 16 for tokens, _ in finished), f"of {longest} tokens")


def generated(
    engine: Any, prompts: Sequence[Sequence[int]], count: int, *, logprobs: int | None = None
) -> list[tuple[list[int], list[float]]]:
    """Greedy answers of so many tokens, all prompts at once, with their log-probabilities if they are asked for."""
    from runtimes.llm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, logprobs=logprobs)
    answers: dict[int, tuple[list[int], list[float]]] = {engine.add(prompt, params): ([], []) for prompt in prompts}
    ended = 0
    while ended < len(prompts):
        for identity, newest in engine.step().items():
            for output in (*newest.before, newest):
                if output.error is not None:
                    raise output.error
                answers[identity][0].append(output.token_id)
                if output.logprobs is not None:
                    answers[identity][1].append(output.logprobs.logprob)
            ended += newest.ends
    return list(answers.values())


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _scored(model: Model, tokens: Sequence[int]) -> Any:
    """Log-probabilities [positions, vocabulary] by transformers."""
    logits = model(torch.tensor([tokens], device=model.device)).logits[0]
    return torch.log_softmax(logits.float(), dim=-1)

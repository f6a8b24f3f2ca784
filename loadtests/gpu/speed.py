"""Tokens a second and the time to a first token: the engine, transformers, and what the device allows."""

import gc
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import torch

from loadtests.gpu.answers import engine_of
from loadtests.gpu.limits import Device, Work, synchronize
from loadtests.gpu.run import Run
from loadtests.gpu.shapes import Model, Shape, made, written

PROMPT = 128


def speed(run: Run, shape: Shape, device: Device, *, folder: Path | None, full: bool) -> None:
    """Measure a model. Its folder is written and read once; `full` also measures transformers."""
    dtype = torch.float32 if run.device == "cpu" else torch.bfloat16
    model = made(shape.configuration(tiny=run.tiny), run.device, dtype)
    work = Work.of(model)
    counts, prompts, new = ((1, 4), (64, 256), 8) if run.tiny else ((1, 8, 32, 128, 256), (1024, 8192), 64)
    theirs = _transformers(run, shape.name, model, 4 if run.tiny else new, counts) if full else {}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        began = time.perf_counter()
        path = written(model, Path(place))
        run.add(shape.name, "write the folder", time.perf_counter() - began, "s")
        del model
        gc.collect()
        if run.device != "cpu":
            torch.cuda.empty_cache()
        began = time.perf_counter()
        size: Any = {"kv_cache_bytes": 64 << 20} if run.device == "cpu" else {"kv_cache_share": 0.85}
        engine = engine_of(
            path, run, prefix_cache=False, max_num_seqs=max(counts), max_num_batched_tokens=256 if run.tiny else 8192,
            max_queue=max(counts), max_model_len=max(prompts) + 256, **size,
        )  # fmt: skip
        run.add(shape.name, "load the model", time.perf_counter() - began, "s")
    rng = Random(5)
    vocabulary = engine.vocab_size
    decode(engine, rng, vocabulary, 1, 4, run.device)
    for count in counts:
        rate = decode(engine, rng, vocabulary, count, new, run.device)
        least = work.decode_seconds(device, count, PROMPT + new // 2)
        other = theirs.get(count)
        ratio = None if other is None else rate / other
        run.add(shape.name, f"{count} sequences", rate, "tokens/s", rate * least / count, ratio)
    for length in prompts:
        taken = sorted(first_token(engine, rng, vocabulary, length, run.device) for _ in range(3))[1]
        share = work.prefill_seconds(device, length) / taken
        run.add(shape.name, f"first token of {length} tokens", taken * 1e3, "ms", share)


def decode(engine: Any, rng: Random, vocabulary: int, count: int, new: int, device: str) -> float:
    """Tokens a second of `count` answers, from the step on in which all of them have begun."""
    from runtimes.llm.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=2 * new, temperature=0.0, ignore_eos=True)
    for _ in range(count):
        engine.add([rng.randrange(3, vocabulary) for _ in range(PROMPT)], params)
    begun, ended, tokens, since = set[int](), 0, 0, 0.0
    while ended < count:
        outputs = engine.step()
        if since and not ended:
            tokens += sum(1 + len(output.before) for output in outputs.values())
            last = time.perf_counter()
        begun |= set(outputs)
        ended += sum(output.ends for output in outputs.values())
        if not since and len(begun) == count:
            synchronize(device)
            since = time.perf_counter()
    return tokens / (last - since)


def first_token(engine: Any, rng: Random, vocabulary: int, length: int, device: str) -> float:
    """Seconds from a prompt to its first token."""
    from runtimes.llm.sampling_params import SamplingParams

    prompt = [rng.randrange(3, vocabulary) for _ in range(length)]
    synchronize(device)
    began = time.perf_counter()
    engine.add(prompt, SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True))
    while not engine.step():
        pass
    return time.perf_counter() - began


# ── transformers ──────────────────────────────────────────────────────────────────────────────────────


def _transformers(run: Run, name: str, model: Model, new: int, counts: tuple[int, ...]) -> dict[int, float]:
    """Tokens a second of a batch by `generate`, and of its continuous batching where this version has it."""
    rates: dict[int, float] = {}
    for count in counts[:3]:
        ids = torch.randint(3, model.config.vocab_size, (count, PROMPT), device=model.device)
        short, long = (_generate(run, model, ids, size) for size in (2, new))
        rates[count] = count * (new - 2) / max(long - short, 1e-9)
        run.add(name, f"transformers, {count} sequences", rates[count], "tokens/s")
    try:
        count = 2 if run.tiny else 32
        taken, tokens = _continuous(run, model, count, new)
    except Exception as error:
        run.skipped[f"{name}: transformers' continuous batching"] = f"{type(error).__name__}: {error}"[:300]
    else:
        rates[count] = max(rates.get(count, 0.0), tokens / taken)
        run.add(name, f"transformers' continuous batching, {count} sequences", tokens / taken, "tokens/s")
    return rates


@torch.inference_mode()  # type: ignore[untyped-decorator]
def _generate(run: Run, model: Model, ids: Any, new: int) -> float:
    mask = torch.ones_like(ids)
    options = {"do_sample": False, "attention_mask": mask, "min_new_tokens": new, "max_new_tokens": new}
    model.generate(ids, **options)
    synchronize(run.device)
    began = time.perf_counter()
    model.generate(ids, **options)
    synchronize(run.device)
    return time.perf_counter() - began


def _continuous(run: Run, model: Model, count: int, new: int) -> tuple[float, int]:
    """Seconds and tokens of a second run: the first compiles. Prompts are read within the time."""
    from transformers import GenerationConfig

    rng = Random(5)
    prompts = [[rng.randrange(3, model.config.vocab_size) for _ in range(PROMPT)] for _ in range(count)]
    how = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    model.generate_batch(inputs=prompts[:2], generation_config=how)
    synchronize(run.device)
    began = time.perf_counter()
    answers = model.generate_batch(inputs=prompts, generation_config=how)
    synchronize(run.device)
    taken = time.perf_counter() - began
    tokens = sum(len(answer.generated_tokens) for answer in answers.values())
    if tokens < count * new:
        raise ValueError(f"{tokens} of {count * new} tokens came: {next(iter(answers.values())).error}")
    return taken, tokens

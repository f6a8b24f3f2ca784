"""Where a step of the LLM engine spends its time, part by part: `python -m loadtests.profile_llm --help`.

No server and no peer: the engine alone, on the bundled model. What the event loop does beside it is measured apart, in
microseconds a token.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the runtime sets it, before torch is imported

from runtimes.llm.api.answers import ChatWriter, TokenReport
from runtimes.llm.engine import model_runner
from runtimes.llm.engine.async_engine import Engine, EngineConfig, SamplingParams
from runtimes.llm.native.executor import NativeExecutor
from runtimes.llm.text.tokenizer import Detokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.store import resolve

MODEL = "bundled:smollm2-135m-instruct"
CONTEXT, ANSWER = 128, 128
PROMPTS = (512, 2000, 4000)
CASES = {"1 answer": 1, "8 answers": 8, "32 answers": 32}


class Clock:
    """Seconds that calls of some functions took, in the step that runs."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    @contextmanager
    def on(self, owner: Any, name: str, part: str) -> Iterator[None]:
        call = getattr(owner, name)

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.spent[part] = self.spent.get(part, 0.0) + time.perf_counter() - began

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, call)


def steps(engine: Engine, params: SamplingParams, prompts: list[list[int]]) -> list[dict[str, float]]:
    """The seconds of each part of each step, until all prompts are answered."""
    executor = engine._runner.executor  # type: ignore[attr-defined]
    native = isinstance(executor, NativeExecutor)
    clock, timings = Clock(), []
    for prompt in prompts:
        engine.add(prompt, params)
    left = len(prompts)
    scheduling = (clock.on(engine, "_schedule", "scheduler"), clock.on(engine, "_update", "scheduler"))
    with scheduling[0], scheduling[1], clock.on(model_runner, "sample", "sampler"):
        while left:
            clock.spent = {}
            before = executor.seconds() if native else {}
            began = time.perf_counter()
            outputs = engine.step()
            whole = time.perf_counter() - began
            after = executor.seconds() if native else {}
            parts = {name: after[name] - before[name] for name in before} | clock.spent
            timings.append(parts | {"the rest": whole - sum(parts.values()), "whole": whole})
            left -= sum(output.finish_reason is not None for output in outputs.values())
    return timings


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of each part, in ms."""
    return {name: 1e3 * statistics.median([row.get(name, 0.0) for row in rows]) for name in rows[-1]}


def sums(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of each part, in seconds."""
    return {name: sum(row.get(name, 0.0) for row in rows) for name in rows[-1]}


def per_call(call: Callable[[], object], calls: int = 20_000) -> float:
    """Microseconds."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - began) / calls


def profile(weights: str, threads: int) -> list[tuple[str, dict[str, float]]]:
    path = resolve(MODEL, progress=True)
    engine = Engine.load(EngineConfig(model=path, threads=threads, weights=weights, prefix_cache=False))  # type: ignore[arg-type]
    greedy = SamplingParams(max_tokens=ANSWER, temperature=0, ignore_eos=True)
    drawn = SamplingParams(max_tokens=ANSWER, temperature=0.7, top_p=0.9, ignore_eos=True)
    profiles = []
    for case, count in CASES.items():
        prompts = [[1000 + 7 * i + j for j in range(CONTEXT)] for i in range(count)]
        first = -(-CONTEXT * count // 512) + count  # until all prompts are computed
        profiles.append((f"{case}, greedy", medians(steps(engine, greedy, prompts)[first:])))
    profiles.append(("32 answers, top_p", medians(steps(engine, drawn, prompts)[first:])))
    one = SamplingParams(max_tokens=1, temperature=0)
    for length in PROMPTS:
        rounds = [sums(steps(engine, one, [[2000 + i + j for j in range(length)]])) for i in range(5)]
        profiles.append((f"prompt of {length:,}", medians(rounds)))
    return profiles


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtests.profile_llm", description=__doc__)
    parser.add_argument("--weights", default="unquantized", choices=["unquantized", "int8", "int4", "stored"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    profiles = profile(options.weights, options.threads)
    table = Table(
        title=f"ms of a step, or of all steps of a prompt, {options.weights}, {options.threads} threads: medians"
    )
    table.add_column("part")
    for case, _ in profiles:
        table.add_column(case, justify="right")
    for part in profiles[0][1]:
        table.add_row(part, *(f"{parts[part]:.2f}" for _, parts in profiles))
    console = Console(width=160)
    console.print(table)
    tokenizer = load_tokenizer(resolve(MODEL, progress=False))
    detokenizer, writer = Detokenizer(tokenizer), ChatWriter("model", "fp", with_usage=False)
    console.print(f"detokenizer: {per_call(lambda: detokenizer.push(1000)):.1f} us a token")
    console.print(f"an event of a stream, written: {per_call(lambda: writer.text(0, ' word', TokenReport())):.1f} us")


if __name__ == "__main__":
    main()

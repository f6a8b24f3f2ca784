"""Measures the loss of quality from quantization: `python -m loadtests.accuracy_llm --help`.

Every format of weights, and of the KV cache, reads the same English text, that of this repository's own pages, and
predicts the next token after each token. The figures compare it with float32 of the same file: how much less probable
the text is (perplexity), and how often another token is the most probable.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import Tensor

from runtimes.llm.engine.executor import Executor, ExecutorName, make_executor
from runtimes.llm.memory import KVCacheName, kv_dtype
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.matrix import GROUP, WeightsName, quantized_4
from runtimes.llm.perplexity import BLOCK, Reading, read
from runtimes.llm.perplexity import windows as pieces
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.weights.loader import DtypeName, load_model
from runtimes.llm.weights.store import resolve

ROOT = Path(__file__).parent.parent
MODEL = "bundled:smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Format:
    """One way to compute. `anew` quantizes numbers that a file has quantized already as if it had not: by groups that
    begin in the middle of its own, so that its steps are not found again."""

    weights: WeightsName
    dtype: DtypeName
    kv: KVCacheName = "auto"
    anew: bool = False
    executor: ExecutorName = "torch"

    def __str__(self) -> str:
        how = f"{self.weights} anew" if self.anew else self.weights
        weights = self.dtype if self.weights == "unquantized" else f"{how}, {self.dtype}"
        cached = weights if self.kv == "auto" else f"{weights}, KV cache {self.kv}"
        return cached if self.executor == "torch" else f"{cached}, native step"


REFERENCE = Format("unquantized", "float32")
FORMATS = (
    Format("unquantized", "float32", "int8"),
    Format("stored", "float32"),
    Format("int8", "float32"),
    Format("int4", "float32"),
    Format("int4", "float32", anew=True),
    Format("unquantized", "bfloat16"),
    Format("stored", "bfloat16"),
    Format("int8", "bfloat16"),
    Format("int4", "bfloat16"),
    Format("int8", "bfloat16", "int8"),
    Format("int4", "bfloat16", "int8"),
    Format("unquantized", "bfloat16", executor="native"),
    Format("stored", "bfloat16", executor="native"),
    Format("int8", "bfloat16", executor="native"),
    Format("unquantized", "bfloat16", "int8", executor="native"),
    Format("int4", "bfloat16", "int8", executor="native"),
)


def windows(model: Path, count: int, length: int) -> list[list[int]]:
    """`count` pieces of the repository's pages, `length` tokens each, evenly apart."""
    pages = [ROOT / "README.md", ROOT / "LICENSE", *sorted((ROOT / "docs").glob("*.md"))]
    tokens = load_tokenizer(model).encode("\n".join(page.read_text() for page in pages))
    return pieces(tokens, count, length)


def executor_of(model: Llama, one: Format, length: int) -> Executor:
    pages, numbers = -(-length // BLOCK), kv_dtype(one.kv, model.dtype)
    return make_executor(one.executor, model, pages, BLOCK, context_length=length, kv_dtype=numbers)


def readings(path: Path, formats: Sequence[Format], texts: Sequence[Sequence[int]]) -> Iterator[tuple[Format, Reading]]:
    """Of the formats in turn; of those in a row that have the same weights they are loaded once."""
    loaded: Format | None = None
    model: Llama
    for one in formats:
        if loaded != (same := replace(one, kv="auto")) or one.executor == "native":  # which takes a model's layers
            model, loaded = _loaded(path, same), same
        yield one, read(executor_of(model, one, max(map(len, texts))), texts)


def _loaded(path: Path, one: Format) -> Llama:
    if not one.anew:
        return load_model(path, dtype=one.dtype, device="cpu", weights=one.weights)
    model = load_model(path, dtype=one.dtype, device="cpu", weights="unquantized")
    for index, layer in enumerate(model.layers):
        changed = {name: _anew(getattr(layer, name)) for name in ("qkv", "attention_out", "gate_up", "down")}
        model.layers[index] = replace(layer, **changed)
    return model


def _anew(weight: Tensor) -> Tensor:
    half = GROUP // 2
    return quantized_4(weight.roll(half, dims=1), weight.dtype).dequantized().roll(-half, dims=1)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtests.accuracy_llm", description=__doc__)
    parser.add_argument("--model", default=MODEL, help=f"a path or a name ({MODEL})")
    parser.add_argument("--windows", type=int, default=16, help="pieces of text (16)")
    parser.add_argument("--length", type=int, default=512, help="tokens of each (512)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table, and a JSON object as the last line."""
    options = parse(argv)
    path = resolve(options.model, progress=True)
    texts = windows(path, options.windows, options.length)
    table = Table(title=f"{options.model}: {options.windows} × {options.length} tokens of README, LICENSE and docs")
    for column in ("format", "perplexity", "against float32", "same token best"):
        table.add_column(column, justify="left" if column == "format" else "right")
    ratios, agreements = {}, {}
    reference: Reading | None = None
    for one, reading in readings(path, (REFERENCE, *FORMATS), texts):
        reference = reference or reading
        ratios[f"perplexity/{one}"] = reading.perplexity / reference.perplexity
        agreements[str(one)] = reading.agreement(reference)
        change = f"{100 * (ratios[f'perplexity/{one}'] - 1):+.2f} %"
        table.add_row(str(one), f"{reading.perplexity:.3f}", change, f"{100 * agreements[str(one)]:.2f} %")
        print(f"{one}: {reading.perplexity:.3f} {change} {agreements[str(one)]:.4f}", file=sys.stderr, flush=True)
    Console(width=120).print(table)
    print(json.dumps({"ratios": ratios, "agreement": agreements}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write a model with matrices of 8 or 4 bits, and compare its perplexity with the model's own."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runtimes.arguments import HelpFormatter
from runtimes.llm.__main__ import EXTRA
from runtimes.process import importing

_LENGTH = 512
"""Tokens of a piece of text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if the model cannot be read or written, 2 for a wrong command line."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with importing("llm", EXTRA):
        from runtimes.llm.weights.loader import only_embeds
        from runtimes.llm.weights.quantized_writer import write_quantized
        from runtimes.llm.weights.store import resolve
        from runtimes.wheels import ModelUnavailable
    try:
        source = resolve(options.model, progress=True)
        if not source.is_dir():
            raise ValueError(f"{options.model} is not a folder of safetensors: GGUF files are quantized by llama.cpp")
        measures = options.tokens > 0 and not only_embeds(source)
        before = _perplexity(source, options.text, options.tokens) if measures else None
        if before is not None:
            print(f"perplexity before: {before:.3f}", flush=True)
        count = write_quantized(source, options.folder, options.bits, options.group)
        print(f"{options.folder}: {count} matrices of {options.bits} bits", flush=True)
        if before is not None:
            after = _perplexity(options.folder, options.text, options.tokens)
            print(f"perplexity after: {after:.3f} ({100 * (after / before - 1):+.2f} %)")
    except (ModelUnavailable, ValueError, OSError, RuntimeError, MemoryError) as error:
        print(f"cannot quantize {options.model}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace models quantize", description=__doc__, formatter_class=HelpFormatter
    )
    add = parser.add_argument
    add("model", help="a folder of safetensors, or hf:ORG/NAME")
    add("folder", type=Path, help="folder to write, which must not exist")
    add("--bits", type=int, choices=[4, 8], default=4, help="bits of a weight")
    add("--group", type=int, choices=[32, 64, 128], default=32, help="weights of a row that share a scale")
    add("--text", type=Path, help="text for the perplexity; the manual of Python's language if not given")
    add(
        "--tokens",
        type=int,
        default=4096,
        help="tokens of it that are read; 0 measures nothing, and a model that embeds or ranks is never measured",
    )
    return parser


def _perplexity(folder: Path, text: Path | None, tokens: int) -> float:
    """Of the model in `folder`, as it is stored, of some pieces of a text."""
    from runtimes.llm.engine.executor import make_executor
    from runtimes.llm.perplexity import BLOCK, Reading, read, windows
    from runtimes.llm.text.tokenizer_loader import load_tokenizer
    from runtimes.llm.weights.loader import load_model

    model = load_model(folder, weights="stored")
    length = min(_LENGTH, model.config.context_length, tokens)
    texts = windows(load_tokenizer(folder).encode(_text(text)), max(tokens // length, 1), length)
    executor = make_executor("auto", model, -(-length // BLOCK), BLOCK, context_length=length, kv_dtype=model.dtype)
    del model
    reading: Reading = read(executor, texts)
    return reading.perplexity


def _text(path: Path | None) -> str:
    if path is not None:
        return path.read_text("utf-8")
    from pydoc_data.topics import topics

    return "\n".join(topics.values())


if __name__ == "__main__":
    sys.exit(main())

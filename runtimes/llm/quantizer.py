"""Write a model with matrices of 8 or 4 bits, and compare its perplexity with the model's own."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from runtimes.arguments import HelpFormatter
from runtimes.llm.__main__ import EXTRA
from runtimes.process import importing

_LENGTH = 512
"""Tokens of a piece of text."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if the model cannot be read or written, 2 for a wrong command line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.method == "rtn") != (options.calibration is None):
        parser.error(f"--method {options.method} {'takes no' if options.calibration else 'needs'} --calibration")
    if options.act_order is not None and options.method != "gptq":
        parser.error("--act-order is of --method gptq")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with importing("llm", EXTRA):
        from runtimes.llm.weights.loader import only_embeds
        from runtimes.llm.weights.store import resolve
        from runtimes.wheels import ModelUnavailable
    try:
        source = resolve(options.model, progress=True)
        if not source.is_dir():
            raise ValueError(f"{options.model} is not a folder of safetensors: GGUF files are quantized by llama.cpp")
        texts = _calibration(source, options) if options.calibration else []
        measures = options.tokens > 0 and not only_embeds(source)
        before = _perplexity(source, options.text, options.tokens) if measures else None
        if before is not None:
            print(f"perplexity before: {before:.3f}", flush=True)
        print(f"{options.folder}: {_written(source, options, texts)}", flush=True)
        if before is not None:
            after = _perplexity(options.folder, options.text, options.tokens)
            print(f"perplexity after: {after:.3f} ({100 * (after / before - 1):+.2f} %)")
    except (ModelUnavailable, ValueError, OSError, RuntimeError, MemoryError) as error:
        print(f"cannot quantize {options.model}: {error}", file=sys.stderr)
        return 1
    return 0


def _calibration(source: Path, options: argparse.Namespace) -> list[list[int]]:
    from runtimes.llm.calibration.texts import calibration_tokens
    from runtimes.llm.text.tokenizer_loader import load_tokenizer
    from runtimes.llm.weights.loader import open_checkpoint

    context = open_checkpoint(source).config.context_length
    count, length = options.calibration_texts, min(options.calibration_length, context)
    encode = load_tokenizer(source).encode
    texts = calibration_tokens(options.calibration, encode, count=count, length=length, seed=options.seed)
    print(f"calibration: {len(texts)} texts, {sum(map(len, texts))} tokens", flush=True)
    return texts


def _written(source: Path, options: argparse.Namespace, texts: list[list[int]]) -> str:
    """Write the folder; how many matrices it has."""
    from runtimes.llm.calibration.writer import Calibration, write_calibrated
    from runtimes.llm.weights.quantized_writer import write_quantized

    folder, bits, group = options.folder, options.bits, options.group
    if options.method == "rtn":
        return f"{write_quantized(source, folder, bits, group)} matrices of {bits} bits"
    how = Calibration(bits, group, options.method, options.act_order is not False)
    written = write_calibrated(source, folder, how, texts)
    summary = f"{written.matrices} matrices of {bits} bits"
    return f"{summary}, {written.nearest} of them rounded to the nearest" if written.nearest else summary


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace models quantize", description=__doc__, formatter_class=HelpFormatter
    )
    add = parser.add_argument
    add("model", help="a folder of safetensors, or hf:ORG/NAME")
    add("folder", type=Path, help="folder to write, which must not exist")
    add("--bits", type=int, choices=[4, 8], default=4, help="bits of a weight")
    add("--group", type=int, choices=[32, 64, 128], default=32, help="weights of a row that share a scale")
    add(
        "--method",
        choices=["rtn", "gptq", "awq"],
        default="rtn",
        help="rtn rounds to the nearest; gptq changes the other weights to make up for what rounding does to"
        " the --calibration texts; awq rounds columns that multiply large numbers there more finely",
    )
    add("--calibration", type=Path, metavar="FILE", help="texts: a *.jsonl file, or a plain text that is cut up")
    add("--calibration-texts", type=_count(1, 4096), default=128, metavar="N", help="texts that are used at most")
    add("--calibration-length", type=_count(16, 8192), default=512, metavar="N", help="tokens of a text at most")
    add("--seed", type=int, default=0, help="draws the texts where there are more of them")
    add(
        "--act-order",
        action=argparse.BooleanOptionalAction,
        help="gptq: round the columns with the largest inputs first (the default), or in their own order",
    )
    add("--text", type=Path, help="text for the perplexity; the manual of Python's language if not given")
    add(
        "--tokens",
        type=int,
        default=4096,
        help="tokens of it that are read; 0 measures nothing, and a model that embeds or ranks is never measured",
    )
    return parser


def _count(least: int, greatest: int) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= greatest:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} to {greatest}")
        return int(text)

    return parsed


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

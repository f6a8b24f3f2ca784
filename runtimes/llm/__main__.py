"""An OpenAI-compatible server for one language model."""

import argparse
import functools
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from runtimes.access import take_key
from runtimes.arguments import MAX_HELD_HELP, HelpFormatter, held_bytes, port, positive, size, size_or_share
from runtimes.process import OneLine, importing

# The modules of the extra llm.
EXTRA = {"gguf", "huggingface_hub", "jinja2", "llguidance", "numpy", "safetensors", "tokenizers", "torch"}

_ENGINE = (
    "dtype", "device", "weights", "executor", "threads", "max_model_len", "max_num_seqs", "max_num_batched_tokens",
    "kv_cache_dtype", "max_queue", "prefix_cache", "tensor_parallel",
)  # fmt: skip
"""Options with the name of a field of `EngineConfig`."""


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")

_SPECULATION = ("kind", "tokens", "model", "weights")


def main(arguments: list[str] | None = None) -> int:
    """Run the server. Returns the exit status: 0 after a drain, 1 if it cannot start, 2 for a wrong command line."""
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.socket is None and args.port is None:
        parser.error("give --socket PATH or --port N")
    _log_to_stderr()
    # Without this, OpenMP's threads spin while they wait, which on cores shared with a gateway and its clients makes
    # a step several times slower. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with importing("llm", EXTRA):
        from runtimes.llm.engine.async_engine import EngineConfig
        from runtimes.llm.engine.speculation import Speculation
        from runtimes.llm.service import MAX_BODY, ServiceOptions, run
    try:
        speculation = None if args.speculation is None else Speculation(**args.speculation)
    except TypeError:
        parser.error("argument --speculation: kind is missing")
    except ValueError as error:
        parser.error(f"argument --speculation: {error}")
    options = ServiceOptions(
        model=args.model,
        served_name=args.served_name or args.model,
        engine_config=functools.partial(
            EngineConfig,
            kv_cache_bytes=int(args.kv_cache),
            kv_cache_share=None if isinstance(args.kv_cache, int) else args.kv_cache,
            speculation=speculation,
            **{name: getattr(args, name) for name in _ENGINE},
        ),
        pooling=args.pooling,
        matryoshka=args.matryoshka,
        task=args.task,
        adapters=_adapters(parser, args),
        max_adapters=args.max_adapters,
        sampling=args.sampling,
        socket=args.socket,
        host=args.host,
        port=args.port,
        max_held=held_bytes(parser, args.max_held, MAX_BODY),
        drain_seconds=args.drain_seconds,
        exit_with_parent=args.exit_with_parent,
        key=take_key(),
    )
    return run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtimes.llm", description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("--model", required=True, help="bundled:NAME, hf:ORG/NAME, hf:ORG/NAME/FILE.gguf or a path")
    add("--served-name", help="name for clients; the model's own if not given")
    add("--socket", type=Path, help="listen on this Unix socket")
    add("--host", default="127.0.0.1", help="listen on this address, if --port is given")
    add(
        "--port",
        type=port,
        metavar="PORT",
        help="listen on this port; 0 selects a free port, which is logged",
    )
    add("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add(
        "--weights",
        choices=["auto", "unquantized", "int8", "int4", "stored"],
        default="auto",
        help="storage of weight matrices: as --dtype, 8 or 4 bits, or the blocks of a GGUF file",
    )
    add(
        "--executor",
        choices=["auto", "native", "torch"],
        default="auto",
        help="implementation of a step: C++ or torch; auto selects C++ if it compiles and supports the model",
    )
    add("--threads", type=positive, help="CPU threads, of each process; torch's choice if not given")
    add(
        "--tensor-parallel",
        type=positive,
        default=1,
        metavar="N",
        help="processes of this machine that compute each step together, in torch, each with a part of the model",
    )
    add(
        "--max-model-len",
        type=positive,
        help="longest prompt plus completion in tokens; the most that fits if not given",
    )
    add("--max-num-seqs", type=positive, default=64, help="sequences in one step")
    add("--max-num-batched-tokens", type=positive, default=512, help="tokens in one step")
    add("--kv-cache", type=size_or_share, default="1GiB", help="memory for the KV cache: 512MiB, or 30%% of all memory")
    add(
        "--kv-cache-dtype",
        choices=["auto", "int8"],
        default="auto",
        help="number format of the KV cache: as --dtype, or int8",
    )
    add("--max-queue", type=positive, default=256, help="sequences that may wait")
    add("--no-prefix-cache", dest="prefix_cache", action="store_false", help="do not reuse computed prompt prefixes")
    add(
        "--pooling",
        choices=["auto", "mean", "last", "cls"],
        default="auto",
        help="hidden states that form an embedding; auto: as the model's files specify, else the last one, and the mean"
        " for an encoder",
    )
    add(
        "--matryoshka",
        action="store_true",
        help="let clients truncate embeddings to any `dimensions`, for models trained for it",
    )
    add(
        "--task",
        choices=[
            "auto",
            "rerank",
            "retrieval.query",
            "retrieval.passage",
            "separation",
            "classification",
            "text-matching",
        ],
        default="auto",
        help="rerank: Qwen 3 Reranker, whose files are those of a chat model; retrieval.query and the others: an"
        " adapter of Jina v3; auto: as the model's files specify",
    )
    add(
        "--sampling",
        type=functools.partial(_json_object, _SAMPLING),
        default={},
        metavar="JSON",
        help="sampling of requests that leave a field out, in place of the model's own recommendation: an object of"
        " temperature, top_p, top_k, min_p and repetition_penalty",
    )
    add(
        "--adapters",
        type=_names,
        default={},
        metavar="JSON",
        help="LoRA adapters: an object of model names for clients, each with a folder of PEFT's files or hf:ORG/NAME",
    )
    add("--max-adapters", type=positive, default=8, help="adapters in memory; others are loaded for their next request")
    add(
        "--speculation",
        type=functools.partial(_json_object, _SPECULATION),
        metavar="JSON",
        help="compute several tokens of an answer in one step where that saves time: an object of kind, which is ngram"
        " or draft_model, tokens, the most that are proposed in one step (8), and of a draft_model its model and"
        " weights, which are those of --weights if absent",
    )
    add("--max-held", type=size, help=MAX_HELD_HELP)
    add("--drain-seconds", type=float, default=30.0, help="seconds that SIGTERM waits for requests in flight")
    add("--exit-with-parent", action="store_true", help="stop when stdin, a pipe from the parent process, closes")
    return parser


def _json_object(names: tuple[str, ...], text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict) or (unknown := value.keys() - set(names)):
        reason = f"{sorted(unknown)[0]} is none of {', '.join(names)}" if isinstance(value, dict) else "no object"
        raise argparse.ArgumentTypeError(reason)
    return value


def _names(text: str) -> dict[str, str]:
    value = json.loads(text)
    if not isinstance(value, dict) or not all(name and isinstance(path, str) and path for name, path in value.items()):
        raise argparse.ArgumentTypeError("no object of names and paths")
    return value


def _adapters(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, str]:
    adapters: dict[str, str] = args.adapters
    if (args.served_name or args.model) in adapters:
        parser.error(f"--adapters: {args.served_name or args.model} is the name of the model itself")
    return adapters


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


if __name__ == "__main__":
    sys.exit(main())

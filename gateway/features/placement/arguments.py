"""The arguments of bundled runtimes, apart from those of their address."""

from config.schema.config import LlmRuntime, TensorRuntime
from config.schema.units import format_size_or_share


def llm_arguments(name: str, config: LlmRuntime, cores: int) -> list[str]:
    """The arguments of an LLM that is served as `name` on a number of cores; 0 for all."""
    line = ["--model", config.model, "--served-name", name, "--dtype", config.dtype, "--device", config.device]
    line += ["--weights", config.weights, "--executor", config.executor]
    line += ["--max-num-seqs", str(config.max_num_seqs), "--max-queue", str(config.max_queue)]
    line += ["--max-num-batched-tokens", str(config.max_num_batched_tokens)]
    line += ["--kv-cache", format_size_or_share(config.kv_cache), "--kv-cache-dtype", config.kv_cache_dtype]
    line += ["--pooling", config.pooling] + (["--matryoshka"] if config.matryoshka else [])
    if not config.prefix_cache:
        line.append("--no-prefix-cache")
    if threads := config.threads or cores:
        line += ["--threads", str(threads)]
    if config.max_model_len is not None:
        line += ["--max-model-len", str(config.max_model_len)]
    return line


def tensor_arguments(config: TensorRuntime) -> list[str]:
    """The arguments of a repository of models."""
    line = ["--repository", config.repository, "--mode", config.mode, "--cache-size", str(config.cache)]
    if config.mode == "poll":
        line += ["--poll-interval", f"{config.poll_interval}s"]
    if config.memory is not None:
        line += ["--memory-budget", str(config.memory)]
    for model in config.models:
        line += ["--load", model]
    for bundled in config.bundled:
        line += ["--add", bundled]
    for variable in (*config.env, *config.secrets):
        line += ["--pass-env", variable]
    return line

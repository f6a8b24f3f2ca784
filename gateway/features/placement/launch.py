"""The launch of a runtime: its command line, its environment, and the address where it listens."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adapters.process import inherited
from config.schema.config import LlmRuntime, RuntimeConfig, TensorRuntime
from config.schema.units import format_size_or_share


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a runtime. `address`: an endpoint's URL. `stop_seconds`: the time between SIGTERM and SIGKILL."""

    command: list[str]
    address: str
    stop_seconds: float
    env: Mapping[str, str]
    """The whole environment of the process."""
    cwd: Path | None = None

    @property
    def socket(self) -> Path | None:
        """The path of the Unix socket where it listens; None for TCP."""
        kind, _, path = self.address.partition(":")
        return Path(path) if kind == "unix" else None


def environment(ours: Mapping[str, str], written: Mapping[str, str], config: RuntimeConfig) -> dict[str, str]:
    """The variables of a runtime's process: the inherited ones, those of its section, and its secrets."""
    secret = {name: value.get_secret_value() for name, value in config.secrets.items()}
    return {**inherited(ours), **written, **secret}


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

"""How busy a server is, read from its metrics in Prometheus' text format.

The names are those of the servers' own sources and documentation, current and former ones.
"""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Report(NamedTuple):
    """Requests that run and that wait, over all models and engines of the server, and its KV cache in use, 0 … 1."""

    running: float
    waiting: float
    cache: float


class _Names(NamedTuple):
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    cache: tuple[str, ...] = ()


SERVERS = {
    "vllm": _Names(
        ("vllm:num_requests_running",),
        ("vllm:num_requests_waiting",),
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),  # the second until 0.10
    ),
    "sglang": _Names(("sglang:num_running_reqs",), ("sglang:num_queue_reqs",), ("sglang:token_usage",)),
    "llama.cpp": _Names(
        ("llamacpp:requests_processing",), ("llamacpp:requests_deferred",), ("llamacpp:kv_cache_usage_ratio",)
    ),
    "tgi": _Names(("tgi_batch_current_size",), ("tgi_queue_size",)),
    "tensorrt-llm": _Names(
        ("trtllm_num_requests_running",), ("trtllm_num_requests_waiting",), ("trtllm_kv_cache_utilization",)
    ),
    "triton": _Names((), ("nv_inference_pending_request_count",)),
    "headrace": _Names(
        ("headrace_llm_num_requests_running",),
        ("headrace_llm_num_requests_waiting",),
        ("headrace_llm_kv_cache_usage_perc",),
    ),
}


def read(body: bytes, server: str) -> Report | None:
    """What `server` (or, for ``auto``, any of them) reports; None when nothing known is in it.

    Raises `ValueError` for what is not in the format. Several engines or ranks behind one address add up, and
    of their caches the mean counts. Only the lines wanted are parsed: a vLLM's page has thousands.
    """
    candidates = SERVERS.values() if server == "auto" else (SERVERS[server],)
    wanted = {name for names in candidates for kind in names for name in kind}
    found = _samples(body, wanted)
    for names in candidates:
        running, waiting, cache = ([v for name in kind for v in found.get(name, ())] for kind in names)
        if running or waiting:
            return Report(sum(running), sum(waiting), sum(cache) / len(cache) if cache else 0.0)
    return None


def _samples(body: bytes, wanted: set[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    prefixes = tuple(name.encode() for name in wanted)
    lines = [line for line in body.split(b"\n") if line.startswith(prefixes)]
    for name, value in _parsed(b"\n".join(lines).decode("utf-8", "replace")):
        if name in wanted:
            found.setdefault(name, []).append(value)
    return found


def _parsed(text: str) -> Iterator[tuple[str, float]]:
    try:
        families = list(text_string_to_metric_families(text + "\n"))
    except Exception:  # whatever the parser stumbles over
        raise ValueError("is not in Prometheus' text format") from None
    for family in families:
        for sample in family.samples:
            if not 0 <= sample.value < float("inf"):  # NaN too
                raise ValueError(f"{sample.name} is no number of requests")
            yield sample.name, sample.value

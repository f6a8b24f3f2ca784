"""Reads a server's load from its metrics: Prometheus' text format, and TensorRT-LLM's and TorchServe's JSON.

Metric names come from the servers' sources and documentation, current and former versions, and include those of the
Kubernetes Gateway API Inference Extension.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from adapters.errors import BackendError
from adapters.wire import decoding, torchserve


class ServerLoad(NamedTuple):
    """Running and waiting requests over all models and engines of a server, and the used share of its KV cache."""

    running: float
    waiting: float
    cache: float
    adapters: frozenset[str] = frozenset()
    """LoRA adapters that are loaded or loading."""
    block_size: int = 0
    """Tokens in a block of the cache; 0 if it is not reported."""
    blocks: int = 0
    """Blocks of one engine's cache."""


class _Names(NamedTuple):
    """Metric names, current and former.

    `NAME{LABEL=VALUE}` selects the samples with that label. `NAME/LABEL` is the label's value instead of the number.
    """

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    cache: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    block_size: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()


SERVERS = {
    "vllm": _Names(
        ("vllm:num_requests_running",),
        ("vllm:num_requests_waiting",),
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),  # the second name until 0.10
        ("vllm:lora_requests_info/running_lora_adapters", "vllm:lora_requests_info/waiting_lora_adapters"),
        ("vllm:cache_config_info/block_size",),
        ("vllm:cache_config_info/num_gpu_blocks",),
    ),
    "sglang": _Names(
        ("sglang:num_running_reqs",),
        ("sglang:num_queue_reqs",),
        ("sglang:token_usage",),
        (),
        ("sglang:cache_config_info/page_size",),
        ("sglang:cache_config_info/num_pages",),
    ),
    "llama.cpp": _Names(
        ("llamacpp:requests_processing",), ("llamacpp:requests_deferred",), ("llamacpp:kv_cache_usage_ratio",)
    ),
    "tgi": _Names(("tgi_batch_current_size",), ("tgi_queue_size",)),
    "tensorrt-llm": _Names(
        ("trtllm_num_requests_running",),
        ("trtllm_num_requests_waiting",),
        ("trtllm_kv_cache_utilization",),
        (),
        ("trtllm_kv_cache_tokens_per_block",),
        ("trtllm_kv_cache_max_blocks",),
    ),
    "triton-tensorrt-llm": _Names(
        ("nv_trt_llm_request_metrics{request_type=scheduled}",),
        ("nv_trt_llm_request_metrics{request_type=waiting}",),
        ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",),
        (),
        ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",),
        ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",),
    ),
    "triton": _Names((), ("nv_inference_pending_request_count",)),
    "openvino": _Names(("ovms_current_requests",), ()),
    "ray": _Names(("ray_serve_replica_processing_queries",), ("ray_serve_deployment_queued_queries",)),
    "bentoml": _Names(("bentoml_service_request_in_progress",), ()),
    "headrace": _Names(
        ("headrace_llm_num_requests_running",),
        ("headrace_llm_num_requests_waiting",),
        ("headrace_llm_kv_cache_usage_perc",),
        (),
        ("headrace_llm_cache_config_info/block_size",),
        ("headrace_llm_cache_config_info/num_gpu_blocks",),
    ),
}


def read(body: bytes, server: str) -> ServerLoad | None:
    """Read the load that `server` (or, for ``auto``, any server) reports; None without a supported metric.

    Raises `ValueError` for another format. The values of several engines or ranks behind one address are added; the use
    of their caches is averaged. Lines of other metrics are not parsed: a page of vLLM's has thousands.
    """
    if server == "torchserve":
        return _workers(body)
    if body[:1] == b"[" and server in ("auto", "tensorrt-llm"):
        return _iterations(body)
    candidates = SERVERS.values() if server == "auto" else (SERVERS[server],)
    match = _samples(body, {_metric(name) for names in candidates for kind in names for name in kind})
    for names in candidates:
        running, waiting, cache = (_numbers(match, kind) for kind in names[:3])
        if running or waiting:
            mean = sum(cache) / len(cache) if cache else 0.0
            size, blocks = (_first(_numbers(match, kind)) for kind in names[4:])
            return ServerLoad(sum(running), sum(waiting), mean, _adapters(match, names.adapters), size, blocks)
    return None


class _Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


_Samples = dict[str, list[_Sample]]


def _metric(name: str) -> str:
    return name.partition("{")[0].partition("/")[0]


def _numbers(page: _Samples, names: tuple[str, ...]) -> list[float]:
    """Return the values of all samples with one of the names."""
    numbers: list[float] = []
    for name in names:
        samples = page.get(_metric(name), ())
        if "/" in name:
            labels = [sample.labels.get(name.partition("/")[2], "") for sample in samples]
            numbers += [float(text) for text in labels if text.isdecimal() and len(text) < 16]
        else:
            label, _, value = name.partition("{")[2].rstrip("}").partition("=")
            numbers += [sample.value for sample in samples if not label or sample.labels.get(label) == value]
    return numbers


def _first(numbers: list[float]) -> int:
    return int(numbers[0]) if numbers else 0


def _adapters(page: _Samples, names: tuple[str, ...]) -> frozenset[str]:
    """Return the adapters of the newest sample; the value of a sample is its time."""
    listed: list[str] = []
    for name in names:
        if samples := page.get(_metric(name)):
            newest = max(samples, key=lambda sample: sample.value)
            listed += newest.labels.get(name.partition("/")[2], "").split(",")
    return frozenset(name.strip() for name in listed if name.strip())


def _samples(body: bytes, requested: set[str]) -> _Samples:
    values: _Samples = {}
    prefixes = tuple(name.encode() for name in requested)
    lines = [line for line in body.split(b"\n") if line.startswith(prefixes)]
    for name, sample in _parsed(b"\n".join(lines).decode("utf-8", "replace")):
        if name in requested:
            values.setdefault(name, []).append(sample)
    return values


def _parsed(text: str) -> Iterator[tuple[str, _Sample]]:
    try:
        families = list(text_string_to_metric_families(text + "\n"))
    except Exception:  # the parser raises various exceptions
        raise ValueError("is not in Prometheus' text format") from None
    for family in families:
        for sample in family.samples:
            if not 0 <= sample.value < float("inf"):  # also excludes NaN
                raise ValueError(f"{sample.name} is not a number of requests")
            yield sample.name, _Sample(sample.labels, sample.value)


# ── trtllm-serve's JSON ───────────────────────────────────────────────────────────────────────────────────


class _Cache(msgspec.Struct, rename="camel"):
    used_num_blocks: float = 0
    max_num_blocks: float = 0
    tokens_per_block: float = 0


class _Iteration(msgspec.Struct, rename="camel"):
    num_active_requests: float = 0
    num_queued_requests: float = 0
    kv_cache_stats: _Cache | None = None


_decode = msgspec.json.Decoder(list[_Iteration]).decode


def _iterations(body: bytes) -> ServerLoad:
    """Read the engine's steps since the last request for them; an idle engine reports no steps."""
    try:
        steps = _decode(body)
    except decoding.MALFORMED_JSON:
        raise ValueError("is not a list of iterations") from None
    if not steps:
        return ServerLoad(0.0, 0.0, 0.0)
    last, cache = steps[-1], steps[-1].kv_cache_stats or _Cache()
    encoded: list[Any] = [last.num_active_requests, last.num_queued_requests, *msgspec.structs.astuple(cache)]
    if not all(0 <= number < 2**53 for number in encoded):
        raise ValueError("has a negative number, or none")
    used = cache.used_num_blocks / cache.max_num_blocks if cache.max_num_blocks else 0.0
    blocks = int(cache.tokens_per_block), int(cache.max_num_blocks)
    return ServerLoad(last.num_active_requests, last.num_queued_requests, min(used, 1.0), frozenset(), *blocks)


# ── TorchServe's management API ───────────────────────────────────────────────────────────────────────────


def _workers(body: bytes) -> ServerLoad:
    """Read a model's description, which has the queues of all versions; the metrics have no queues."""
    try:
        versions = torchserve.decode_described(body)
    except BackendError:
        raise ValueError("is not a description of a model") from None
    return ServerLoad(0.0, float(sum(version.pending for version in versions)), 0.0)

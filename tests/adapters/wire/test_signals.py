import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.signals import SERVERS, ServerLoad, read

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_running_elsewhere 100.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="m"} 0.0
"""
TRITON = b"""\
nv_inference_pending_request_count{model="a",version="1"} 2
nv_inference_pending_request_count{model="b",version="1"} 5
nv_inference_request_success{model="a",version="1"} 12345
"""


def test_engines_add_up_and_their_caches_are_averaged() -> None:
    assert read(VLLM, "vllm") == read(VLLM, "auto") == ServerLoad(7.0, 1.0, 0.5)


def test_a_former_name_is_read_too() -> None:
    assert read(b"vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.9\n", "vllm") == ServerLoad(1.0, 0.0, 0.9)


def test_models_of_one_server_add_up() -> None:
    assert read(TRITON, "auto") == ServerLoad(0.0, 7.0, 0.0)


def line(name: str, value: object) -> str:
    """A sample of the metric `name` with this value."""
    metric, _, label = name.partition("/")
    if label:
        return f'{metric}{{{label}="{value}"}} 1\n'
    metric, _, label = name.rstrip("}").partition("{")
    label, _, label_value = label.partition("=")
    return f'{metric}{{{label}="{label_value}"}} {value}\n' if label else f"{metric} {value}\n"


@pytest.mark.parametrize("server", SERVERS)
def test_every_server_is_recognised_by_its_own_names(server: str) -> None:
    names = SERVERS[server]
    page = "".join(line(kind[0], value) for kind, value in zip(names, (2, 3, 0.5, "a,b", 16, 100), strict=True) if kind)
    expected = ServerLoad(
        2.0 if names.running else 0.0,
        3.0 if names.waiting else 0.0,
        0.5 if names.cache else 0.0,
        frozenset({"a", "b"} if names.adapters else ()),
        16 if names.block_size else 0,
        100 if names.blocks else 0,
    )
    assert read(page.encode(), "auto") == read(page.encode(), server) == expected


def test_another_servers_page_has_no_load() -> None:
    assert read(TRITON, "vllm") is None
    assert read(b"", "auto") is None


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "many", ""])
def test_a_malformed_count_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        read(f"vllm:num_requests_running {value}\n".encode(), "auto")


@given(st.binary(max_size=300))
def test_no_bytes_break_it(tail: bytes) -> None:
    try:
        report = read(b"vllm:num_requests_running 1\nvllm:num_requests_waiting" + tail, "auto")
    except ValueError:
        return
    assert report is not None


def test_of_the_samples_of_one_name_those_with_the_label_count() -> None:
    page = b"""\
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 2
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 5
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.25
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="m",version="1"} 64
nv_inference_pending_request_count{model="m",version="1"} 7
"""
    assert read(page, "triton-tensorrt-llm") == read(page, "auto") == ServerLoad(5.0, 2.0, 0.25, block_size=64)
    assert read(page, "triton") == ServerLoad(0.0, 7.0, 0.0)


def test_the_newest_list_of_adapters_counts_with_those_that_wait() -> None:
    page = b"""\
vllm:num_requests_running 1
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 100.5
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql, chat",waiting_lora_adapters="next"} 200.5
vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1
"""
    assert read(page, "auto") == ServerLoad(1.0, 0.0, 0.0, frozenset({"sql", "chat", "next"}), 16, 0)


STEP = {
    "iter": 7,
    "numActiveRequests": 3,
    "numQueuedRequests": 2,
    "kvCacheStats": {"usedNumBlocks": 25, "maxNumBlocks": 100, "freeNumBlocks": 75, "tokensPerBlock": 32},
}


def test_trtllm_serve_reports_its_last_step_in_json() -> None:
    page = json.dumps([{"numActiveRequests": 9}, STEP]).encode()
    assert read(page, "tensorrt-llm") == read(page, "auto") == ServerLoad(3.0, 2.0, 0.25, block_size=32, blocks=100)
    assert read(b"[]", "auto") == ServerLoad(0.0, 0.0, 0.0)
    assert read(json.dumps([{"numActiveRequests": 1, "kvCacheStats": None}]).encode(), "auto") == ServerLoad(
        1.0, 0.0, 0.0
    )


@pytest.mark.parametrize("page", [b"[1]", b"[", b'[{"numActiveRequests": -1}]', b'[{"numQueuedRequests": 1e300}]'])
def test_a_malformed_list_of_steps_is_refused(page: bytes) -> None:
    with pytest.raises(ValueError):
        read(page, "tensorrt-llm")


def test_torchserve_reports_the_queue_of_each_version_of_a_model() -> None:
    versions = [
        {"modelVersion": name, "jobQueueStatus": {"pendingRequests": count}} for name, count in (("1", 3), ("2", 4))
    ]
    assert read(json.dumps(versions).encode(), "torchserve") == ServerLoad(0.0, 7.0, 0.0)
    with pytest.raises(ValueError):
        read(b'{"code": 404}', "torchserve")

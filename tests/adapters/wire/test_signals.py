import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.signals import SERVERS, Report, read

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
    assert read(VLLM, "vllm") == read(VLLM, "auto") == Report(7.0, 1.0, 0.5)


def test_a_former_name_is_known_too() -> None:
    assert read(b"vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.9\n", "vllm") == Report(1.0, 0.0, 0.9)


def test_models_of_one_server_add_up() -> None:
    assert read(TRITON, "auto") == Report(0.0, 7.0, 0.0)


@pytest.mark.parametrize("server", SERVERS)
def test_every_server_is_found_by_its_own_names(server: str) -> None:
    names = SERVERS[server]
    page = "".join(f"{name} {value}\n" for kind, value in zip(names, (2, 3, 0.5), strict=True) for name in kind[:1])
    expected = Report(2.0 if names.running else 0.0, 3.0, 0.5 if names.cache else 0.0)
    assert read(page.encode(), "auto") == read(page.encode(), server) == expected


def test_another_server_s_page_says_nothing() -> None:
    assert read(TRITON, "vllm") is None
    assert read(b"", "auto") is None


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "many", ""])
def test_what_is_no_count_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        read(f"vllm:num_requests_running {value}\n".encode(), "auto")


@given(st.binary(max_size=300))
def test_no_bytes_break_it(tail: bytes) -> None:
    try:
        report = read(b"vllm:num_requests_running 1\nvllm:num_requests_waiting" + tail, "auto")
    except ValueError:
        return
    assert report is not None

"""Servers that the autoscaler asks may answer anything: each look is a value or its own failure."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.features.scaling import pool_scale
from gateway.features.scaling.serving import HttpServeOrders, ServeError
from gateway.features.scaling.sleeping import HttpSleepOrders, SleepError
from tests.support.bad_answers import DIGITS, bad_json

DEPLOYMENT = {"target_num_replicas": 1, "replicas": [{"state": "RUNNING"}]}
APPLICATIONS = {"applications": {"a": {"deployments": {"d": DEPLOYMENT}}}}
METRICS = b"""vllm:num_requests_running{engine="0"} 1.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:cache_config_info{block_size="%b",num_gpu_blocks="%b"} 1.0
"""


def answering(body: bytes) -> Any:
    async def answer(*_: object) -> bytes:
        return body

    return answer


@given(bad_json({"is_sleeping": True}))
async def test_any_answer_about_sleep_is_a_value_or_a_failure(body: bytes) -> None:
    orders: Any = HttpSleepOrders(lambda: None)  # type: ignore[arg-type, return-value]
    orders._get = answering(body)
    try:
        assert isinstance(await orders.asleep("http://a"), bool)
    except SleepError:
        return


@given(bad_json(APPLICATIONS))
async def test_any_list_of_applications_is_a_size_or_a_failure(body: bytes) -> None:
    orders: Any = HttpServeOrders(lambda: None)  # type: ignore[arg-type, return-value]
    orders._call, orders._names = answering(body), lambda: ("a", "d")
    try:
        assert (await orders.size()).running in (0, 1)
    except ServeError:
        return


@given(st.binary(max_size=40) | st.sampled_from([METRICS % (b"16", b"9")]))
@example(METRICS % (DIGITS, DIGITS))
@example(METRICS % (b"\xc2\xb2", b"\xef\xbc\x91"))
async def test_any_page_of_metrics_is_a_share_or_none(body: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_scale, "fetch", answering(body))
        assert 0 <= await pool_scale.occupancy({"http://a": "vllm"}) <= 1

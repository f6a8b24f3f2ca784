from hypothesis import given
from hypothesis import strategies as st

from gateway.process.supervisor.share import part, share
from tests.support.gateways import config


@given(st.integers(1, 100_000), st.integers(1, 256))
def test_parts_add_up_to_the_whole_and_none_is_zero(total: int, workers: int) -> None:
    parts = [part(total, slot, workers) for slot in range(workers)]
    assert sum(parts) == max(total, workers)
    assert max(parts) - min(parts) <= 1


def test_connections_are_divided_and_nothing_else_is() -> None:
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "max_connections": 10}]
    whole = config(pools=pools, http={"max_connections": 1001})
    shares = [share(whole, slot, 4) for slot in range(4)]
    assert [one.pools[0].max_connections for one in shares] == [3, 3, 2, 2]
    assert [one.http.max_connections for one in shares] == [251, 250, 250, 250]
    for one in shares:
        http = one.http.model_copy(update={"max_connections": 1001})
        pool = one.pools[0].model_copy(update={"max_connections": 10})
        assert one.model_copy(update={"http": http, "pools": (pool,)}) == whole
    assert share(whole, 0, 1) is whole


def test_the_slots_of_an_endpoint_with_a_queue_are_divided() -> None:
    queue = {"max_in_flight": 64, "max": 1000}
    pools = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": queue}]
    shares = [share(config(pools=pools), slot, 4) for slot in range(4)]
    assert [one.pools[0].max_in_flight for one in shares] == [16] * 4

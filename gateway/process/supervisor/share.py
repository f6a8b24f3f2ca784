"""One worker's share of limits that are configured for the whole host."""

from config.schema.config import Config


def share(config: Config, slot: int, workers: int) -> Config:
    """Divide connection limits among the workers; each worker gets at least one.

    The limit of requests in flight at an endpoint is divided, too.
    """
    if workers == 1:
        return config
    http = config.http.model_copy(update={"max_connections": part(config.http.max_connections, slot, workers)})
    pools = tuple(
        pool.model_copy(update={"max_connections": part(pool.max_in_flight, slot, workers)}) for pool in config.pools
    )
    return config.model_copy(update={"http": http, "pools": pools})


def part(total: int, slot: int, workers: int) -> int:
    """The share of one slot. The first slots get the remainder."""
    return max(1, total // workers + (slot < total % workers))

"""One worker's part of what is configured for the whole host."""

from config.schema.config import Config


def share(config: Config, slot: int, workers: int) -> Config:
    """Numbers of connections divided, so that all workers together have what is written, and each at least one.

    What an endpoint takes at a time where others wait in a queue is divided with them.
    """
    if workers == 1:
        return config
    http = config.http.model_copy(update={"max_connections": part(config.http.max_connections, slot, workers)})
    pools = tuple(
        pool.model_copy(update={"max_connections": part(pool.max_in_flight, slot, workers)}) for pool in config.pools
    )
    return config.model_copy(update={"http": http, "pools": pools})


def part(total: int, slot: int, workers: int) -> int:
    """The first workers take what cannot be divided."""
    return max(1, total // workers + (slot < total % workers))

"""How many files, sockets included, this process may open."""

import logging
import resource

log = logging.getLogger(__name__)
BESIDE = 128
"""Files beside the connections of clients: listeners, the key database, logs, pipes of runtimes."""


def raise_limit(connections: int) -> int:
    """Raise the soft limit to the hard one; the limit in force. Logs a limit below what `connections` clients need.

    A client's request takes a connection to an upstream, too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
    needed = 2 * connections + BESIDE
    if soft != resource.RLIM_INFINITY and soft < needed:
        log.warning(
            "this process may open %d files, and %d clients at once need up to %d: raise the limit (`ulimit -n`), or "
            "lower http.max_connections to %d",
            soft, connections, needed, max(1, (soft - BESIDE) // 2),
        )  # fmt: skip
    return soft

"""How many files, sockets included, this process may open, and how many clients fit into that."""

import logging
import resource

log = logging.getLogger(__name__)
MAX_CONNECTIONS = 4096
"""Clients of a runtime, where the limit allows so many."""
BESIDE = 128
"""Files beside the connections of clients: listeners, the admin listener's clients, the key database, logs, pipes."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one, for this process and those that it starts; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
    return soft


def clients_that_fit(wanted: int, files_each: int) -> int:
    """How many of the wanted connections of clients one listener may have. Logs a number that is below."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or BESIDE + wanted * files_each <= limit:
        return wanted
    fit = max(1, (limit - BESIDE) // files_each)
    log.warning(
        "each listener serves at most %d clients at once instead of %d, as this process may open only %d files: raise "
        "the limit (`ulimit -n`)",
        fit, wanted, limit,
    )  # fmt: skip
    return fit

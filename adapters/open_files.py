"""The limit of open files, including sockets, and the number of clients within this limit."""

import logging
import resource

log = logging.getLogger(__name__)
MAX_CONNECTIONS = 4096
"""Maximum number of a runtime's clients, if the limit of open files permits it."""
BESIDE = 128
"""Files other than client connections: listeners, the clients of the admin listener, the key database, logs, pipes."""


def raise_limit() -> int:
    """Raise the soft limit of this process and its children to the hard limit. Returns the effective limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
    return soft


def clients_that_fit(required: int, files_each: int) -> int:
    """Return the number of client connections that one listener may have, at most `required`. Logs a reduction."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or BESIDE + required * files_each <= limit:
        return required
    fit = max(1, (limit - BESIDE) // files_each)
    log.warning(
        "each listener serves at most %d clients at once instead of %d, as this process may open only %d files: raise "
        "the limit (`ulimit -n`)",
        fit, required, limit,
    )  # fmt: skip
    return fit

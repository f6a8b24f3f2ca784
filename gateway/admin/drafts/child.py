"""The process that reads one draft: an order on standard input, its result on standard output."""

import os
import resource
import sys

import msgspec

MOST_MEMORY = 1024**3
"""Bytes of the process beyond the code that it loads."""
OUT_OF_MEMORY = 3
"""The exit status of an order that needed more memory."""
NICE = 5
"""The data plane has the processors first."""


def main() -> None:
    """Do one order within the bounds. A process that exceeds them ends, and writes nothing."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    os.nice(NICE)
    from gateway.admin.drafts.orders import DraftOrder
    from gateway.admin.drafts.work import done

    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=DraftOrder)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing but the result goes to standard output
    try:
        with output:
            output.write(msgspec.msgpack.encode(done(order)))
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)


if __name__ == "__main__":
    main()

"""Measures the cost of `requests`, on one machine, in one run: `python -m loadtests.bench_request_store --help`.

A gateway without records of requests, and one that stores the record of each in SQLite, are compared. Their writers are
in the gateways' own processes.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.gateways import variants


def with_requests(settings: dict[str, Any] | None, config: dict[str, Any], folder: Path) -> None:
    """Store the records of requests with these settings, or not at all."""
    if settings is not None:
        config["requests"] = settings


VARIANTS = {"off": partial(with_requests, None), "requests": partial(with_requests, {})}

if __name__ == "__main__":
    sys.exit(variants.main(__doc__, VARIANTS))

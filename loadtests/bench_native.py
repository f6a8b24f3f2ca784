"""Measures the CPU of a request and of a chunk with the native core and with Python alone, in interleaved rounds:
`python -m loadtests.bench_native --help`.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters import native
from loadtests.gateways import variants
from loadtests.gateways.workloads import streams

ENVIRONMENTS = {"python": {"HEADRACE_NATIVE": "0"}, "native": {"HEADRACE_NATIVE": "1"}}
STREAMS = tuple(replace(streams(count), figures=(variants.CHUNK_CPU,)) for count in (16, 64))


def unchanged(_config: dict[str, Any], _folder: Path) -> None:
    """The configuration of `bench_gateway`."""


if __name__ == "__main__":
    if not native.AVAILABLE:
        sys.exit("this installation has no native core: is there a compiler?")
    sys.exit(
        variants.main(
            __doc__,
            dict.fromkeys(ENVIRONMENTS, unchanged),
            environments=ENVIRONMENTS,
            workloads=(*variants.WORKLOADS, *STREAMS),
        )
    )

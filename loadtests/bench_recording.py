"""Measures the cost of `record`, on one machine, in one run: `python -m loadtests.bench_recording --help`.

Gateways without a recorder, and with one that records every request, without and with answers, are compared.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.gateways import variants


def with_record(settings: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Record traffic with these settings, or not at all."""
    if settings:
        config["record"] = {"to": str(folder / "traffic"), "key": "file:record.key", **settings}
        (folder / "record.key").write_text("a key for measurements")


VARIANTS = {
    "off": partial(with_record, {}),
    "requests": partial(with_record, {"share": "100%"}),
    "with-answers": partial(with_record, {"share": "100%", "answers": True}),
    "one-percent": partial(with_record, {"share": "1%"}),
}

if __name__ == "__main__":
    sys.exit(variants.main(__doc__, VARIANTS))

"""One place ends every exchange, and one table maps errors to statuses."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def files_with(pattern: str) -> set[str]:
    """Product files that hold the pattern."""
    files = [path for part in ("adapters", "gateway", "runtimes") for path in (ROOT / part).rglob("*.py")]
    return {str(path.relative_to(ROOT)) for path in files if re.search(pattern, path.read_text())}


def test_only_the_core_ends_an_exchange() -> None:
    assert files_with(r"telemetry\.end\(") == {"gateway/core.py"}


def test_only_the_table_pairs_classes_with_statuses() -> None:
    assert files_with(r"NotFound(: ErrorStatus)?[(,] ?40\d|NotFound, Code\.") == {"adapters/statuses.py"}

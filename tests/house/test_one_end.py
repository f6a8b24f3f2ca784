"""One place ends every exchange, and one table maps errors to statuses."""

from tests.house.tree import files_with


def test_only_the_core_ends_an_exchange() -> None:
    assert files_with(r"telemetry\.end\(") == {"gateway/request/core.py"}


def test_only_the_table_pairs_classes_with_statuses() -> None:
    assert files_with(r"NotFound(: ErrorStatus)?[(,] ?40\d|NotFound, Code\.") == {"adapters/statuses.py"}

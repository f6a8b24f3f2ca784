"""The signature that a request without a name is for."""

import pytest

from adapters.wire.tfserving.rest import signature_of

SERVING = "serving_default"


@pytest.mark.parametrize(
    ("declared", "name", "expected"),
    [
        ([SERVING, "other"], "", SERVING),
        (["score", "__saved_model_init_op"], "", "score"),
        (["score", "rank"], "", SERVING),
        (["__saved_model_init_op"], "", SERVING),
        ([], "", SERVING),
        ([SERVING], "unknown", "unknown"),
    ],
)
def test_a_request_without_a_name_is_for_the_default_or_the_only_signature(
    declared: list[str], name: str, expected: str
) -> None:
    assert signature_of(dict.fromkeys(declared), name) == expected

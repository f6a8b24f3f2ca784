"""Fields of KServe's v1 are values of steps, and become the same fields again."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError, StepFailed
from adapters.tensors import Tensor
from gateway.features.pipelines.bodies.json_values import (
    decode_fields,
    decode_request,
    encode_fields,
    encode_predictions,
)

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = NUMBERS | st.booleans() | st.none() | st.text(st.characters(codec="utf-8"))
MATRICES = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width)))
VALUES = MATRICES | st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=12,
)
FIELDS = st.dictionaries(st.sampled_from(["predictions", "label", "x_bytes", "a", "ü"]), VALUES)


@given(FIELDS)
def test_fields_become_the_same_fields(fields: dict[str, Any]) -> None:
    assert json.loads(encode_fields(decode_fields(json.dumps(fields).encode()))) == approximately(fields)


def approximately(value: Any) -> Any:
    """Integers beside floats of one list are doubles, as in every tensor."""
    if isinstance(value, dict):
        return {name: approximately(each) for name, each in value.items()}
    if isinstance(value, list):
        return [approximately(each) for each in value]
    return pytest.approx(value, rel=1e-15) if isinstance(value, int | float) and not isinstance(value, bool) else value


@given(st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_other_bodies_are_refused(body: bytes) -> None:
    for decode, error in ((decode_fields, BackendError), (decode_request, CallerError)):
        with contextlib.suppress(error):  # any other error fails the test
            assert isinstance(decode(body), dict)


def test_rectangular_lists_are_tensors_and_parameters_are_fields() -> None:
    body = {"instances": [[1, 2], [3, 4]], "mixed": [1, "a"], "rows": [{"a": 1}], "parameters": {"premium": True}}
    values = decode_request(json.dumps(body).encode())
    assert isinstance(values["instances"], Tensor)
    assert (values["instances"].datatype, values["instances"].shape) == ("INT64", (2, 2))
    assert (values["mixed"], values["rows"], values["premium"]) == ([1, "a"], [{"a": 1}], True)


def test_a_field_precedes_a_parameter() -> None:
    assert decode_request(b'{"a": 1, "parameters": {"a": 2, "b": 3}}') == {
        "a": 1,
        "b": 3,
        "parameters": {"a": 2, "b": 3},
    }


@given(st.lists(st.tuples(NUMBERS, st.text(st.characters(codec="utf-8"))), min_size=1), st.booleans())
def test_outputs_are_answered_by_row(rows: list[tuple[float, str]], by_row: bool) -> None:
    columns = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    answer = json.loads(encode_predictions(columns, by_row=by_row))
    expected = [{"a": a, "b": b} for a, b in rows] if by_row else columns
    assert answer == {"predictions" if by_row else "outputs": expected}


def test_outputs_that_differ_in_their_rows_are_refused() -> None:
    with pytest.raises(StepFailed, match="`a`, `b` of the pipeline have no row for each instance"):
        encode_predictions({"a": [1, 2], "b": [1]}, by_row=True)
    assert json.loads(encode_predictions({"a": [1, 2]}, by_row=True)) == {"predictions": [1, 2]}
    assert json.loads(encode_predictions({"a": [1]}, by_row=True, has_names=True)) == {"predictions": [{"a": 1}]}

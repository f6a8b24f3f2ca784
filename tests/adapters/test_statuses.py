"""Every class of errors has a status for every kind of client."""

from collections.abc import Iterator

import pytest

from adapters import errors, statuses
from adapters.errors import InferenceError
from adapters.http2.status import Code


def classes(base: type[InferenceError] = InferenceError) -> Iterator[type[InferenceError]]:
    yield base
    for kind in base.__subclasses__():
        yield from classes(kind)


def made(kind: type[InferenceError]) -> InferenceError:
    error = kind.__new__(kind)
    InferenceError.__init__(error, "message")
    return error


@pytest.mark.parametrize("kind", list(classes()), ids=lambda kind: kind.__name__)
def test_a_class_has_the_row_of_its_nearest_base(kind: type[InferenceError]) -> None:
    error = made(kind)
    nearest = next(base for base in kind.__mro__ if base in statuses.CLASSES)
    assert statuses.row_of(error) is statuses.CLASSES[nearest]
    assert 400 <= statuses.http_status(error) < 600
    assert 400 <= statuses.own_http_status(error) < 600
    assert statuses.grpc_code(error) is not Code.OK


@pytest.mark.parametrize("kind", [kind for kind in statuses.CLASSES if kind.kind == "caller"])
def test_the_caller_s_fault_is_never_a_server_error(kind: type[InferenceError]) -> None:
    error = made(kind)
    assert statuses.http_status(error) == statuses.own_http_status(error) < 500
    assert statuses.openai_type(error) == "invalid_request_error"


@pytest.mark.parametrize("code", statuses.OWN_CODES)
def test_a_code_of_its_own_is_more_precise_than_the_class(code: str) -> None:
    error = errors.CallerError("message", code=code)
    status, grpc = statuses.OWN_CODES[code]
    assert statuses.own_http_status(error) == status
    assert statuses.http_status(error) == (status if code in statuses.CODES else 400)
    assert statuses.grpc_code(error) == (grpc or Code.INVALID_ARGUMENT)


def test_a_gateway_reports_a_failure_behind_it_and_a_runtime_its_own() -> None:
    failed = errors.BackendError("message")
    assert (statuses.http_status(failed), statuses.own_http_status(failed)) == (502, 500)

"""Parts of the interface that require a secret."""

import pytest

from adapters.errors import Forbidden
from runtimes.tensor.api.restrictions import GRPC_PREFIX, Restrictions, changing, parse, resolve
from tests.support.cases import cases

pytestmark = pytest.mark.plain
NO_HEADERS: dict[str, str] = {}
KNOWS = {"admin-key": "s3=cret"}
GUESSES = {"admin-key": "wrong"}
OVER_GRPC = {"triton-grpc-protocol-k": "v"}
UNPREFIXED = {"k": "v"}


def test_only_restricted_groups_need_the_key() -> None:
    restrictions = Restrictions([parse("model-repository,trace:Admin-Key=s3=cret")])
    for group in ("model-repository", "trace"):
        restrictions.check(group, KNOWS.get)
        with pytest.raises(Forbidden, match="expecting header 'admin-key'"):
            restrictions.check(group, GUESSES.get)
        with pytest.raises(Forbidden):
            restrictions.check(group, NO_HEADERS.get)
    restrictions.check("inference", NO_HEADERS.get)


def test_the_name_has_a_prefix_over_grpc() -> None:
    restrictions = Restrictions([parse("health:k=v")])
    restrictions.check("health", OVER_GRPC.get, GRPC_PREFIX)
    with pytest.raises(Forbidden):
        restrictions.check("health", UNPREFIXED.get, GRPC_PREFIX)


def test_without_any_it_is_false() -> None:
    assert not Restrictions()
    assert Restrictions([parse("health:k=v")])


@pytest.mark.parametrize("text", ["", "health", "health:k", "health:k=", "health:=v", "helth:k=v", ":k=v"])
def test_malformed_restrictions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of|write GROUP"):
        parse(text)


def test_nothing_is_restricted_twice() -> None:
    with pytest.raises(ValueError, match="restricted twice"):
        Restrictions([parse("health:k=v"), parse("health,trace:j=w")])


@pytest.mark.parametrize(("target", "operation", "about", "version"), cases(__file__, "operations"))
def test_a_path_resolves_to_its_operation(target: str, operation: str, about: str, version: str) -> None:
    route = resolve(target.encode())
    assert (route.operation, route.about, route.version) == (operation, about, version)


@pytest.mark.parametrize("target", cases(__file__, "nothing"))
def test_where_there_is_nothing(target: str) -> None:
    assert resolve(target.encode()).operation == ""


def test_a_change_of_a_path_is_of_the_group_that_changes_models() -> None:
    load = changing(resolve(b"/models"), "POST")
    unload = changing(resolve(b"/models/a%20b"), "DELETE")
    assert (load and load.group, unload and unload.group, unload and unload.about) == (
        "model-repository", "model-repository", "a b",
    )  # fmt: skip
    assert changing(resolve(b"/models/m"), "POST") is None
    assert changing(resolve(b"/v2/models/m"), "DELETE") is None

import pytest

from adapters.errors import Forbidden
from config.schema.identity import ScopesConfig
from gateway.auth.scope import Scope


def test_an_absent_scope_does_not_narrow() -> None:
    assert Scope.of(None) is None
    only_models = Scope.of(ScopesConfig(models=("gpt-*", "chat")))
    assert only_models is not None
    assert [only_models.allows_model(name) for name in ("gpt-4", "chat", "chat-2", "")] == [True, True, False, False]
    only_models.check_front("chat")
    assert only_models.allows_route(None)
    only_routes = Scope(routes=["gold"])
    assert [only_routes.allows_route(name) for name in ("gold", "golden", None)] == [True, False, False]
    assert only_routes.allows_model("chat")


def test_another_front_is_forbidden() -> None:
    scope = Scope(fronts=["chat", "models"])
    for operation in ("chat", "models"):
        scope.check_front(operation)
    with pytest.raises(Forbidden) as caught:
        scope.check_front("text_completion")
    assert (caught.value.code, caught.value.kind) == ("not_in_scope", "credential")


def test_keys_that_infer_may_explain() -> None:
    for fronts in (["infer"], ["explain"]):
        Scope(fronts=fronts).check_front("explain")
    for operation, fronts in [("explain", ["app"]), ("infer", ["explain"]), ("chat", ["infer"])]:
        with pytest.raises(Forbidden):
            Scope(fronts=fronts).check_front(operation)


def test_scopes_are_equal_by_their_values() -> None:
    assert Scope(models=["a"]) == Scope(models=("a",)) != Scope(models=["b"])
    assert len({Scope(models=["a"]), Scope(models=("a",)), Scope(fronts=["a"])}) == 2
    assert repr(Scope(models=["a"])) == "Scope(models=('a',))"

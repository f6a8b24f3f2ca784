"""Restricts a credential to less than its tenant may do."""

from collections.abc import Iterable
from typing import get_args

from adapters.errors import Forbidden
from config.schema.identity import ScopesConfig
from config.schema.protocols.language import Ranking
from config.schema.text import covers
from policies.globs import GlobSet

RANKING_FRONTS = frozenset(get_args(Ranking))
"""Operations that `app` includes, because they are forwarded calls too."""


class Scope:
    """Compiled once, with the record of the credential. A kind that is None is not restricted."""

    __slots__ = ("_fronts", "_models", "_routes", "names")

    def __init__(
        self,
        models: Iterable[str] | None = None,
        fronts: Iterable[str] | None = None,
        routes: Iterable[str] | None = None,
    ) -> None:
        self.names = {
            kind: tuple(names)
            for kind, names in (("models", models), ("fronts", fronts), ("routes", routes))
            if names is not None
        }
        """The names of each kind, as configured."""
        self._models = GlobSet(self.names["models"]) if "models" in self.names else None
        self._fronts = frozenset(self.names["fronts"]) if "fronts" in self.names else None
        self._routes = frozenset(self.names["routes"]) if "routes" in self.names else None

    @classmethod
    def of(cls, config: ScopesConfig | None) -> "Scope | None":
        """Compile the scopes of the file or of a request; None without scopes."""
        return None if config is None else cls(config.models, config.fronts, config.routes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self.names == other.names

    def __hash__(self) -> int:
        return hash(tuple(self.names.items()))

    def __repr__(self) -> str:
        return f"Scope({', '.join(f'{kind}={names}' for kind, names in self.names.items())})"

    def allows_model(self, name: str) -> bool:
        """Whether the scope includes a model, by the name that the client requests."""
        return self._models is None or name in self._models

    @property
    def restricts_models(self) -> bool:
        """Whether the scope includes some models only."""
        return self._models is not None

    def allows_models(self, globs: Iterable[str]) -> bool:
        """Whether the scope includes every model of these globs: those of another scope, or all with ``*``."""
        own = self.names.get("models")
        return own is None or all(any(covers(wide, glob) for wide in own) for glob in globs)

    def allows_route(self, name: str | None) -> bool:
        """Whether the scope includes the route of that name. A list of routes never includes a route without a name."""
        return self._routes is None or name in self._routes

    def check_front(self, operation: str) -> None:
        """Raises `Forbidden` for an operation outside the scope."""
        if self._fronts is None or operation in self._fronts:
            return
        wider = "app" if operation in RANKING_FRONTS else "infer" if operation == "explain" else ""
        if wider not in self._fronts:
            message = f"This credential is not for `{operation}`: its scopes name other operations."
            raise Forbidden(message).because("operation_out_of_scope", operation=operation)

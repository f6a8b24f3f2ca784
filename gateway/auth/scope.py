"""Restricts a credential to less than its tenant may do."""

from collections.abc import Iterable

from adapters.errors import Forbidden
from config.schema.identity import ScopesConfig
from policies.globs import GlobSet


class Scope:
    """Compiled once, with the record of the credential. A kind that is None is not narrowed."""

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
        """As written: kind to names."""
        self._models = GlobSet(self.names["models"]) if "models" in self.names else None
        self._fronts = frozenset(self.names["fronts"]) if "fronts" in self.names else None
        self._routes = frozenset(self.names["routes"]) if "routes" in self.names else None

    @classmethod
    def of(cls, config: ScopesConfig | None) -> "Scope | None":
        """The compiled form of what the file or a request says; None of nothing."""
        return None if config is None else cls(config.models, config.fronts, config.routes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and self.names == other.names

    def __hash__(self) -> int:
        return hash(tuple(self.names.items()))

    def __repr__(self) -> str:
        return f"Scope({', '.join(f'{kind}={names}' for kind, names in self.names.items())})"

    def allows_model(self, name: str) -> bool:
        """Whether a model's name, as the client writes it, is among them."""
        return self._models is None or name in self._models

    def allows_route(self, name: str | None) -> bool:
        """Whether the route of that name may be taken. One without a name is never among some."""
        return self._routes is None or name in self._routes

    def check_front(self, operation: str) -> None:
        """Raises `Forbidden` for an operation that is not among them."""
        if self._fronts is not None and operation not in self._fronts:
            raise Forbidden(f"This credential is not for `{operation}`: its scopes name other operations.")

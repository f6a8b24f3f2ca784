"""Rewrites the fields of a client's body for the upstream."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from config.schema.config import RewriteConfig
from config.schema.rewrite import LENGTHS, twins

Fields = dict[str, Raw]
Takes = Callable[[str], bool]
"""Returns whether a request's operation has a field of this name."""
_NULL = Raw(b"null")
_number = msgspec.json.Decoder(int | float)
_text = msgspec.json.Decoder(str)
_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode


def _everything(name: str) -> bool:
    return True


class NotANumber(ValueError):
    """The value of a capped field is not a number. `field` is its name."""

    def __init__(self, field: str) -> None:
        super().__init__(f"`{field}` must be a number.")
        self.field = field


class Rewrite:
    """A route's changes, encoded at load. Other fields retain the client's bytes.

    Some servers ignore the case of field names. So a field whose name differs from a governed one only in case is not
    forwarded: it would bypass the rule.
    """

    __slots__ = ("_added", "_capped", "_defaults", "_governed", "_strip", "gone")

    def __init__(self, config: RewriteConfig) -> None:
        names = (*config.force, *config.drop)
        self.gone = frozenset(twin for name in names for twin in twins(name))
        """Fields that are never forwarded from the client's body."""
        self._capped = {twin: (cap, _raw(cap)) for name, cap in config.caps.items() for twin in twins(name)}
        self._governed = {name.casefold(): name for name in (*self.gone, *self._capped, "model", "options")}
        self._added = {name: _raw(value) for name, value in config.force.items()}
        self._defaults = {name: _raw(value) for name, value in config.defaults.items()}
        # Without a bound an answer may be as long as the model allows, which is above any cap.
        for name, cap in config.caps.items():
            if _is_length(name) and not any(twin in self._defaults for twin in twins(name)):
                self._defaults[name if name in LENGTHS else "max_tokens"] = _raw(cap)
        if config.model is not None:
            self._added["model"] = _raw(config.model)
        self._strip = config.strip

    def __call__(self, fields: Mapping[str, Raw], takes: Takes = _everything) -> Fields:
        """The fields to send. A field that the operation does not have is not added. Raises `NotANumber`."""
        sent = self._obeying(fields)
        if (options := sent.get("options")) is not None and bytes(memoryview(options)[:1]) == b"{":
            inner = _object.decode(options)  # some servers take the same fields from it
            if (obeying := self._obeying(inner)) != inner:
                sent["options"] = _raw(obeying)
        if self._strip is not None and (requested := sent.get("model")) is not None:
            sent["model"] = _raw(_text.decode(requested).removeprefix(self._strip))
        for name, value in self._added.items():
            if (accepted := _accepted_name(name, takes)) is not None:
                sent[accepted] = value
        for name, value in self._defaults.items():
            accepted = _accepted_name(name, takes)
            if accepted is not None and all(sent.get(twin, _NULL) == _NULL for twin in twins(name)):
                sent[accepted] = value
        return sent

    def _obeying(self, fields: Mapping[str, Raw]) -> Fields:
        """The client's fields that the rules leave, with capped values."""
        left: Fields = {}
        for name, value in fields.items():
            exact = self._governed.get(name.casefold())
            if exact is None:
                left[name] = value
            elif exact == name and name not in self.gone:
                left[name] = self._at_most(name, value)
        return left

    def _at_most(self, name: str, value: Raw) -> Raw:
        capped = self._capped.get(name)
        if capped is None or value == _NULL:
            return value
        cap, raw = capped
        try:
            number = _number.decode(value)
        except msgspec.DecodeError:
            raise NotANumber(name) from None
        # A length below 0 is servers' word for no limit.
        return raw if number > cap or (number < 0 and _is_length(name)) else value


def _accepted_name(name: str, takes: Takes) -> str | None:
    """The operation's name of a field: an operation may have only one of several names of a field."""
    return name if takes(name) else next(filter(takes, sorted(twins(name) & LENGTHS)), None)


def _is_length(name: str) -> bool:
    return not LENGTHS.isdisjoint(twins(name))


def _raw(value: object) -> Raw:
    return Raw(_encode(value))

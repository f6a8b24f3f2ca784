"""Personal data of one request: masked in its prompt, and given back in its answer."""

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from adapters.answer import Answer
from adapters.errors import CallerError, InferenceError, NotFound, Unsupported
from adapters.requests import ModelRequest
from adapters.stream import DerivedStream
from config.schema.guards import NamedGuardConfig
from gateway.auth.pepper import BrokenSeal, Seal, derived, previous_of
from gateway.features.guards import answers, texts
from gateway.features.guards.streams import reader_of
from gateway.features.guards.verdicts import SideGuard
from gateway.request.sealed_ids import joined_id
from gateway.telemetry.record import Record
from policies.guards.masking import MASK
from policies.guards.personal.masking import PersonalMasker, PersonalRule, Recognised
from policies.guards.personal.placeholders import RequestPlaceholders
from policies.guards.personal.restoring import RestoredText, Restorer

MOST_SEALED = 3072
"""Characters of the sealed values in the id of a response: ids are in addresses too."""
_PURPOSE = "personal data"
_values = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


class PersonalKeys:
    """The keys of placeholders and of sealed values, by tenant. `pepper` is called with each use."""

    def __init__(self, pepper: Callable[[], bytes]) -> None:
        self._pepper = pepper

    def of(self, tenant: str) -> bytes:
        """The key of a tenant's placeholders."""
        return derived(derived(self._pepper(), _PURPOSE), tenant)

    def sealed(self, tenant: str, id_: str, values: Mapping[str, str]) -> str:
        """Values by the names of their placeholders, as a part of the id of a response. No other id opens them."""
        data = Seal(self._pepper(), _PURPOSE).close(zlib.compress(_encode(values)), _context(tenant, id_))
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def opened(self, tenant: str, id_: str, sealed: str) -> dict[str, str]:
        """The values under the seal of a response. Raises `BrokenSeal`."""
        try:
            data = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
        except binascii.Error:
            raise BrokenSeal from None
        pepper = self._pepper()
        for each in (pepper, previous_of(pepper)):
            if each is not None:
                try:
                    return _values(zlib.decompress(Seal(each, _PURPOSE).open(data, _context(tenant, id_))))
                except BrokenSeal:
                    continue
        raise BrokenSeal


def _context(tenant: str, id_: str) -> bytes:
    """What a seal belongs to. A client that may read one response cannot open the values of another one with it."""
    return f"{tenant}\0{id_}".encode()


def restored(keys: PersonalKeys, tenant: str, id_: str, sealed: str, body: bytes) -> bytes:
    """A stored body of JSON with the values that are sealed in its id. Raises `NotFound`."""
    try:
        values = keys.opened(tenant, id_, sealed)
    except BrokenSeal:
        raise NotFound("The id of the response is not one of this gateway.", code="response_not_found") from None
    return texts.masked_json(body, Restorer(RequestPlaceholders(keys.of(tenant), values)).restored) or body


class PersonalTexts:
    """What a request has of a person."""

    __slots__ = ("_keys", "_masker", "_placeholders", "_record", "_restorer", "_rules")

    def __init__(
        self,
        guards: Sequence[NamedGuardConfig],
        rules: Sequence[PersonalRule],
        keys: PersonalKeys,
        record: Record,
        named: Mapping[str, int] | None = None,
    ) -> None:
        """`named` are the kinds of recognisers, with the indexes of their guards. Raises `CallerError` for values of a
        response that cannot be opened."""
        earlier = dict[str, str]()
        if isinstance(record.masked, PersonalTexts):  # guards of the route before have masked the prompt already
            earlier = record.masked.values
        elif record.sealed:
            try:
                earlier = keys.opened(record.tenant, record.previous, record.sealed)
            except BrokenSeal:
                message = "The id of the previous response is not one of this gateway."
                raise CallerError(message, param="previous_response_id") from None
        self._keys = keys
        self._record = record
        self._rules = rules
        self._placeholders = RequestPlaceholders(keys.of(record.tenant), earlier)
        self._restorer: Restorer | None = None
        self._masker = PersonalMasker(rules, self._placeholders, lambda index: _count(record, guards[index]), named)

    @property
    def values(self) -> dict[str, str]:
        """The values by the names of their placeholders."""
        return self._placeholders.values

    @property
    def has_values(self) -> bool:
        """Whether a placeholder stands for a value."""
        return bool(self._placeholders.values)

    @property
    def restorer(self) -> Restorer:
        """What gives the values back. For use after the whole prompt is masked."""
        if self._restorer is None:
            self._restorer = Restorer(self._placeholders)
        return self._restorer

    def masked(self, text: str, key: str = "") -> str:
        """A text of the prompt with placeholders. Its key in an object counts as the word before it."""
        return self._masker.masked(text, key)

    def learn(self, recognised: Mapping[str, Sequence[Recognised]]) -> None:
        """Mask what recognisers have found in the texts of the prompt, too."""
        self._masker.learn(recognised)

    def check_storage(self) -> None:
        """Raise `CallerError` if the request stores an answer whose id cannot have its values."""
        if self._record.in_conversation:
            raise Unsupported(
                "A conversation cannot have personal data, which a guard masks: use `previous_response_id`."
            )
        if len(self._keys.sealed(self._record.tenant, "", self._placeholders.values)) > MOST_SEALED:
            message = (
                "The request has more personal data than the id of a stored response can hold: send `store: false`."
            )
            raise CallerError(message, param="store")

    def labelled(self, id_: str) -> str:
        """The id of a response with the sealed values, which a request that continues it has."""
        return joined_id(id_, self._keys.sealed(self._record.tenant, id_, self._placeholders.values))

    def hidden(self, body: bytes) -> bytes:
        """A body of JSON as it is stored: with placeholders."""
        if self._record.sealed:
            body = body.replace(f"_p{self._record.sealed}".encode(), b"")
        return texts.masked_json(body, self._hidden) or body

    def _hidden(self, text: str, key: str = "") -> str:
        """A text with placeholders, and with ``[…]`` for personal data that no prompt has."""
        values = self._placeholders.values
        others = RequestPlaceholders(self._keys.of(self._record.tenant), values)
        text = PersonalMasker(self._rules, others, _ignore).masked(self.restorer.hidden(text), key)
        for name in others.values.keys() - values.keys():
            text = text.replace(f"<{name}>", MASK)
        return text

    async def restored(self, request: ModelRequest, answer: Answer) -> Answer:
        """The answer with values. Raises `Unsupported` for one that cannot be read; it is closed then."""
        guard = _Restoring(self)
        try:
            if answer.body is not None:
                return await answers.guarded(request, _copy(answer), guard)
            reader = reader_of(request, _WithoutPlaceholders(answer, self), guard)
            if reader is None:
                raise guard.unreadable("streams of this kind: request a whole answer")
            return reader
        except BaseException:
            await answer.aclose()
            raise

    def clean(self, error: BaseException) -> None:
        """Remove placeholders from the message of an error: a server may repeat the prompt in it."""
        if isinstance(error, InferenceError) and self.has_values:
            error.message = self.restorer.without(error.message)
            error.args = (error.message, *error.args[1:])


class _Restoring(SideGuard):
    """Reads an answer as guards do, and writes values in the place of placeholders."""

    __slots__ = ("_personal",)

    def __init__(self, personal: PersonalTexts) -> None:
        super().__init__((), (), "answer", personal._record, acts=True)
        self._personal = personal

    def masked(self, text: str, key: str = "") -> str:
        return self._personal.restorer.restored(text)

    def held(self) -> RestoredText:
        return self._personal.restorer.text()

    def arguments(self) -> RestoredText | None:
        restorer = self._personal.restorer
        return restorer.text(is_json=True) if restorer.streams_json else None


class _WithoutPlaceholders(DerivedStream):
    """A stream whose errors have no placeholders."""

    __slots__ = ("_personal",)

    def __init__(self, inner: Answer, personal: PersonalTexts) -> None:
        super().__init__(inner)
        self._personal = personal

    async def _next(self, patience: float | None = None) -> bytes:
        try:
            return await self._inner.__anext__()
        except InferenceError as error:
            self._personal.clean(error)
            raise


def _copy(answer: Answer) -> Answer:
    """Another answer with the same body: traces and recordings have read the first one."""
    other = Answer(
        content_type=answer.content_type, body=answer.body, usage=answer.usage, status=answer.status, form=answer.form
    )
    other.pool, other.endpoint, other.headers, other.request = (
        answer.pool, answer.endpoint, answer.headers, answer.request,
    )  # fmt: skip
    return other


def _ignore(_: int) -> None:
    """What is stored is not counted again."""


def _count(record: Record, guard: NamedGuardConfig) -> None:
    verdicts = record.guards
    if verdicts is None:
        verdicts = record.guards = {}
    key = (guard.name, guard.action, guard.mode, "prompt")
    verdicts[key] = verdicts.get(key, 0) + 1

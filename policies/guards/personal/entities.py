"""The kinds of personal data, and what finds each in a folded text. A match has `MOST` characters at most."""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from policies.guards.personal import checksums

MOST = 320
"""Characters of the longest match, with the words before it that make it one."""
Span = tuple[int, int]

_LOCAL = re.compile(r"[\w.!#$%&*+=?^{|}~-]{1,64}\Z")
_AT = re.compile(r"@|%(?:25){0,3}40|&#(?:0{0,4}64|x0{0,4}40);|&commat;", re.IGNORECASE)
"""The sign in a mailbox, as addresses of the web and HTML write it too."""
_WRITTEN_LOCAL = re.compile(r"(?:[\w.+~-]|%(?:25){0,3}2[be]){1,64}\Z", re.IGNORECASE)
"""What may stand before a sign that is written so: `=`, `&` and `?` belong to the address around it."""
_DOMAIN = re.compile(r"(?:\w[\w-]{0,62}\.){1,8}(?:xn--[a-z0-9-]{2,40}|[^\W\d_]{2,24})", re.IGNORECASE)
_DASH = r"\u2010-\u2015\u2212-"
"""Dashes, for the end of a class of characters."""
_SEPARATORS = re.compile(rf"[\s()./{_DASH}]")
_NO_WORD = r"(?![^\W_])"
_BEFORE = r"(?<![^\W_])"


class _Form(NamedTuple):
    """A form of numbers, and the check of its digits and letters. The group `value`, if there is one, is the number."""

    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None


def _form(pattern: str, check: Callable[[str], bool] | None = None) -> _Form:
    return _Form(re.compile(f"{_BEFORE}{pattern}{_NO_WORD}", re.IGNORECASE), check)


def _named(words: str, pattern: str, check: Callable[[str], bool] | None = None) -> _Form:
    """A form that needs a word before it, because many other numbers have it too."""
    return _form(rf"(?:{words})[^\d\n]{{0,24}}?(?P<value>(?<![^\W_]){pattern})", check)


def _has_trunk_length(number: str) -> bool:
    return 9 <= len(number) <= 12


_NINE = r"\d{3}[ .-]?\d{3}[ .-]?\d{3}"
_PASSPORT = "passport|passeport|reisepass|pasaporte|passaporto|passaporte|paspoort|paszport"
_PHONE = "(?:tele)?phone|mobile|cell|tel|fax|whatsapp|telefon|handy|t[eé]l[eé]fono|t[eé]l[eé]phone|m[oó]vil|celular"
_FORMS: dict[str, tuple[_Form, ...]] = {
    "passport": (
        _form(r"[A-Z0-9<]{9}\d[A-Z<]{3}\d{7}[MFX<]\d{7}[A-Z0-9<]{14}[0-9<]\d", checksums.mrz),
        _form(r"P[A-Z<][A-Z]{3}[A-Z]{1,30}<[A-Z<]{8,37}<"),
        _named(_PASSPORT, r"(?=[A-Z]{0,3}\d|[A-Z]\d{2}[A-Z])[A-Z0-9]{7,9}"),
    ),
    "ssn": (
        _form(r"\d{3}([ -])\d{2}\1\d{4}", checksums.ssn),
        _named("ssn|social security", r"\d{9}", checksums.ssn),
    ),
    "nino": (_form(r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]"),),
    "steuerid": (_form(r"\d{2} ?\d{3} ?\d{3} ?\d{3}", checksums.steuer_id),),
    "nir": (_form(r"[12] ?\d{2} ?(?:0[1-9]|[1-9]\d) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}", checksums.nir),),
    "nif": (_form(r"(?:\d{8}|[XYZ]-?\d{7})[ -]?[A-Z]", checksums.nif),),
    "codicefiscale": (
        _form(r"[A-Z]{6}[0-9LMNP-V]{2}[ABCDEHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]", checksums.codice_fiscale),
    ),
    "bsn": (_named("bsn|burgerservicenummer|sofinummer", _NINE, checksums.bsn),),
    "nifpt": (_named("nif|contribuinte|n[uú]mero fiscal", _NINE, checksums.nif_pt),),
    "cpf": (_form(r"\d{3}\.?\d{3}\.?\d{3}-?\d{2}", checksums.cpf),),
    "sin": (
        _form(r"\d{3}([ -])\d{3}\1\d{3}", checksums.sin),
        _named("sin|nas|social insurance|assurance sociale", _NINE, checksums.sin),
    ),
    "abn": (_form(r"\d{2} \d{3} \d{3} \d{3}", checksums.abn), _named("abn", r"\d{11}", checksums.abn)),
    "tfn": (_named("tfn|tax file", _NINE, checksums.tfn),),
    "pesel": (_form(r"\d{11}", checksums.pesel),),
    "phone": (
        # The world's form (E.164), the usual forms of North America, and others with a trunk prefix.
        _Form(re.compile(rf"(?<![\w+])(?:\+|%2B)[1-9](?:[ ()./{_DASH}]{{0,3}}\d){{6,14}}(?!\d)", re.IGNORECASE), None),
        _form(rf"00[ .{_DASH}]?[1-9](?:[ ()./{_DASH}]{{0,3}}\d){{7,13}}"),
        _Form(re.compile(rf"(?<!\w)(?:\(\d{{3}}\) ?|\d{{3}}[ ./{_DASH}])\d{{3}}[ .{_DASH}]\d{{4}}(?!\w)"), None),
        _form(rf"0[1-9]\d{{0,3}}(?:[ ./{_DASH}]{{1,3}}\d{{2,8}}){{1,4}}", _has_trunk_length),
        _form(
            rf"\(0[1-9]\d{{0,4}}\)[ ./{_DASH}]{{0,3}}\d{{2,8}}(?:[ ./{_DASH}]{{1,3}}\d{{1,8}}){{0,4}}",
            _has_trunk_length,
        ),
        _form(rf"\(0\)[ ./{_DASH}]{{0,3}}[1-9]\d{{0,3}}(?:[ ./{_DASH}]{{1,3}}\d{{2,8}}){{1,4}}", _has_trunk_length),
        _Form(re.compile(r"(?<!\w)\(\d{2}\) ?9?\d{4}[ -]\d{4}(?!\w)"), None),  # Brazil
        _named(_PHONE, r"\d(?:[ .-]?\d){8,11}"),  # countries that write no prefix and no separators
    ),
}
"""The forms of each kind, other than those with functions of their own."""


def _emails(text: str, begin: int) -> Iterator[Span]:
    for sign in _AT.finditer(text, begin):
        at, end = sign.span()
        local = (_LOCAL if end - at == 1 else _WRITTEN_LOCAL).search(text[max(begin, at - 64) : at])
        domain = None if local is None else _DOMAIN.match(text, end)
        if local is not None and domain is not None and not _is_repository(local.group(), text, domain.end()):
            yield at - len(local.group()), domain.end()


def _is_repository(local: str, text: str, end: int) -> bool:
    """Whether it is `git@host:path`, where a repository lies, and no mailbox."""
    return local == "git" and text[end : end + 1] == ":"


_CARD = re.compile(r"(?<!\d)[2-6]\d{3}(?:[ .-]?\d){10,15}")
_DIGIT = re.compile(r"\d")


def _cards(text: str, begin: int) -> Iterator[Span]:
    """Numbers of cards: the longest one at each place, so that a number after it does not hide it."""
    at = begin
    while (match := _CARD.search(text, at)) is not None:
        places = [digit.start() for digit in _DIGIT.finditer(text, *match.span())]
        number = "".join(text[place] for place in places)
        for length in range(min(len(places), 19), 13, -1):
            end = places[length - 1] + 1
            if not text[end : end + 1].isdigit() and checksums.card(number[:length]):
                yield match.start(), end
                break
        at = match.start() + 1


_IBAN = re.compile(r"(?<![^\W_])[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}", re.IGNORECASE)


def _ibans(text: str, begin: int) -> Iterator[Span]:
    at = begin
    while (match := _IBAN.search(text, at)) is not None:
        length = checksums.iban_length(match.group()[:2].upper())
        places = [place for place in range(*match.span()) if text[place] not in " -"]
        if 0 < length <= len(places):
            end = places[length - 1] + 1
            number = "".join(text[place] for place in places[:length]).upper()
            if not text[end : end + 1].isalnum() and checksums.iban(number):
                yield match.start(), end
        at = match.start() + 1


_IP = re.compile(
    r"(?<![\w.:])(?:[0-9a-f]{0,4}:){2,7}(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"
    r"|(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"
    r"|(?<![\w:.])[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?![\w:])",
    re.IGNORECASE,
)
_SHORT_IPV6 = re.compile(
    r"(?:[23][0-9a-f]{3}|f[cdef][0-9a-f]{2}|64(?=:ff9b))(?::[0-9a-f]{1,4})?::(?:[0-9a-f]{1,4})?"
    r"|::[0-9a-f]{1,4}(?::[0-9a-f]{1,4})?",
    re.IGNORECASE,
)
"""One or two groups, of a network in use: `10::20` is a slice in Python."""
_SLICED = re.compile(r"\s*\]")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def _ips(text: str, begin: int) -> Iterator[Span]:
    for match in _IP.finditer(text, begin):
        address = match.group()
        if ":" in address and "." not in address and not _is_ipv6(match):
            continue
        try:
            ipaddress.ip_address(address if ":" in address else _ZEROS.sub("", address))
        except ValueError:
            continue
        yield match.span()


def _is_ipv6(match: re.Match[str]) -> bool:
    """Whether it has digits, as `std::begin` has not, and groups enough, and is no slice such as `[::2]`."""
    address, text = match.group(), match.string
    if _DIGIT.search(address) is None:
        return False
    if sum(map(bool, address.split(":"))) >= 3 or address == "::1":
        return True
    is_sliced = address.startswith("::") and _SLICED.match(text, match.end()) is not None
    return _SHORT_IPV6.fullmatch(address) is not None and not is_sliced


def _formed(forms: tuple[_Form, ...], text: str) -> Iterator[Span]:
    for form in forms:
        at = 0
        while (match := form.pattern.search(text, at)) is not None:
            group = "value" if "value" in form.pattern.groupindex else 0
            if form.check is None or form.check(_SEPARATORS.sub("", match.group(group)).upper()):
                yield match.span(group)
                at = match.end()
            else:
                at = match.start() + 1


_OWN: dict[str, Callable[[str, int], Iterator[Span]]] = {"email": _emails, "card": _cards, "iban": _ibans, "ip": _ips}
ENTITIES: tuple[str, ...] = (*_OWN, *_FORMS)
"""The names of all kinds. Of two kinds that find the same span, the first one names it."""


class EntityFinder:
    """Finds one kind of personal data."""

    def __init__(self, entity: str) -> None:
        self._forms = _FORMS.get(entity, ())
        self._own = _OWN.get(entity)
        self._last: tuple[str, list[Span]] = ("", [])
        """The text that was read last, and its spans: `find` is called for one after the other."""

    def find(self, text: str, begin: int) -> Span | None:
        """The first span that begins at `begin` or later."""
        last = self._last
        if last[0] is not text:
            self._last = last = text, self.all(text)
        return next((span for span in last[1] if span[0] >= begin), None)

    def is_clear(self, text: str) -> bool:
        """False: a key of JSON is the word before its value."""
        return False

    def open(self, text: str, begin: int) -> int:
        """The first place at which a span may begin that is not settled. The words before a number stay with it."""
        stop = max(begin, len(text) - MOST)
        for form in self._forms if stop < len(text) else ():
            if "value" in form.pattern.groupindex:
                for match in form.pattern.finditer(text, max(0, stop - MOST)):
                    if match.start() < stop < match.end():
                        stop = max(begin, match.start())
        return stop

    def named(self, text: str) -> Iterator[Span]:
        """The spans that only a word before them makes some."""
        return _formed(tuple(form for form in self._forms if "value" in form.pattern.groupindex), text)

    def all(self, text: str) -> list[Span]:
        """All spans, without those that overlap."""
        if self._own is not None:
            return _joined(self._own(text, 0))
        return _joined(_formed(self._forms, text)) if _DIGIT.search(text) or "<" in text else []


def _joined(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined

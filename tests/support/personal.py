"""Personal data for tests: documents with values, the placeholders of these, and how models write placeholders."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from gateway.features.guards.personal import PersonalKeys
from policies.guards.personal.entities import ENTITIES, EntityFinder
from policies.guards.personal.masking import PersonalMasker, PersonalRule
from policies.guards.personal.placeholders import RequestPlaceholders

PERSONAL: dict[str, Any] = {"name": "people", "kind": "personal"}
PEPPER = b"pepper" * 8
"""The pepper of `tests.support.gateways`."""
VALUES: dict[str, tuple[str, ...]] = {
    "email": ("bob@example.com", "Ána.Müller+x@mail.exämple.de", "o_o@a-b.co.uk"),
    "card": ("4111 1111 1111 1111", "378282246310005", "5555-5555-5555-4444"),
    "iban": ("DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "FR1420041010050500013M02606"),
    "ip": ("10.1.2.3", "2001:db8::8a2e:370:7334"),
    "passport": ("L898902C36UTO7408122F1204159ZE184226B<<<<<10",),
    "ssn": ("123-45-6789",),
    "nino": ("AB 12 34 56 C",),
    "steuerid": ("86 095 742 719",),
    "nir": ("2 55 08 14 168 025 38",),
    "nif": ("12345678Z", "X1234567L"),
    "codicefiscale": ("RSSMRA85T10A562S",),
    "cpf": ("390.533.447-05",),
    "sin": ("130 692 544",),
    "abn": ("83 914 571 673",),
    "pesel": ("44051401359",),
    "phone": ("+49 170 1234567", "(415) 555-2671", "030/1234567"),
}
"""Valid values of the kinds that need no word before them."""
NAMED = {
    "bsn": ("BSN: ", "111222333"),
    "nifpt": ("NIF ", "501964843"),
    "tfn": ("TFN: ", "876 543 210"),
    "passport": ("passport no. ", "C01X00T47"),
}
"""Those that do, each with the word."""
_TEXT = "the order, of Zoë: 한글 was sent \U0001f600 (see email_address, phone_number 12) to <b> & co. 42 times\n"
_WORDS = _TEXT.split(" ")
HABITS: dict[str, Callable[[str], str]] = {
    "the same": lambda written: written,
    "lower case": str.lower,
    "without brackets": lambda written: written[1:-1],
    "without the last bracket": lambda written: written[:-1],
    "hyphen": lambda written: written.replace("_", "-"),
    "space": lambda written: written.replace("_", " "),
    "quoted": lambda written: f'"{written}"',
    "markdown": lambda written: written.replace("_", "\\_").replace("<", "\\<").replace(">", "\\>"),
    "html": lambda written: written.replace("<", "&lt;").replace(">", "&gt;"),
    "a tag": lambda written: written.replace(">", "/>"),
    "a closing tag": lambda written: written.replace("<", "</"),
    "escapes": lambda written: written.replace("<", "\\u003c").replace(">", "\\u003e"),
    "nested escapes": lambda written: written.replace("<", "\\\\u003C").replace("_", "\\\\u005f"),
    "full width": lambda written: "".join(chr(ord(letter) + 0xFEE0) for letter in written),
    "zero width": "\u200b".join,
}
"""How a model may write a placeholder."""


def rules() -> list[PersonalRule]:
    """All built-in recognisers."""
    return [PersonalRule(0, entity.upper(), EntityFinder(entity)) for entity in ENTITIES]


def placeholders(tenant: str = "acme") -> RequestPlaceholders:
    """The placeholders of a new request of a tenant of `tests.support.gateways`."""
    return RequestPlaceholders(PersonalKeys(lambda: PEPPER).of(tenant))


def written(kind: str, value: str, tenant: str = "acme") -> str:
    """The placeholder of a value."""
    return placeholders(tenant).of(kind.upper(), value)


def masker(one: RequestPlaceholders) -> PersonalMasker:
    """Masks with all built-in recognisers."""
    return PersonalMasker(rules(), one, lambda _: None)


def documents(seed: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Generated documents, each with the values that it has."""
    rng = random.Random(seed)
    for _ in range(count):
        parts, values = list[str](), list[str]()
        for _ in range(rng.randint(1, 6)):
            parts += rng.choices(_WORDS, k=rng.randint(1, 12))
            word, value = "", rng.choice(rng.choice(list(VALUES.values())))
            if rng.random() < 0.2:
                word, value = rng.choice(list(NAMED.values()))
            values.append(value)
            parts.append(f"{word}{value}{rng.choice(['', '.', ',', '!', ')'])}")
        yield " ".join(parts), values

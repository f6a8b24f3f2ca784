"""The forms in which one value is written: generated, each alone and in texts and addresses around it."""

import itertools
import random

import pytest

from policies.guards.finders import Finder
from policies.guards.masking import HeldText, Rule, by_view
from policies.guards.personal.entities import EntityFinder
from tests.support.personal import masker, placeholders

AROUND = [("", ""), ("see ", ", please"), ("(", ")."), ("x: ", "\n"), ('"', '"'), ("a\n", "\tb"), ("<p>", "</p>")]
IN_ADDRESS = [("https://x.example/?mail=", "&n=1"), ("mailto?to=", ""), ("q=", "#x")]

SIGNS = ["%40", "%2540", "%252540", "&#64;", "&#064;", "&#x40;", "&#X40;", "&commat;"]
LOCALS = ["bob", "bob.smith", "b_o-b", "bob+news", "bob%2Bnews", "BOB", "o2", "Müller"]
DOMAINS = ["example.com", "mail.example.co.uk", "a-b.de", "xn--bcher-kva.example", "EXAMPLE.ORG"]
EMAILS = [f"{local}{sign}{domain}" for local, sign, domain in itertools.product(LOCALS, SIGNS, DOMAINS)]

DASHES = [" ", "-", ".", "/", "\u2010", "\u2011", "\u2013", "\u2212", "\u00a0", " - ", " / "]
AREAS = ["030", "0711", "040", "089", "02131", "01"]
NUMBERS = [("1234567",), ("123", "4567"), ("123", "45", "67"), ("12345678",), ("1234", "5678")]
COUNTRIES = ["+49", "+44", "+33", "+1", "+420", "%2B49", "0049", "00 49", "00-49"]


def phones() -> list[str]:
    """Numbers with a country, with an area, and with an area in brackets."""
    made = []
    for dash, area, parts in itertools.product(DASHES, AREAS, NUMBERS):
        number = dash.join(parts)
        if 9 <= len(area) + sum(map(len, parts)) <= 12:
            made += [f"({area}){dash}{number}", f"({area}) {number}", f"({area}){number}", f"{area}{dash}{number}"]
            if len(area) > 2:
                made.append(f"(0){area[1:]}{dash}{number}")
        for country in COUNTRIES if 8 <= len(area) + sum(map(len, parts)) <= 11 else ():
            made += [f"{country}{dash}{area[1:]}{dash}{number}", f"{country} (0){area[1:]} {number}"]
            made.append(f"({country}) {area[1:]} {number}")
    return made


PREFIXES = ["2001:db8", "2001", "fe80", "fd12", "fc00:1", "ff02", "2a00:1450", "3fff", "64:ff9b"]
TAILS = ["", "1", "a1", "ffff", "1:2", "8a2e:370:7334", "0:0:1"]
ADDRESSES = [
    *(f"{prefix}::{tail}" for prefix, tail in itertools.product(PREFIXES, TAILS)),
    *("::1", "::2", "::ff9", "::1:2", "::ffff:10.1.2.3", "::10.1.2.3", "64:ff9b::10.1.2.3"),
    *("2001:db8:0:0:0:0:0:1", "2001:0db8:0000:0000:0000:0000:0000:0001", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"),
    *("10.1.2.3", "010.001.002.003", "192.168.000.001", "255.255.255.255"),
]
FORMS = {
    "email": EMAILS,
    "phone": random.Random(1).sample(phones(), 800),
    "ip": [form for address in ADDRESSES for form in dict.fromkeys((address, address.upper()))],
}


@pytest.mark.parametrize("kind", FORMS)
def test_each_form_of_a_value_is_masked_whole(kind: str) -> None:
    missed = []
    around = AROUND + (IN_ADDRESS if kind == "email" else [])
    for form in FORMS[kind]:
        for before, after in around:
            one = placeholders()
            masked = masker(one).masked(f"{before}{form}{after}")
            rest = masked
            for name in one.values:
                rest = rest.replace(f"<{name}>", "")
            if rest.strip("()") not in (f"{before}{after}".strip("()"), f"{before}({after}".strip("()")):
                missed.append(f"{before}{form}{after}")
    assert missed == []


@pytest.mark.parametrize("kind", FORMS)
def test_forms_in_streams_do_not_depend_on_the_chunks(kind: str) -> None:
    rng = random.Random(7)
    finder: Finder = EntityFinder(kind)
    rules = by_view([Rule(0, finder, masks=True)])
    for _ in range(40):
        words = [
            rng.choice([*FORMS[kind], "and", "so much", "a[::2]", "12:30", "1 + 2", "x%40", "(030)"]) for _ in "x" * 30
        ]
        text = " ".join(words)
        whole = HeldText(rules, lambda _: None).whole(text)
        held, out, at = HeldText(rules, lambda _: None), "", 0
        while at < len(text):
            size = rng.choice((1, 2, 5, 13, 40))
            out += held.feed(text[at : at + size])
            at += size
        assert out + held.end() == whole


@pytest.mark.parametrize(
    "text",
    [
        "a[::2]", "a[::-1]", "x[:, ::2]", "x[1::2, ::3]", "std::a1", "a::b1", "10::20", "12::30", "f::f", "100%40",
        "50%40 off",
        "x%40", "%40example", "?q=%40user", "&#64;name", "a &commat; b", "(0) 12", "(030)", "(030) 12", "sum (01) 2345",
        "f(0) + 12345", "(0.5) 1234",
    ],
)  # fmt: skip
def test_other_texts_stay(text: str) -> None:
    assert masker(placeholders()).masked(text) == text

"""Check digits. Each function takes the digits and letters alone, in upper case, and returns whether they fit."""

import re
from collections import Counter

_REGISTRY = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
    "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
    "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _REGISTRY.split()}
"""Characters of an IBAN by country, as in SWIFT's registry."""


def luhn(number: str) -> bool:
    """ISO/IEC 7812."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


_CARDS = re.compile(
    r"3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14,17}|4\d{15}(?:\d{3})?|5[1-5]\d{14}|5[0678]\d{14,17}"
    r"|6\d{15,18}|2[2-7]\d{14,17}"
)
"""The lengths of the networks. An IMEI (15 digits from 35) and a code of goods (13 digits) pass Luhn's test, too."""


def card(number: str) -> bool:
    """A number of a card: a length of its network, and Luhn's test."""
    return _CARDS.fullmatch(number) is not None and luhn(number)


def sin(number: str) -> bool:
    """Canada's SIN: Luhn's test. None begins with 0 or 8."""
    return number[0] not in "08" and luhn(number)


def iban(number: str) -> bool:
    """ISO 13616: the length of the country, and 1 modulo 97."""
    if _IBAN_LENGTHS.get(number[:2]) != len(number):
        return False
    return int("".join(str(int(letter, 36)) for letter in number[4:] + number[:4])) % 97 == 1


def iban_length(country: str) -> int:
    """The characters of an IBAN of a country; 0 for a country without one."""
    return _IBAN_LENGTHS.get(country, 0)


def ssn(number: str) -> bool:
    """The United States' social security number: it has no check digit, but areas that are never issued."""
    return number[:3] not in ("000", "666") and number[0] != "9" and number[3:5] != "00" and number[5:] != "0000"


def steuer_id(number: str) -> bool:
    """Germany's identification number of taxes: ISO 7064 mod 11, 10; one digit is there twice or three times."""
    counts = sorted(Counter(number[:10]).values(), reverse=True)
    if number[0] == "0" or counts[0] not in (2, 3) or counts[1] != 1:
        return False
    product = 10
    for digit in number[:10]:
        total = (int(digit) + product) % 10 or 10
        product = total * 2 % 11
    return (11 - product) % 10 == int(number[10])


def nir(number: str) -> bool:
    """France's number of INSEE, with its key. Corsica has the letters A and B."""
    body = number[:13].replace("2A", "19", 1) if number[5:7] == "2A" else number[:13].replace("2B", "18", 1)
    return body.isdigit() and number[13:].isdigit() and 97 - int(body) % 97 == int(number[13:])


def nif(number: str) -> bool:
    """Spain's DNI and NIE: a letter for the number modulo 23."""
    digits = {"X": "0", "Y": "1", "Z": "2"}.get(number[0], number[0]) + number[1:-1]
    return digits.isdigit() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23] == number[-1]


_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)


def codice_fiscale(number: str) -> bool:
    """Italy's code of taxes: a letter for the sum of the values of the others modulo 26."""
    places = [int(letter) if letter.isdigit() else ord(letter) - ord("A") for letter in number[:15]]
    total = sum(_ODD[value] if place % 2 == 0 else value for place, value in enumerate(places))
    return chr(ord("A") + total % 26) == number[15]


def bsn(number: str) -> bool:
    """The Netherlands' number of citizens: the test of eleven."""
    total = sum(int(digit) * (9 - place) for place, digit in enumerate(number[:8])) - int(number[8])
    return total % 11 == 0 and int(number) > 0


def nif_pt(number: str) -> bool:
    """Portugal's number of taxes."""
    total = sum(int(digit) * (9 - place) for place, digit in enumerate(number[:8]))
    return number[0] != "0" and (11 - total % 11) % 11 % 10 == int(number[8])


def cpf(number: str) -> bool:
    """Brazil's number of persons: two check digits. The same digit eleven times is none."""
    if len(set(number)) == 1:
        return False
    for length in (9, 10):
        total = sum(int(digit) * (length + 1 - place) for place, digit in enumerate(number[:length]))
        if total * 10 % 11 % 10 != int(number[length]):
            return False
    return True


def tfn(number: str) -> bool:
    """Australia's number of taxes."""
    weights = (1, 4, 3, 7, 5, 8, 6, 9, 10)
    return sum(int(digit) * weight for digit, weight in zip(number, weights, strict=True)) % 11 == 0


def abn(number: str) -> bool:
    """Australia's number of businesses, which a person has too."""
    weights = (10, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19)
    digits = [int(number[0]) - 1, *map(int, number[1:])]
    return sum(digit * weight for digit, weight in zip(digits, weights, strict=True)) % 89 == 0


def pesel(number: str) -> bool:
    """Poland's number of persons."""
    weights = (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)
    return sum(int(digit) * weight for digit, weight in zip(number, weights, strict=True)) % 10 == 0 and _is_born(
        number
    )


def _is_born(number: str) -> bool:
    return 1 <= int(number[2:4]) % 20 <= 12 and 1 <= int(number[4:6]) <= 31


def mrz(line: str) -> bool:
    """The second line of a passport (ICAO 9303, TD3): the digits of its number, birth and expiry."""
    return all(
        _mrz_digit(field) == digit
        for field, digit in ((line[:9], line[9]), (line[13:19], line[19]), (line[21:27], line[27]))
    )


def _mrz_digit(field: str) -> str:
    values = (0 if letter == "<" else int(letter, 36) for letter in field)
    return str(sum(value * (7, 3, 1)[place % 3] for place, value in enumerate(values)) % 10)

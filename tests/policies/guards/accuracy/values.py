"""Made values: keys with random characters, and numbers of persons with their check digits.

They are made at run time, from a fixed seed. So the files of this repository have nothing that looks like a key.
"""

import random
from collections.abc import Callable
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

from policies.guards.personal import checksums

_WORD, _KEY, _HEX = ascii_letters + digits, ascii_letters + digits + "-_", "0123456789abcdef"
_UPPER, _BASE64 = ascii_uppercase + digits, ascii_letters + digits + "+/"
Make = Callable[[random.Random], str]


def _of(letters: str, size: int, begin: str = "", end: str = "") -> Make:
    return lambda chance: begin + "".join(chance.choice(letters) for _ in range(size)) + end


def _parts(*makes: Make) -> Make:
    return lambda chance: "".join(make(chance) for make in makes)


def _pem(name: str) -> Make:
    def make(chance: random.Random) -> str:
        lines = "\n".join(_of(_BASE64, 64)(chance) for _ in range(6))
        return f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----"

    return make


def _checked(pattern: str, check: Callable[[str], bool], letters: str = "") -> Make:
    """Numbers of a pattern (`0` any digit, `A` any letter, `?` one of `letters`) whose check digits fit."""
    kinds = {"0": digits, "A": ascii_uppercase, "?": letters}

    def make(chance: random.Random) -> str:
        while True:
            number = "".join(chance.choice(kinds.get(each, each)) for each in pattern)
            if check("".join(each for each in number if each.isalnum())):
                return number

    return make


SECRETS: dict[str, Make] = {
    "openai": _of(_WORD, 48, "sk-"),
    "openai-project": _of(_KEY, 124, "sk-proj-"),
    "anthropic": _of(_KEY, 93, "sk-ant-api03-", "AA"),
    "openrouter": _of(_HEX, 64, "sk-or-v1-"),
    "deepseek": _of(_HEX, 32, "sk-"),
    "aws-access-key": _of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, "AKIA"),
    "aws-session-key": _of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, "ASIA"),
    "aws-secret": _of(_BASE64, 40),
    "azure-storage": _of(_BASE64, 86, "AccountKey=", "=="),
    "azure-sas": _of(_WORD, 43, "sig=", "%3D"),
    "azure-client": _parts(_of(_WORD, 3), _of(_WORD, 34, "8Q~")),
    "azure-hex": _of(_HEX, 32),
    "github": _parts(lambda chance: chance.choice(["ghp_", "gho_", "ghs_", "ghu_", "ghr_"]), _of(_WORD, 36)),
    "github-fine": _parts(_of(_WORD, 22, "github_pat_"), _of(_WORD, 59, "_")),
    "gitlab": _parts(lambda chance: chance.choice(["glpat-", "glrt-", "gldt-", "glptt-"]), _of(_KEY, 20)),
    "gitlab-routable": _parts(_of(_WORD, 27, "glpat-"), _of(ascii_lowercase + digits, 9, ".01.")),
    "slack": _parts(_of(digits, 12, "xoxb-"), _of(digits, 12, "-"), _of(_WORD, 24, "-")),
    "slack-app": _parts(_of(_UPPER, 10, "xapp-1-A"), _of(digits, 13, "-"), _of(_HEX, 64, "-")),
    "slack-webhook": _parts(
        _of(_UPPER, 9, "https://hooks.slack.com/services/T"), _of(_UPPER, 9, "/B"), _of(_WORD, 24, "/")
    ),
    "google": _of(_KEY, 34, "AIza", "Q"),
    "google-access": _of(_KEY, 140, "ya29.", "x"),
    "google-client": _of(_KEY, 27, "GOCSPX-", "z"),
    "stripe": _parts(lambda chance: chance.choice(["sk_live_", "rk_live_", "sk_test_"]), _of(_WORD, 24)),
    "stripe-webhook": _of(_WORD, 32, "whsec_"),
    "npm": _of(_WORD, 36, "npm_"),
    "pypi": _of(_KEY, 150, "pypi-AgEIcHlwaS5vcmc", "x"),
    "hugging-face": _of(ascii_letters, 34, "hf_"),
    "sendgrid": _parts(_of(_KEY, 22, "SG."), _of(_KEY, 43, ".")),
    "groq": _of(_WORD, 52, "gsk_"),
    "xai": _of(_WORD, 80, "xai-"),
    "perplexity": _of(_WORD, 48, "pplx-"),
    "replicate": _of(_WORD, 37, "r8_"),
    "docker": _of(_WORD, 27, "dckr_pat_"),
    "digitalocean": _of(_HEX, 64, "dop_v1_"),
    "databricks": _of(_HEX, 32, "dapi"),
    "shopify": _of(_HEX, 32, "shpat_"),
    "vault": _of(_WORD, 90, "hvs."),
    "telegram": _parts(_of(digits, 10), _of(_KEY, 33, ":AA")),
    "jwt": _parts(_of(_WORD, 33, "eyJ"), _of(_WORD, 80, ".eyJ"), _of(_KEY, 43, ".")),
    "rsa-key": _pem("RSA PRIVATE KEY"),
    "pkcs8-key": _pem("PRIVATE KEY"),
    "ssh-key": _pem("OPENSSH PRIVATE KEY"),
}
NUMBERS: dict[str, Make] = {
    "card": _checked("4000 0000 0000 0000", checksums.luhn),
    "card-plain": _checked("5100000000000000", checksums.luhn),
    "amex": _checked("3700-000000-00000", checksums.luhn),
    "iban-de": _checked("DE00 0000 0000 0000 0000 00", checksums.iban),
    "iban-gb": _checked("GB00AAAA00000000000000", checksums.iban),
    "iban-nl": _checked("NL00 AAAA 0000 0000 00", checksums.iban),
    "ssn": _checked("000-00-0000", checksums.ssn),
    "steuerid": _checked("00 000 000 000", checksums.steuer_id),
    "nir": _checked("1 80 05 75 000 000 00", checksums.nir),
    "nif": _checked("00000000A", checksums.nif),
    "nie": _checked("X-0000000-A", checksums.nif),
    "codicefiscale": _checked("AAAAAA85T10A000A", checksums.codice_fiscale),
    "bsn": _checked("000000000", checksums.bsn),
    "nifpt": _checked("200 000 000", checksums.nif_pt),
    "cpf": _checked("000.000.000-00", checksums.cpf),
    "cpf-plain": _checked("00000000000", checksums.cpf),
    "sin": _checked("000 000 000", checksums.sin),
    "abn": _checked("00 000 000 000", lambda number: number[0] != "0" and checksums.abn(number)),
    "tfn": _checked("000 000 000", checksums.tfn),
    "pesel": _checked("85010100000", checksums.pesel),
    "phone-de": _of(digits, 7, "+49 170 "),
    "phone-us": _parts(_of(digits, 2, "(2"), _of("23456789", 3, ") "), _of(digits, 4, "-")),
    "phone-uk": _parts(_of(digits, 2, "+44 79"), _of(digits, 6, " ")),
    "phone-fr": _parts(_of("123456789", 1, "0"), *[_of(digits, 2, " ")] * 4),
}
OTHERS: dict[str, Make] = {
    "md5": _of(_HEX, 32),
    "sha1": _of(_HEX, 40),
    "sha256": _of(_HEX, 64),
    "uuid": _parts(_of(_HEX, 8), _of(_HEX, 4, "-"), _of(_HEX, 3, "-4"), _of(_HEX, 4, "-"), _of(_HEX, 12, "-")),
    "base64": _of(_BASE64, 900, "iVBORw0KGgo", "="),
    "integrity": _of(_BASE64, 86, "sha512-", "=="),
    "order": _of(digits, 7, "ORD-"),
    "long-order": _of(digits, 16),
    "ten-digits": _of(digits, 10),
    "eleven-digits": _of(digits, 11),
    "nine-digits": _of(digits, 9),
    "digits-in-threes": _parts(_of(digits, 3), _of(digits, 3, " "), _of(digits, 3, " ")),
    "isbn": _parts(_of(digits, 1, "978-"), _of(digits, 4, "-"), _of(digits, 4, "-"), _of(digits, 1, "-")),
    "coordinates": _parts(_of(digits, 6, "52."), _of(digits, 6, ", 13.")),
    "epoch": _of(digits, 9, "1"),
    "milliseconds": _of(digits, 12, "1"),
    "imei": _checked("350000000000000", checksums.luhn),
    "ean": _of(digits, 11, "40"),
    "tracking": _of(digits, 22),
}
"""What looks like a value, and is none."""
MAKES = {**SECRETS, **NUMBERS, **OTHERS}

"""Whatever a server says, clients get no credential and no address; of a model's failure, one bounded line."""

import base64
import json
import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire.failure_text import MAX_TEXT, Scrubber, for_clients, for_log
from tests.support.pace import slowness

OCTET = st.integers(0, 255)
NAME = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12).map(lambda name: f"h{name}x")
KEY = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=24, max_size=60).map(
    lambda key: f"{key}a1"
)
PORT = st.integers(1024, 65535)
SECRETS = st.one_of(
    KEY.map(lambda key: (f"api_key={key}", key)),
    KEY.map(lambda key: (f'{{"token": "{key}"}}', key)),
    KEY.map(lambda key: (f"Authorization: Bearer {key}", key)),
    KEY.map(lambda key: (f"password: {key}", key)),
    KEY.map(lambda key: (f"AWS_SECRET_ACCESS_KEY={key}", key)),
    KEY.map(lambda key: (f"sk-{key}", key)),
    KEY.map(lambda key: (f"hf_{key}", key)),
    KEY.map(lambda key: (f"eyJ{key}.{key}.{key}", key)),
)
ADDRESSES = st.one_of(
    st.tuples(OCTET, OCTET, OCTET, OCTET).map(lambda ip: ".".join(map(str, ip))).map(lambda ip: (ip, ip)),
    st.tuples(NAME, PORT).map(lambda at: (f"http://{at[0]}:{at[1]}/v2", at[0])),
    st.tuples(NAME, PORT).map(lambda at: (f"{at[0]}:{at[1]}", at[0])),
    NAME.map(lambda name: (f"{name}.models.svc.cluster.local", name)),
    st.tuples(NAME, KEY).map(lambda at: (f"redis://user:{at[1]}@{at[0]}/0", at[1])),
    st.sampled_from(["[::1]:8001", "fe80:0:0:0:1:2:3:4", "2001:db8:1:2:3:4:5:6"]).map(lambda ip: (ip, ip)),
    NAME.map(lambda name: (f"/opt/{name}/model.py", name)),
    NAME.map(lambda name: (f"unix:/run/{name}/x.sock", name)),
)
WORDS = st.text(st.characters(exclude_characters="[]"), max_size=60)
APART = st.sampled_from([" ", "\n", ", ", " (", ' "', " '", "\t"])


@given(WORDS, APART, st.one_of(SECRETS, ADDRESSES), APART, WORDS)
def test_no_client_sees_a_secret_or_an_address(
    before: str, left: str, hidden: tuple[str, str], right: str, after: str
) -> None:
    text, needle = hidden
    shown = for_clients(before + left + text + right + after)
    assert needle not in shown
    assert len(shown) <= MAX_TEXT
    assert shown.isprintable()


@given(WORDS, APART, SECRETS, APART, WORDS)
def test_the_log_has_no_secret(before: str, left: str, hidden: tuple[str, str], right: str, after: str) -> None:
    text, needle = hidden
    assert needle not in for_log(before + left + text + right + after)


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: boom",
        "expected 3 and/or 4 elements of `X`, got 12",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "KeyError: 'INPUT__0'",
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity)",
        "ratio 0.25/0.75 at 12:30:59 exceeds 1e-3",
        "数字が大きすぎます",
    ],
)
def test_plain_words_stay_as_they_are(text: str) -> None:
    assert for_clients(text) == for_log(text) == text


PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=9, max_size=40)
FORMS: dict[str, Callable[[str], tuple[str, str]]] = {
    "alone": lambda key: (key, key),
    "in JSON": lambda key: (json.dumps({"authorization": f"Bearer {key}"}), json.dumps(key)[1:-1]),
    "in a URL": lambda key: (f"?q={quote(f'a {key}', safe='')}", quote(key, safe="")),
    "in base64": lambda key: (base64.b64encode(key.encode()).decode(), base64.b64encode(key.encode()).decode()[:-4]),
    "within base64": lambda key: (base64.b64encode(f"ke:{key}".encode()).decode(), _inner(f"ke:{key}")),
    "within base64 for URLs": lambda key: (base64.urlsafe_b64encode(f"k:{key}".encode()).decode(), _inner(f"k:{key}")),
}


def _inner(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()[4:-4]


@pytest.mark.parametrize("form", FORMS)
@given(before=WORDS, key=PRINTABLE, after=WORDS)
def test_no_text_shows_a_value_of_its_server(form: str, before: str, key: str, after: str) -> None:
    written, needle = FORMS[form](key)
    scrubber = Scrubber([key], ["http://10.0.0.5:8000/base", "unix:/run/x.sock", "kafka://triton:1"])
    addresses = "http://10.0.0.5:8000/base/v1 10.0.0.5:8000 HTTP://10.0.0.5 /run/x.sock triton:8001 "
    for text in (scrubber.text, scrubber.without_values):
        shown = text(f"{before} {addresses}{written} {after}").replace("+", "-").replace("/", "_")
        assert needle.replace("+", "-").replace("/", "_") not in shown or needle in before + after + addresses
        assert not {"10.0.0.5", "_run_x.sock", "triton"} & set(re.split(r"[^\w.]", shown))
    assert scrubber.text(before + " " + key[:-1]) == scrubber.text(before + " ") + "[secret]"  # the text was cut
    body = scrubber.body(json.dumps({"a": [1, {"b": f"{before} {written}"}]}).encode())
    assert needle not in json.loads(body)["a"][1]["b"] or needle in before


def test_a_body_without_a_value_is_unchanged() -> None:
    for body in (b'{ "a": 1e2, "b":"\\u0041" }', b"\xff\x1b[2J<b>", b"", b"[" * 3_000):
        assert Scrubber(["credential"], ["http://10.0.0.5:8000"]).body(body) == body


def test_the_traceback_is_left_out() -> None:
    frames = '  File "/srv/m/model.py", line 3, in infer\n    boom()\n'
    assert for_clients(f"Traceback (most recent call last):\n{frames}ValueError: no") == "ValueError: no"
    message = "Failed to process the request(s) for model instance 'm_0', message: ValueError: no"
    assert for_clients(f"{message}\n\nAt:\n  /m/1/model.py(3): execute\n") == message


PARTS = [
    "/a",
    "a.",
    "1.",
    ":a",
    "a:1",
    "token=",
    "bearer ",
    "=",
    "eyJ.",
    "h-",
    "a-",
    "http://",
    "[::",
    "\n",
    "A1",
    "  At:\n",
]


@pytest.mark.parametrize("part", PARTS)
def test_no_text_takes_long(part: str) -> None:
    text = part * (1_000_000 // len(part))
    scrubber, began = Scrubber(["credential"], ["http://h:1"]), time.thread_time()
    for_clients(text)
    scrubber.text(text)
    scrubber.body(text.encode())
    assert time.thread_time() - began < slowness()

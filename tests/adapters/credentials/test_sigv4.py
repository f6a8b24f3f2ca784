"""AWS Signature Version 4, byte for byte as botocore signs."""

from datetime import datetime
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.credentials.sigv4 import AccessKey, SigningScope, signed_fields
from tests.support.providers.aws import HOST, KEY, REGION, SERVICES, botocores

ALL = "".join(map(chr, range(1, 0x250)))
TEXTS = st.text(st.sampled_from(ALL), max_size=12)
VALUES = st.text(st.sampled_from("".join(map(chr, range(0x20, 0x7F))) + "\t  "), max_size=20)
HEADERS = st.dictionaries(st.sampled_from(["content-type", "x-amz-target", "X-Amz-Meta", "anthropic-beta"]), VALUES)


@given(
    service=st.sampled_from(sorted(SERVICES)),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    segments=st.lists(st.one_of(TEXTS, st.sampled_from(["", ".", "..", "a:b/c", "~", "*", "arn:aws:x"])), max_size=5),
    query=st.lists(st.tuples(TEXTS.filter(bool), TEXTS), max_size=4),
    headers=HEADERS,
    body=st.binary(max_size=40),
    session=st.sampled_from(["", "FwoG+/=="]),
    seconds=st.integers(0, 4 * 10**9),
    safe=st.sampled_from(["", ":", "/:@!$&'()*+,;="]),
)
@example("bedrock", "GET", [], [], {}, b"", "", 0, "")
def test_every_request_is_signed_as_botocore_signs(
    service: str, method: str, segments: list[str], query: list[tuple[str, str]], headers: dict[str, str], body: bytes,
    session: str, seconds: int, safe: str,
) -> None:  # fmt: skip
    target = "/" + "/".join(quote(each, safe=safe) for each in segments)
    if query:
        target += "?" + "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query)
    key, fields = AccessKey("AKIDEXAMPLE", KEY, session), [("host", HOST), *headers.items()]
    expected = botocores(service, key, method, target, headers, body, seconds)
    made = signed_fields(
        key, SigningScope(REGION, service), method, target, fields, body, seconds, states_hash=service == "s3"
    )
    assert {name: expected.get(name) for name, _ in made} == dict(made)


def test_the_signature_is_that_of_amazon_s_example() -> None:
    """GET Bucket Lifecycle, of "Examples: Signature Calculations" in the reference of S3."""
    fields = [("host", "examplebucket.s3.amazonaws.com")]
    key = AccessKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    scope = SigningScope("us-east-1", "s3")
    signed = signed_fields(key, scope, "GET", "/?lifecycle", fields, b"", 1369353600.0, states_hash=True)
    assert dict(signed)["authorization"].endswith("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")


@pytest.mark.parametrize(
    ("session", "time", "body", "more", "signature"),
    [
        (
            "fixture-session-token",
            "2025-01-02T03:04:05+00:00",
            b'{"model":"gpt-4o","input":"hello"}',
            (),
            "dc20c8fbe516daf0ccae7e5b7a78fc2936870413a9f1af6e1b2d44b970ce411f",
        ),
        (
            "",
            "2026-06-01T12:34:56+00:00",
            b'{"input":"hello","model":"openai.gpt-oss-120b"}',
            (("content-length", "47"),),
            "bba77a80c7b39301d1aa29db9bc2f2b349deb932ae2dc5f800cec17baaf0f5de",
        ),
        (
            "fixture-session-token",
            "2026-06-01T12:34:56+00:00",
            b'{"input":"hello","model":"openai.gpt-oss-120b"}',
            (("content-length", "47"),),
            "693a4fef0373c0929f1f71d0da29c748f6bf42e75059648ceb97d52a204fb37c",
        ),
    ],
)
def test_the_signatures_are_those_of_openai_s_library(
    session: str, time: str, body: bytes, more: tuple[tuple[str, str], ...], signature: str
) -> None:
    """Of Bedrock's OpenAI API: `bedrock/v1/sigv4.json` and `bedrock_auth/v1/cases.json` of openai 3.57.0."""
    key = AccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session)
    fields = [("host", "bedrock-mantle.us-east-1.api.aws"), ("content-type", "application/json"), *more]
    scope, seconds = SigningScope("us-east-1", "bedrock-mantle"), datetime.fromisoformat(time).timestamp()
    signed = dict(signed_fields(key, scope, "POST", "/openai/v1/responses", fields, body, seconds, states_hash=True))
    assert signed["authorization"].endswith(f"Signature={signature}")
    assert signed["authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{time[:10].replace('-', '')}/us-east-1/bedrock-mantle/aws4_request, "
    )
    assert signed.get("x-amz-security-token", "") == session

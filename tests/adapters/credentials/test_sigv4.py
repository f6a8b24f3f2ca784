"""AWS Signature Version 4, byte for byte as botocore signs."""

from urllib.parse import quote

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

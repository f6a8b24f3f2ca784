"""Encodes an event in binary mode: attributes as headers, the data as the body."""

from adapters.wire.cloudevents.event import CloudEvent


def headers_of(event: CloudEvent) -> dict[str, str]:
    """The headers of an event. A broker with another prefix replaces `ce_`."""
    headers = {"ce_specversion": "1.0", "ce_id": event.id, "ce_source": event.source, "ce_type": event.type}
    if event.content_type:
        headers["content-type"] = event.content_type
    for name, value in event.extensions.items():
        headers[f"ce_{name}"] = value
    return headers

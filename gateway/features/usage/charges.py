"""The usage of a request, from its line."""

from typing import NamedTuple

from config.schema.config import Config
from gateway.features.journal.lines import HOUR_MICROS, RequestLine
from gateway.features.usage.labels import UsageLabels

LARGEST = 2**62
"""Picos of one row, whose counters have 63 bits."""


class Charge(NamedTuple):
    """What one line adds to the usage of an hour (Unix time // 3600)."""

    hour: int
    labels: UsageLabels
    amounts: list[int]
    """In the order of `COUNTERS`."""


def charge_of(line: RequestLine, currency: str) -> Charge:
    """The charge of a line. `currency` is that of requests without a cost, such as failed ones."""
    prompt, completion, _, _, rows, size, device = line.usage
    currency = line.currency or currency
    labels = UsageLabels(line.tenant, line.subject, line.model, line.arm, currency, line.team, line.user)
    failures = line.requests if line.is_failure else 0
    amounts = [line.cost, line.requests, failures, prompt, completion, rows, size, device]
    return Charge(line.at // HOUR_MICROS, labels, amounts)


def currency_of(config: Config) -> str:
    """The currency of all prices; empty if there are several or none."""
    currencies = {model.price.currency for model in config.models if model.price is not None}
    return currencies.pop() if len(currencies) == 1 else ""

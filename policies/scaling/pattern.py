"""Whether requests are expected soon, because there were some a day or a week before."""

from collections.abc import Collection

HOUR = 3600
DAY, WEEK = 24, 168


def expects(used: Collection[int], utc: float, lead: float) -> bool:
    """Whether the hour of this moment, or of `lead` seconds later, had requests a day or a week before.

    `used`: the hours with requests, as Unix time // 3600.
    """
    moments = {int(utc // HOUR), int((utc + lead) // HOUR)}
    return any(hour - before in used for hour in moments for before in (DAY, WEEK))

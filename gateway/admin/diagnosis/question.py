"""What somebody asks: a symptom, a time and labels."""

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from gateway.features.journal.lines import HOUR_MICROS, MICROS
from gateway.features.requests.query import label_test, query_of
from gateway.features.requests.search import LabelTest, RequestQuery
from gateway.features.usage.query import BadQuery

SLOW, FAILING = "slow", "failing"
LABELS = ("tenant", "team", "key", "model", "pool")
PARAMETERS = ("symptom", "id", "from", "to", *LABELS)
_STATUS = re.compile(r"[45]\d\d|[45]xx")


class Question(NamedTuple):
    """A question about the requests of a time."""

    symptom: str
    """A status such as 429, a class such as 5xx, `slow`, `failing`; empty: everything."""
    query: RequestQuery
    """The requests in question, of every status."""
    labels: Mapping[str, str]

    def about(self, status: int) -> bool:
        """Whether requests with a status belong to the question."""
        if self.symptom in ("", FAILING):
            return True
        return self.symptom in (str(status), f"{status // 100}xx")

    @property
    def failures(self) -> tuple[LabelTest, ...]:
        """What the search of its failed requests compares: their number is bounded, so others may not come first."""
        status = () if self.symptom in ("", SLOW, FAILING) else (label_test("status", self.symptom),)
        return (LabelTest("error", None), *status)

    @property
    def of_state(self) -> bool:
        """Whether the state of the gateway itself belongs to the question: it does not for one tenant's 4xx."""
        return not self.symptom.startswith("4") or self.symptom in ("4xx",)


def question_of(texts: Mapping[str, str]) -> Question:
    """Read a question from the parameters of a URL. Without a time it is about the last hour. Raises `BadQuery`."""
    symptom = texts.get("symptom", "")
    if symptom not in ("", SLOW, FAILING) and not _STATUS.fullmatch(symptom):
        raise BadQuery("symptom", f"must be a status such as 503, a class such as 5xx, `{SLOW}` or `{FAILING}`")
    searched = {name: texts[name] for name in (*LABELS, "id", "from", "to") if name in texts}
    query = query_of({**searched, "limit": "1000"})
    if "from" not in texts and "id" not in texts:
        now = int(time.time() * MICROS)
        query = query._replace(begin=max(0, min(query.end, now) - HOUR_MICROS))
    return Question(symptom, query, {name: texts[name] for name in LABELS if name in texts})

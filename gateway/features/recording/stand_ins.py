"""Digests that stand for users, sessions and values of sticky headers in records.

A record has no user's name. It has a keyed digest of it with a number: the first number with which the digest gets the
arms that the user got. A split selects an arm by a hash of its subject, so the stand-in is as good as the user: under
the same weights it has the same arm, and of those with one arm, other weights move the same share.
"""

from collections import OrderedDict
from collections.abc import Callable

from gateway.auth.keys import Principal
from gateway.features.recording.entries import RecordEntry
from gateway.features.recording.keys import keyed_digest
from gateway.features.recording.policy import Predicted, RecordedPolicy

MOST_TRIALS = 512
"""Numbers to try. An arm with a share below a hundredth may not be among them: it is then taken from the record."""
REMEMBERED = 16_384


class StandIns:
    """The stand-ins of one policy."""

    def __init__(self, policy: RecordedPolicy, key: bytes) -> None:
        self._policy = policy
        self._key = key
        self._numbers: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def place(self, entry: RecordEntry, principal: Principal, made: Predicted) -> bool:
        """Replace the subjects of an entry, which has their plain values. Returns whether its facts then lead to the
        decision that the gateway made."""
        tenant = principal.tenant
        subjects: list[tuple[Callable[[str], None], str]] = []
        if entry.user:
            subjects.append((lambda stand_in: setattr(entry, "user", stand_in), self._digest(tenant, entry.user)))
        if entry.sequence:
            digest = self._digest(tenant, entry.sequence)
            subjects.append((lambda stand_in: setattr(entry, "sequence", stand_in), digest))
        for name in self._policy.sticky_headers & entry.headers.keys():
            digest = self._digest(tenant, entry.headers[name])
            subjects.append((lambda stand_in, name=name: entry.headers.__setitem__(name, stand_in), digest))  # type: ignore[misc]
        same = (tenant, principal.key_id, entry.model, made.route, made.arm, *(digest for _, digest in subjects))
        trials = MOST_TRIALS if subjects and made.arm is not None else 1
        first = self._numbers.get(same, 0)
        for number in (first, *range(trials)):
            for put, digest in subjects:
                put(f"{digest}.{number}")
            if self._policy.decide(entry, principal) == made:
                self._remember(same, number)
                return True
        return False

    def _remember(self, same: tuple[object, ...], number: int) -> None:
        self._numbers[same] = number
        self._numbers.move_to_end(same)
        if len(self._numbers) > REMEMBERED:
            self._numbers.popitem(last=False)

    def _digest(self, tenant: str, value: str) -> str:
        return "~" + keyed_digest(self._key, f"{tenant}\0{value}", 12).hex()


def subject_of(stand_in: str) -> str:
    """The digest of a stand-in without its number, which is the same for all requests of the subject."""
    return stand_in.partition(".")[0]

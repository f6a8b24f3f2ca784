"""The records of one policy that the next write appends."""

from collections.abc import Iterator
from typing import NamedTuple

from gateway.features.recording import entries
from gateway.features.recording.entries import Content, Holder, PolicyFrame, RecordEntry
from gateway.features.recording.policy import RecordedPolicy
from gateway.features.recording.segments import CONTENTS, ENTRIES
from gateway.features.recording.stand_ins import StandIns

FRAME_BYTES = 1024 * 1024


class PolicyParts(NamedTuple):
    """A policy, and what its records need."""

    policy: RecordedPolicy
    stand_ins: StandIns
    frame: PolicyFrame


class Frames:
    """The records that the next write appends, which were encoded under one policy."""

    def __init__(self, policy: PolicyFrame) -> None:
        self.policy = policy
        self.holders: dict[object, int] = {}
        self.listed: list[Holder] = []
        self.entries: list[RecordEntry] = []
        self.contents: list[Content] = []
        self.bytes = 0

    def index(self, holder: Holder) -> int:
        """The index of a client."""
        same = (holder.tenant, holder.key, holder.roles, *holder.labels.items(), repr(holder.scope))
        index = self.holders.setdefault(same, len(self.listed))
        if index == len(self.listed):
            self.listed.append(holder)
        return index

    def encoded(self) -> Iterator[tuple[int, bytes]]:
        """The frames to write. Contents come first: an entry in the file has its content."""
        batch: list[Content] = []
        size = 0
        for content in self.contents:
            batch.append(content)
            size += len(content.body) + len(content.answer or b"")
            if size >= FRAME_BYTES:
                yield CONTENTS, entries.encode(entries.ContentsFrame(batch))
                batch, size = [], 0
        if batch:
            yield CONTENTS, entries.encode(entries.ContentsFrame(batch))
        yield ENTRIES, entries.encode(entries.EntriesFrame(self.listed, self.entries))

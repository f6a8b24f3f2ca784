"""Reads and writes of stored responses and conversations. Every method blocks: call it in a thread.

A method with a tenant reads and changes rows of that tenant only. Expired rows are hidden.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Row,
    String,
    Table,
    Text,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from gateway.features.quota.meter import ROW_BYTES, Metered, meter
from gateway.features.quota.room import Quota, check_room, default_quota, require_room
from gateway.state.database import open_engine
from gateway.state.faults import database_errors
from gateway.state.schema import TableGroup

STORED = TableGroup("stored responses", then=lambda connection: meter(connection, *METERED))
# Times are Unix seconds. Every statement names the tenant, which is a part of each primary key.
responses = STORED.table(
    "stored_responses",
    Column("tenant", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("previous", String(128)),
    # A JSON array of items, and the JSON object that the client got.
    Column("input", Text, nullable=False),
    Column("answer", Text, nullable=False),
    # The model by the name that the client requested.
    Column("model", Text, nullable=False, server_default=""),
)
conversations = STORED.table(
    "stored_conversations",
    Column("tenant", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("metadata", Text, nullable=False),
)
items = STORED.table(
    "stored_items",
    Column("tenant", String(128), primary_key=True),
    Column("conversation", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("item", Text, nullable=False),
    # The model whose request added the item; empty for the client's own.
    Column("model", Text, nullable=False, server_default=""),
)
Index("stored_responses_age", responses.c.tenant, responses.c.created_at)
Index("stored_conversations_age", conversations.c.tenant, conversations.c.created_at)
Index("stored_items_order", items.c.tenant, items.c.conversation, items.c.position)
METERED: tuple[Metered, ...] = (
    Metered(responses, ("input", "answer")),
    Metered(conversations, ("metadata",)),
    Metered(items, ("item",)),
)


MAX_TURNS = 1000
MAX_ITEMS = 10_000


class TooLong(Exception):
    """A history has more turns, items or bytes than one request may have."""


class StoredItem(NamedTuple):
    """`item` is its JSON object."""

    id: str
    item: bytes


class StoredResponse(NamedTuple):
    """`input` is a JSON array of items, `answer` the JSON object that the client received."""

    tenant: str
    id: str
    created_at: float
    expires_at: float
    previous: str | None
    input: bytes
    answer: bytes
    model: str = ""
    """The model by the name that the client requested."""


class Conversation(NamedTuple):
    """`metadata` is a JSON object."""

    tenant: str
    id: str
    created_at: float
    expires_at: float
    metadata: bytes


class StoredTurn(NamedTuple):
    """The rows of one answered request: a response, items of a conversation, or both."""

    tenant: str
    response: StoredResponse | None
    conversation: str | None = None
    items: tuple[StoredItem, ...] = ()
    expires_at: float = 0.0
    """The expiry of the conversation."""
    model: str = ""
    """The model that answered; empty for items that a client adds."""

    @property
    def size(self) -> int:
        """The size in bytes, as it counts against the quota."""
        response, rows = self.response, len(self.items) + (self.response is not None)
        texts = 0 if response is None else len(response.input) + len(response.answer)
        return texts + sum(len(item.item) for item in self.items) + rows * ROW_BYTES


class ResponseDatabase:
    """The stored responses of a state database. Creates missing tables when it opens. Methods raise
    `StoreUnavailable`."""

    def __init__(self, url: str, quota: Quota = default_quota) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for a URL that cannot be used."""
        self._quota = quota
        self._engine = open_engine(url)
        with self._transaction() as connection:
            STORED.prepare(connection)

    def close(self) -> None:
        """Close pooled connections."""
        self._engine.dispose()

    # ── responses ─────────────────────────────────────────────────────────────────────────────────────

    def write(self, turns: Sequence[StoredTurn]) -> None:
        """Write all turns or none. Items of a deleted conversation are omitted. Raises `StorageFull`."""
        with self._transaction() as connection:
            for turn in sorted(turns, key=attrgetter("tenant")):  # the order of the locks of `require_room`
                require_room(connection, turn.tenant, turn.size, self._quota(turn.tenant))
                if (response := turn.response) is not None:
                    connection.execute(delete(responses).where(*_is(responses, turn.tenant, response.id)))
                    row = response._replace(input=b"", answer=b"")._asdict()
                    row |= {"input": response.input.decode(), "answer": response.answer.decode()}
                    connection.execute(insert(responses).values(row))
                if turn.conversation is not None:
                    _append(connection, turn)

    def check_room(self, tenant: str, size: int) -> None:
        """Whether a tenant may store `size` more bytes now. Raises `StorageFull`."""
        with self._transaction() as connection:
            check_room(connection, tenant, size, self._quota(tenant))

    def response(self, tenant: str, id_: str, now: float) -> StoredResponse | None:
        """One response."""
        with self._transaction() as connection:
            return _response(connection, tenant, id_, now)

    def history(
        self, tenant: str, id_: str, now: float, pending: Callable[[str], StoredResponse | None], max_bytes: int
    ) -> list[StoredResponse] | None:
        """A response and its predecessors, oldest first; None if one is missing. `pending` has those that are not
        written yet. Raises `TooLong`."""
        turns, next_id, size = list[StoredResponse](), id_, 0
        with self._transaction() as connection:
            while True:
                response = pending(next_id) or _response(connection, tenant, next_id, now)
                if response is None:
                    return None
                turns.append(response)
                size += len(response.input) + len(response.answer)
                if size > max_bytes or len(turns) > MAX_TURNS:
                    raise TooLong
                if response.previous is None:
                    return turns[::-1]
                next_id = response.previous

    def with_items(
        self, tenant: str, ids: Mapping[str, str | None], now: float, max_bytes: int
    ) -> list[StoredResponse]:
        """The responses that have these items. `ids` names the response of an item where its id does; other
        items are searched for in the newest `MAX_TURNS` responses. Raises `TooLong`."""
        live = select(responses).where(responses.c.tenant == tenant, responses.c.expires_at > now)
        named = {id_ for id_ in ids.values() if id_}
        others = {id_.encode() for id_, response in ids.items() if response is None}
        if len(named) > MAX_ITEMS:
            raise TooLong
        newest = live.order_by(responses.c.created_at.desc()).limit(MAX_TURNS if others else 0)
        matches, size = list[StoredResponse](), 0
        with self._transaction() as connection:
            rows = connection.execute(live.where(responses.c.id.in_(named))).all() if named else []
            for row in chain(rows, connection.execute(newest, execution_options={"yield_per": 50})):
                response = _stored(row)
                here = {id_ for id_ in others if id_ in response.answer or id_ in response.input}
                if not here and response.id not in named:
                    continue
                others -= here
                named.discard(response.id)
                matches.append(response)
                size += len(response.input) + len(response.answer)
                if size > max_bytes:
                    raise TooLong
        return matches

    def delete_response(self, tenant: str, id_: str, now: float) -> bool:
        """Delete a response. Returns whether it existed."""
        with self._transaction() as connection:
            gone = delete(responses).where(*_is(responses, tenant, id_), responses.c.expires_at > now)
            return connection.execute(gone).rowcount > 0

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────

    def create(self, conversation: Conversation, first: tuple[StoredItem, ...]) -> None:
        """Begin a conversation with some items. Raises `StorageFull`."""
        tenant, id_ = conversation.tenant, conversation.id
        row = {**conversation._asdict(), "metadata": conversation.metadata.decode()}
        turn = StoredTurn(tenant, None, id_, first, conversation.expires_at)
        with self._transaction() as connection:
            size = ROW_BYTES + len(conversation.metadata) + turn.size
            require_room(connection, tenant, size, self._quota(tenant))
            connection.execute(insert(conversations).values(row))
            _append(connection, turn)

    def conversation(self, tenant: str, id_: str, now: float) -> Conversation | None:
        """One conversation without its items."""
        with self._transaction() as connection:
            query = select(conversations).where(*_live(tenant, id_, now))
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        owner, name, created_at, expires_at, metadata = row
        return Conversation(owner, name, created_at, expires_at, metadata.encode())

    def set_metadata(self, tenant: str, id_: str, metadata: bytes, now: float, expires_at: float) -> bool:
        """Set the metadata of a conversation. Returns whether it exists. Raises `StorageFull`."""
        change = update(conversations).where(*_live(tenant, id_, now))
        with self._transaction() as connection:
            require_room(connection, tenant, len(metadata), self._quota(tenant))
            changed = connection.execute(change.values(metadata=metadata.decode(), expires_at=expires_at))
            return changed.rowcount > 0

    def delete_conversation(self, tenant: str, id_: str, now: float) -> bool:
        """Delete a conversation with its items. Returns whether it existed."""
        with self._transaction() as connection:
            deleted = connection.execute(delete(conversations).where(*_live(tenant, id_, now))).rowcount > 0
            connection.execute(delete(items).where(items.c.tenant == tenant, items.c.conversation == id_))
            return deleted

    def append(self, turn: StoredTurn) -> None:
        """Add items to a conversation at once. Raises `TooLong` and `StorageFull`."""
        with self._transaction() as connection:
            require_room(connection, turn.tenant, turn.size, self._quota(turn.tenant))
            _append(connection, turn)
            held = select(func.count()).where(items.c.tenant == turn.tenant, items.c.conversation == turn.conversation)
            if connection.execute(held).scalar_one() > MAX_ITEMS:
                raise TooLong

    def items(self, tenant: str, conversation: str, max_bytes: int) -> list[StoredItem]:
        """All items in their order. Raises `TooLong`."""
        held = select(items.c.id, items.c.item).where(items.c.tenant == tenant, items.c.conversation == conversation)
        stored_items, size = list[StoredItem](), 0
        with self._transaction() as connection:
            for row in connection.execute(held.order_by(items.c.position, items.c.id)):
                stored_items.append(StoredItem(row.id, row.item.encode()))
                size += len(stored_items[-1].item)
                if size > max_bytes or len(stored_items) > MAX_ITEMS:
                    raise TooLong
        return stored_items

    def models(self, tenant: str, conversation: str) -> list[str]:
        """The models that answered in a conversation."""
        own = (items.c.tenant == tenant, items.c.conversation == conversation, items.c.model != "")
        with self._transaction() as connection:
            return list(connection.execute(select(items.c.model).where(*own).distinct()).scalars())

    def delete_item(self, tenant: str, conversation: str, id_: str) -> bool:
        """Delete an item of a conversation. Returns whether it existed."""
        with self._transaction() as connection:
            gone = delete(items).where(*_is(items, tenant, id_), items.c.conversation == conversation)
            return connection.execute(gone).rowcount > 0

    # ── age ───────────────────────────────────────────────────────────────────────────────────────────

    def sweep(self, now: float, per_tenant: int) -> int:
        """Delete expired rows, and the oldest rows of a tenant that has too many. Returns the number of rows."""
        deleted = 0
        for table in (responses, conversations):
            with self._transaction() as connection:
                deleted += connection.execute(delete(table).where(table.c.expires_at <= now)).rowcount
                counts = select(table.c.tenant).group_by(table.c.tenant).having(func.count() > per_tenant)
                for tenant in connection.execute(counts).scalars().all():
                    ages = select(table.c.created_at).where(table.c.tenant == tenant)
                    newest = ages.order_by(table.c.created_at.desc()).offset(per_tenant).limit(1)
                    limit = connection.execute(newest).scalar_one()
                    old = delete(table).where(table.c.tenant == tenant, table.c.created_at <= limit)
                    deleted += connection.execute(old).rowcount
        belongs = (conversations.c.tenant == items.c.tenant) & (conversations.c.id == items.c.conversation)
        with self._transaction() as connection:
            orphans = delete(items).where(~exists(select(conversations.c.id).where(belongs)))
            return deleted + connection.execute(orphans).rowcount

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with database_errors("the state database"), self._engine.begin() as connection:
            yield connection


def _is(table: Table, tenant: str, id_: str) -> tuple[ColumnElement[bool], ...]:
    return table.c.tenant == tenant, table.c.id == id_


def _live(tenant: str, id_: str, now: float) -> tuple[ColumnElement[bool], ...]:
    return *_is(conversations, tenant, id_), conversations.c.expires_at > now


def _response(connection: Connection, tenant: str, id_: str, now: float) -> StoredResponse | None:
    query = select(responses).where(*_is(responses, tenant, id_), responses.c.expires_at > now)
    row = connection.execute(query).one_or_none()
    return None if row is None else _stored(row)


def _stored(row: Row[Any]) -> StoredResponse:
    return StoredResponse(
        row.tenant, row.id, row.created_at, row.expires_at, row.previous, row.input.encode(), row.answer.encode(),
        row.model,
    )  # fmt: skip


def _append(connection: Connection, turn: StoredTurn) -> None:
    """Lock the conversation's row first: writers of one conversation take turns, and a deleted one is detected."""
    change = update(conversations).where(*_is(conversations, turn.tenant, turn.conversation or ""))
    if not connection.execute(change.values(expires_at=turn.expires_at)).rowcount:
        return
    position = time.time_ns()
    for index, item in enumerate(turn.items):
        own = (*_is(items, turn.tenant, item.id), items.c.conversation == turn.conversation)
        connection.execute(delete(items).where(*own))
        row = {"tenant": turn.tenant, "conversation": turn.conversation, "id": item.id, "position": position + index}
        connection.execute(insert(items).values({**row, "item": item.item.decode(), "model": turn.model}))

"""Writes the output and the error file of a batch from the logs of its shards: exactly one line for each line."""

from collections.abc import Iterator

from sqlalchemy import Connection, update

from gateway.features.batches.results import durable_results, unfinished_line
from gateway.features.batches.rows import RESULTS, StoredFile, batch_folder, encode, file_object, order_object
from gateway.features.batches.schema import batches
from gateway.features.batches.sealing import size_of
from gateway.features.batches.storage import NoObject, Storage, StorageWriter
from gateway.features.batches.store import change_progress, put_file
from gateway.features.batches.tasks import shards_in
from gateway.features.batches.work import Unit
from policies.batches.lines import TOO_LONG, decode_line
from policies.batches.order import LineEntry, entries_of, shard_range
from policies.batches.states import BatchProgress, ShardCounts, add_shards, end_of


class Finishing(Unit):
    """The last task of a batch. It may run again after a crash: the files have the same names and contents."""

    async def run(self) -> None:
        context, spec = self.context, self.claim.spec
        shards = await context.durable.insist(self.name, self._shards)
        stored, unfinished = await context.durable.insist(self.name, self._write, shards)

        def ended(progress: BatchProgress) -> None:
            add_shards(progress, [counts for _, counts in shards])
            progress.unfinished, progress.expired = unfinished, bool(unfinished)
            progress.move(end_of(progress), context.wall())

        def finish(connection: Connection) -> None:
            for file in stored:
                put_file(connection, file)
            change_progress(connection, spec.id, ended)
            delete_at = context.wall() + context.config.retention
            connection.execute(update(batches).where(batches.c.id == spec.id).values(delete_at=delete_at))

        await self.save(finish, done=True)
        await context.durable.insist(self.name, context.durable.storage.delete_folder, batch_folder(spec.id))

    def _shards(self) -> list[tuple[int, ShardCounts]]:
        with self.context.durable.store.database.transaction() as connection:
            return shards_in(connection, self.claim.spec.id)

    def _write(self, shards: list[tuple[int, ShardCounts]]) -> tuple[list[StoredFile], int]:
        """The files, and the number of lines without a result. Blocks. A failure begins again with new files."""
        with _Files(self) as files:
            for number, counts in shards:
                files.add_shard(number, counts)
            return files.commit(), files.unfinished

    @property
    def stop_code(self) -> str:
        """The code of lines without a result."""
        return "batch_cancelled" if self.status == "cancelling" else "batch_expired"


class _Files:
    """The two files while they are written. Every method blocks."""

    def __init__(self, finishing: Finishing) -> None:
        self._finishing = finishing
        self._spec = finishing.claim.spec
        self._storage: Storage = finishing.context.durable.storage
        self._output: StorageWriter = self._storage.create(file_object(self._spec.output_file))
        self._errors: StorageWriter = self._storage.create(file_object(self._spec.error_file))
        self._sizes = {self._spec.output_file: 0, self._spec.error_file: 0}
        self.unfinished = 0

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *error: object) -> None:
        self._output.__exit__(None, None, None)
        self._errors.__exit__(None, None, None)

    def add_shard(self, number: int, counts: ShardCounts) -> None:
        """Write the results of a shard, and a line for each line without one."""
        claim = self._finishing.claim._replace(number=number)
        ended, good, bad = set[int](), list[bytes](), list[bytes]()
        for part in counts.logs:
            for result in durable_results(self._storage, claim, part, is_last=False):
                if result.number not in ended:
                    ended.add(result.number)
                    (good if result.succeeded else bad).append(result.output)
        missing = list(self._missing(number, ended))
        self._write(good, bad + missing)
        self.unfinished += len(missing)

    def _missing(self, number: int, ended: set[int]) -> Iterator[bytes]:
        start, length = shard_range(number)
        packed = self._storage.read(order_object(self._spec.id), start, length)
        for entry in entries_of(packed):
            if entry.number not in ended:
                custom_id = self._custom_id(entry)
                yield unfinished_line(self._spec.api, custom_id, self._finishing.stop_code)

    def _custom_id(self, entry: LineEntry) -> str | None:
        if entry.length == TOO_LONG or entry.length > self._finishing.context.max_line:
            return None
        try:
            raw = self._storage.read(file_object(self._spec.input_file), entry.offset, entry.length)
        except NoObject:
            return None
        line = decode_line(raw)
        return None if line is None else line.custom_id

    def _write(self, good: list[bytes], bad: list[bytes]) -> None:
        """Anthropic's batches have one file of results."""
        if self._spec.api == "anthropic":
            good, bad = good + bad, []
        for name, writer, lines in (
            (self._spec.output_file, self._output, good),
            (self._spec.error_file, self._errors, bad),
        ):
            if lines:
                data = b"\n".join(lines) + b"\n"
                writer.write(data)
                self._sizes[name] += sum(map(size_of, lines)) + len(lines)

    def commit(self) -> list[StoredFile]:
        """Store the files that have lines."""
        spec, now = self._spec, self._finishing.context.wall()
        stored: list[StoredFile] = []
        for id_, writer, suffix in (
            (spec.output_file, self._output, "output"),
            (spec.error_file, self._errors, "error"),
        ):
            if self._sizes[id_]:
                writer.commit()
                name, expires = f"{spec.id}_{suffix}.jsonl", now + spec.output_lifetime
                size, models = self._sizes[id_], encode(spec.holder.models)
                stored.append(StoredFile(id_, spec.tenant, RESULTS, name, size, now, expires, models))
        return stored

"""The driver's side of the `search` destination."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.destination.contract import Capabilities, SchemaChange
from penstock.destination.families.kept_tables import Notes
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.destination import VersionedDestination
from penstock.destination.families.versioned.task_writer import VersionedChunkWriter
from penstock.destination.protocols import CopiedByWorkers, KeepsDeadLetters, Ticket
from penstock.destination.search.carry_over import Field, carry_over
from penstock.destination.search.client import SearchClient, part
from penstock.destination.search.dead_letters import DeadLetters
from penstock.destination.search.documents import SearchDocuments
from penstock.destination.search.generations import Generation, Generations
from penstock.destination.search.ledger import SearchLedger
from penstock.destination.search.mapping import index_body
from penstock.destination.search.names import ledger_index, table_index
from penstock.destination.search.options import SearchOptions
from penstock.destination.search.server import Server, ask_server, check_rights, find_blocks
from penstock.destination.search.values import field_values
from penstock.failpoints import failpoint
from penstock.model.array_text import first_element
from penstock.model.errors import DestinationUnavailable, TableRefused, refused_alone
from penstock.model.lsn import Position
from penstock.model.pg_types import builtin_type
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition
from penstock.model.table_schema import PgType

_TEXT = PgType(25, "text")


class SearchDestination(VersionedDestination, CopiedByWorkers, KeepsDeadLetters):
    """Holds the rows of each table as documents of an index behind an alias."""

    name = "search"
    options_model = SearchOptions
    options: SearchOptions
    chunks_stand = True
    failpoints = ("search.sent", "search.emptied", "search.copy_shown")
    capabilities = Capabilities(
        mode="merge",
        exactly_once=True,
        remembers=True,
        atomic=False,
        batch_age=0.2,
        sends_at_once=True,
        older_loses=True,
    )

    def __init__(self, options: SearchOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._client = SearchClient(options)
        self._letters = DeadLetters.of(options, pipeline)
        self._identity = ""
        self._position = Position(0, 0)
        # Replaced, never changed, as the targets are.
        self._at: dict[int, Generation] = {}

    @cached_property
    def ledger(self) -> SearchLedger:
        index = ledger_index(self.options, self.pipeline)
        return SearchLedger(self._client, index, self.pipeline)

    @property
    def store(self) -> SearchDocuments:
        return self._store(follows=True)

    def _store(self, *, follows: bool) -> SearchDocuments:
        return SearchDocuments(
            self._client, self._generations, self._letters, self._at, follows=follows
        )

    @property
    def _generations(self) -> Generations:
        return Generations(self._client, self._identity)

    @cached_property
    def _server(self) -> Server:
        return ask_server(self._client)

    # -- before the first batch ------------------------------------------------------------------

    def check(self) -> Sequence[str]:
        ask_server(self._client)
        sample = self._name("public", "table")
        check_rights(self._client, ledger_index(self.options, self.pipeline), sample)
        blocks = list(find_blocks(self._client, sample.partition(".")[0]))
        if blocks:
            raise DestinationUnavailable(
                f"destination search: {self.options.url} takes no writes: {'; '.join(blocks)}",
                remedy="make room on its disks, or lift the block: docs/destinations/search.md "
                "says how",
            )
        health = self._client.call("GET", "_cluster/health", doing="asking for its health").body
        if health["number_of_data_nodes"] <= self.options.replicas:
            note = (
                f"{self.options.replicas} replicas of each index are asked for, and the cluster "
                f"has {health['number_of_data_nodes']} data nodes: some replicas are on none "
                "(destination.replicas)"
            )
            return [note]
        return ()

    def open(self) -> None:
        super().open()
        self._identity = self.ledger.identity
        self._letters.make()

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        super().prepare(definitions)
        with self._lock:
            self._look({table.oid for table in definitions} - self._at.keys())

    def _look(self, tables: Collection[int]) -> None:
        """Find out which generations are written now."""
        found = dict(self._at)
        for oid in tables:
            target = self._targets[oid]
            at = self._generations.written(self._name(target.schema, target.name), oid)
            if at is None:
                found.pop(oid, None)
            else:
                found[oid] = at
        self._at = found

    def _name(self, schema: str, table: str) -> str:
        return table_index(self.options, self.pipeline, schema, table)

    # -- tables ----------------------------------------------------------------------------------

    def create(self, table: TableDefinition, target: Target) -> None:
        """An index that is written, and read from the first rows of the stream on."""
        name = self._name(table.schema, table.name)
        self._expect_own(name, target)
        with refused_alone(table.oid):
            made = self._generations.make(name, table.oid, self._body(table, is_copied=False))
        self._open(made, self._generations.written(name, table.oid), reads=False)

    def drop(self, target: Target) -> None:
        name = self._name(target.schema, target.name)
        for each in self._generations.of_table(name, target.oid):
            self._generations.delete(each)
        self._letters.forget(target.qualified_name)
        self._at = {oid: at for oid, at in self._at.items() if oid != target.oid}

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        """Nothing that readers see: the copy has an index of its own, made for what it is now."""
        with self._changing() as notes:
            there, target = self._known().get(table.oid), Target.of(table)
            notes[f"table/{table.oid}"] = target.to_text()
            if there is None:
                return
            name = self._name(there.schema, there.name)
            if name != self._name(table.schema, table.name):
                notes[f"former/{table.oid}/{name}"] = ""
                self._at = {oid: at for oid, at in self._at.items() if oid != table.oid}

    def begin_copy(self, table: TableDefinition, target: Target) -> None:
        name = self._name(table.schema, table.name)
        self._expect_own(name, target)
        with refused_alone(table.oid):
            made = self._generations.make(name, table.oid, self._body(table, is_copied=True))
        self._open(made, self._generations.written(name, table.oid), reads=False)
        self._letters.forget(table.qualified_name)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> VersionedChunkWriter:
        return VersionedChunkWriter(self._store(follows=False), self._targets[table.oid])

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {"ledger": self._identity, "generation": self._at[table.oid].to_json()}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> VersionedChunkWriter:
        """Into just the index that the driver made for this copy, or nowhere."""
        self._identity = ticket["ledger"]
        self._targets = {**self._targets, table.oid: Target.of(table)}
        self._at = {**self._at, table.oid: Generation.from_json(ticket["generation"])}
        return self.chunk_writer(table)

    def complete_table(self, table: TableDefinition) -> None:
        """Readers see the table from now on, in place of what they saw before."""
        with self._changing() as notes:
            self._look([table.oid])
            at = self._at.get(table.oid)
            if at is None:
                raise TableRefused(
                    f"table {table.qualified_name}: the index that it was copied into is gone",
                    remedy=f"run `penstock tables resync` for {table.qualified_name}",
                    table=table.oid,
                )
            self._show(at)
            failpoint("search.copy_shown")
            for note in self.ledger.read(f"former/{table.oid}/"):
                self._remove_former(table.oid, note.rpartition("/")[2])
                notes[note] = None

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        name = self._name(table.schema, table.name)
        path = f"{part(name)}/_count"
        ours = {each.index for each in self._generations.of_table(name, table.oid)}
        answer = self._client.call("GET", f"_alias/{part(name)}", doing="asking", allowed=(404,))
        if answer.status != 404 and set(answer.body) <= ours:
            return False
        answer = self._client.call("GET", path, doing=f"counting {name}", allowed=(404,))
        return answer.status != 404 and bool(answer.body["count"])

    def dead_letters(self) -> Mapping[str, int]:
        return self._letters.count()

    def forget(self) -> Sequence[str]:
        """Indexes stay, and nobody writes to them any more."""
        identity = self.ledger.identity
        if not identity:
            return []
        generations = Generations(self._client, identity)
        for target in self._known().values():
            name = self._name(target.schema, target.name)
            if (at := generations.written(name, target.oid)) is not None:
                generations.close(at)
        return super().forget()

    def were_written(self, tables: Collection[int], emptied: Collection[int]) -> None:
        self._look(emptied)
        for oid in tables:
            if (at := self._at.get(oid)) is None:
                continue
            if at.is_shadow:
                self._show(at)
            elif oid in emptied:
                self._generations.clean(at)

    # -- schema changes --------------------------------------------------------------------------

    def _alter(self, change: SchemaChange, targets: Mapping[int, Target], notes: Notes) -> None:
        self._position = change.position
        super()._alter(change, targets, notes)

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        """New fields come into the index that is there. All else needs another one, into which
        documents are carried over, unless all rows are about to be copied anew.
        """
        if change.before is None or change.after is None:
            return
        self._look([after.oid])
        at = self._at.get(after.oid)
        if at is None or at.floor >= self._position:
            return
        if change.renamed.names(change.before.merge_key) != change.after.merge_key:
            raise TableRefused(
                f"table {after.qualified_name}: its key is another one, and so are the ids of its "
                "documents",
                remedy=f"run `penstock tables resync` for {after.qualified_name}",
                table=after.oid,
            )
        old, new = self._fields(change.before), self._fields(change.after)
        same_name = self._name(before.schema, before.name) == self._name(after.schema, after.name)
        is_wider = all(new.get(name) == field for name, field in old.items())
        if same_name and change.is_rewrite:
            is_wider, new = True, {n: f for n, f in new.items() if n not in old}
        if same_name and is_wider and not any(c.missing for c in _come(change)):
            path = f"{part(at.index)}/_mapping"
            self._client.call(
                "PUT", path, {"properties": new}, doing=f"adding fields to {at.index}"
            )
            return
        self._carry_over(change, after, at)

    def _carry_over(self, change: TableChange, after: Target, at: Generation) -> None:
        assert change.after is not None  # noqa: S101 (alter has seen it)
        name = self._name(after.schema, after.name)
        self._expect_own(name, after)
        body = self._body(change.after, is_copied=False)
        made = self._generations.make(name, after.oid, body, floor=self._position, follows=at.line)
        self._generations.let_fill(made)
        carry_over(self._client, after, at, made, self._carried(change, after))
        self._open(made, at, reads=not at.is_shadow, is_filled=True)
        if at.name != name:
            self._remove_former(after.oid, at.name)

    def _carried(self, change: TableChange, after: Target) -> list[Field]:
        pairs = {new.name: (old, new) for old, new in change.columns if new is not None}
        fields: list[Field] = []
        for name in after.columns:
            old, new = pairs[name]
            before = old.name if old is not None and old.is_delivered else None
            fields.append((before, name, None if before else self._value(new)))
        return fields

    def _value(self, column: ColumnDefinition) -> str | None:
        """What rows have in a column that is younger than they are."""
        text = first_element(column.missing)
        if text is None:
            return None
        pg_type = builtin_type(column.type_oid) or _TEXT
        flat = self.options.json_as == "flat"
        value: str = field_values(pa.array([text]), pg_type, flat_json=flat)[0].as_py()
        return value

    # -- generations -----------------------------------------------------------------------------

    def _open(
        self,
        made: Generation,
        closes: Generation | None,
        *,
        reads: bool,
        is_filled: bool = False,
    ) -> None:
        opened = self._generations.open(made, reads=reads, closes=closes, is_filled=is_filled)
        self._at = {**self._at, made.oid: opened}
        self._generations.clean(opened)

    def _show(self, at: Generation) -> None:
        settings = {"index.refresh_interval": self._refresh}
        doing = f"letting {at.index} be read"
        self._client.call("PUT", f"{part(at.index)}/_settings", settings, doing=doing)
        self._client.call("POST", f"{part(at.index)}/_refresh", doing=doing, is_long=True)
        shown = self._generations.show(at)
        self._at = {**self._at, at.oid: shown}
        self._generations.clean(shown)

    def _remove_former(self, oid: int, name: str) -> None:
        for each in self._generations.of_table(name, oid):
            self._generations.delete(each)

    def _expect_own(self, name: str, target: Target) -> None:
        """Raises TableRefused where another table, or another pipeline, writes under the name."""
        for each in self._generations.found(name):
            if each.is_written and (each.oid, each.ledger) != (target.oid, self._identity):
                raise TableRefused(
                    f"table {target.qualified_name}: {each.index} is written for another table or "
                    "another pipeline",
                    remedy="set destination.index to a pattern that gives each table a name of its "
                    f"own; if nobody writes there any more, remove the alias {each.writers}",
                    table=target.oid,
                )

    def _fields(self, table: TableDefinition) -> Mapping[str, Any]:
        fields: Mapping[str, Any] = self._body(table, is_copied=False)["mappings"]["properties"]
        return fields

    def _body(self, table: TableDefinition, *, is_copied: bool) -> dict[str, Any]:
        body = index_body(table, self.options, is_opensearch=self._server.is_opensearch)
        body["settings"] |= {
            "index.number_of_replicas": self.options.replicas,
            "index.refresh_interval": "-1" if is_copied else self._refresh,
        }
        return body

    @property
    def _refresh(self) -> str:
        return f"{round(self.options.refresh * 1000)}ms"


def _come(change: TableChange) -> list[ColumnDefinition]:
    """Columns that the change brings."""
    return [new for old, new in change.columns if old is None and new is not None]

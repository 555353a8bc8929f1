"""Keeps the current rows of every table, or every change, in Redshift."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from penstock.destination.contract import Capabilities
from penstock.destination.families.kept_tables import Notes
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.destination.families.warehouse.loaded_files import CsvFiles
from penstock.destination.redshift.dialect import RedshiftDialect, manifest_of
from penstock.destination.redshift.folded_tables import make_view, members_of, view_of
from penstock.destination.redshift.options import FoldedTables, RedshiftOptions
from penstock.destination.redshift.session import RedshiftSession
from penstock.destination.redshift.sums import WORDS
from penstock.model.errors import DestinationError, TableRefused
from penstock.model.table_definition import TableDefinition

_NO_REDSHIFT = (
    "destination redshift: the server does not call itself Redshift: it says {version}; what is "
    "written here was made for Redshift"
)

_FOLDED = "folded"
"""The note with the views of several tables that are there."""


class RedshiftDestination(WarehouseDestination):
    """Rows, schema changes and the position are one transaction of Redshift."""

    name = "redshift"
    options_model = RedshiftOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=60.0
    )
    failpoints = ("redshift.merged", "redshift.committed", "redshift.copy_loaded")
    options: RedshiftOptions
    sum_words = WORDS

    @cached_property
    def dialect(self) -> RedshiftDialect:
        return RedshiftDialect(self.options, self.bucket.path)

    @cached_property
    def session(self) -> RedshiftSession:
        return RedshiftSession(self.options.url, f"penstock {self.pipeline}")

    def loaded_files(self) -> CsvFiles:
        return ManifestedFiles(bucket=self.bucket)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        super().prepare(definitions)
        wanted = json.dumps([each.model_dump() for each in self.options.folded])
        before = self.ledger.read(_FOLDED).get(_FOLDED, "[]")
        if wanted == before:
            return
        with self._changing() as notes:
            notes[_FOLDED] = wanted
            for each in map(FoldedTables.model_validate, json.loads(before)):
                self._drop_folded(each)
            for each in self.options.folded:
                self._make_folded(each, self._known().values())

    @contextmanager
    def _changing(self) -> Iterator[Notes]:
        """Views of several tables follow them in the same transaction."""
        with super()._changing() as notes:
            yield notes
            changed = {
                int(name.removeprefix("table/")): None if text is None else Target.from_text(text)
                for name, text in notes.items()
                if name.startswith("table/")
            }
            if not changed or not self.options.folded:
                return
            known = self._known()
            after = {oid: target for oid, target in {**known, **changed}.items() if target}
            touched = [*changed.values(), *(known.get(oid) for oid in changed)]
            for folded in self.options.folded:
                if members_of(folded, filter(None, touched)):
                    self._make_folded(folded, after.values())

    def _make_folded(self, folded: FoldedTables, targets: Iterable[Target]) -> None:
        self._drop_folded(folded)
        if members := members_of(folded, targets):
            schema = folded.into.partition(".")[0]
            self.session.run(self.dialect.create_schema(schema))
            self.session.run(make_view(self.dialect, folded, members))

    def _drop_folded(self, folded: FoldedTables) -> None:
        self.session.run(f"DROP VIEW IF EXISTS {view_of(self.dialect, folded)}")

    def _drop_view(self, target: Target) -> None:
        """A view keeps the tables that it shows from being changed: it is made again behind it."""
        super()._drop_view(target)
        for folded in self.options.folded:
            if folded.fits(target.schema, target.name):
                self._drop_folded(folded)

    def _expect_own_name(self, target: Target) -> None:
        super()._expect_own_name(target)
        named = self.dialect.table(target)
        for folded in self.options.folded:
            if view_of(self.dialect, folded) == named:
                raise TableRefused(
                    f"table {target.qualified_name} has the name of a view of several tables, "
                    f"{folded.into}",
                    remedy="give the view in destination.folded another name",
                    table=target.oid,
                )

    def look(self) -> Sequence[str]:
        ((version, may_create),) = self.session.rows(
            "SELECT version(), has_database_privilege(current_database(), 'create')"
        )
        if not may_create:
            raise DestinationError(
                f"destination redshift: {self.options.url}: the role may not create schemas in the "
                "database",
                remedy="GRANT CREATE ON DATABASE … TO it: Penstock makes the schema penstock, and "
                "those of the source's tables",
            )
        return () if "Redshift" in version else (_NO_REDSHIFT.format(version=version[:40]),)


@dataclass(frozen=True, kw_only=True)
class ManifestedFiles(CsvFiles):
    """Each file has a manifest beside it: Redshift takes what that names, or fails."""

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        name = super().put(pieces, schema)
        entry = {"url": f"{self.bucket.path}/{name}", "mandatory": True}
        self.bucket.put(manifest_of(name), json.dumps({"entries": [entry]}).encode())
        return name

    def remove(self, names: Sequence[str]) -> None:
        super().remove([*names, *map(manifest_of, names)])

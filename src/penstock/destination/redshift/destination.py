"""Keeps the current rows of every table, or every change, in Redshift."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from penstock.destination.contract import Capabilities
from penstock.destination.families.warehouse.destination import WarehouseDestination
from penstock.destination.families.warehouse.object_stage import CsvFiles
from penstock.destination.redshift.dialect import RedshiftDialect, manifest_of
from penstock.destination.redshift.options import RedshiftOptions
from penstock.destination.redshift.session import RedshiftSession
from penstock.model.errors import DestinationError

_NO_REDSHIFT = (
    "destination redshift: the server does not call itself Redshift: it says {version}; what is "
    "written here was made for Redshift"
)


class RedshiftDestination(WarehouseDestination):
    """Rows, schema changes and the position are one transaction of Redshift."""

    name = "redshift"
    options_model = RedshiftOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=60.0
    )
    failpoints = ("redshift.merged", "redshift.committed", "redshift.copy_loaded")
    options: RedshiftOptions

    @cached_property
    def dialect(self) -> RedshiftDialect:
        return RedshiftDialect(self.options, self.bucket.path)

    @cached_property
    def session(self) -> RedshiftSession:
        return RedshiftSession(self.options.url, f"penstock {self.pipeline}")

    def loaded_files(self) -> CsvFiles:
        return ManifestedFiles(bucket=self.bucket)

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

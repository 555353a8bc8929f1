"""The `redshift` destination's part of the pipeline file."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from penstock.config.connection_url import ConnectionUrl
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.warehouse.options import Stage, WarehouseOptions

_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")


def _role(value: str) -> str:
    if value != "default" and not all(_ROLE.fullmatch(each) for each in value.split(",")):
        raise PydanticCustomError(
            "iam_role",
            "Input should be `default` or arn:aws:iam::<account>:role/<name>; several, of which "
            "each assumes the next, have commas between them",
        )
    return value


def _on_s3(value: str) -> str:
    if not value.startswith("s3://"):
        raise PydanticCustomError("stage", "Input should be a bucket on S3: s3://bucket/prefix")
    return value


class _ForTables(DestinationOptions):
    """Said of tables whose ``schema.name`` the pattern ``match`` fits."""

    match: str = Field(min_length=1)

    def fits(self, schema: str, name: str) -> bool:
        return fnmatchcase(f"{schema}.{name}", self.match)


class RedshiftTable(_ForTables):
    """How the rows of tables lie. Columns that a table does not have are left out."""

    distribution: Literal["auto", "even", "all", "key"] = "auto"
    distribution_key: str | None = None
    sort_key: tuple[str, ...] = ()


class FoldedTables(_ForTables):
    """The view ``into``, which is no table of the source, shows all of them as one."""

    into: Annotated[str, Field(pattern=r"^[^.]+\.[^.]+$")]


class RedshiftOptions(WarehouseOptions):
    """``stage`` is on S3, and ``iam_role`` what Redshift reads it as. ``region`` is the bucket's
    where it is not that of the cluster. Of ``tables`` the first that fits counts, of ``folded``
    each.
    """

    url: ConnectionUrl
    stage: Annotated[Stage, AfterValidator(_on_s3)]
    iam_role: Annotated[str, AfterValidator(_role)]
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")] | None = None
    tables: tuple[RedshiftTable, ...] = ()
    folded: tuple[FoldedTables, ...] = ()

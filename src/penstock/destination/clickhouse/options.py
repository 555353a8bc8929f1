"""The `clickhouse` destination's part of the pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from penstock.config.quantities import Duration
from penstock.config.server_url import server_url
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit

LEDGER_DATABASE = "penstock"


class ClickHouseOptions(DestinationOptions):
    """``database`` is where the tables of a schema are; ``ledger_database`` where the pipeline's
    own table is. ``mode`` says whether tables hold the source's rows or every change of them.
    """

    url: Annotated[str, server_url("https://clickhouse:8443")]
    user: str = "default"
    password: SecretStr | None = None
    ca_file: Path | None = None
    database: Annotated[str, Field(min_length=1)] = "{schema}"
    ledger_database: Annotated[str, Field(min_length=1)] = LEDGER_DATABASE
    mode: Literal["merge", "append"] = "merge"
    unfit: Unfit = "refuse"
    timeout: Duration = 60.0

"""The `clickhouse` destination's part of the pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from penstock.config.quantities import Duration
from penstock.destination.contract import DestinationOptions
from penstock.destination.families.staged_merge.unfit_policy import Unfit


def _url(value: str) -> str:
    parts = urlsplit(value)
    try:
        found = parts.hostname if parts.port is None or parts.port else None
    except ValueError:
        found = None
    if parts.scheme not in ("http", "https") or not found or parts.query or parts.fragment:
        raise PydanticCustomError("url", "Input should be a URL such as https://clickhouse:8443")
    if parts.username or parts.password:
        raise PydanticCustomError(
            "url", "the user goes to destination.user, the password to destination.password"
        )
    return value.rstrip("/")


class ClickHouseOptions(DestinationOptions):
    """``database`` is where the tables of a schema are; ``ledger_database`` where the pipeline's
    own table is.
    """

    url: Annotated[str, AfterValidator(_url)]
    user: str = "default"
    password: SecretStr | None = None
    ca_file: Path | None = None
    database: Annotated[str, Field(min_length=1)] = "{schema}"
    ledger_database: Annotated[str, Field(min_length=1)] = "penstock"
    unfit: Unfit = "refuse"
    timeout: Duration = 60.0

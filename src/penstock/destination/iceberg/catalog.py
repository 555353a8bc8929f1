"""The catalogue that tells where tables are, and what it says when it does not answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import requests
import sqlalchemy.exc
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.table import Table

from penstock.destination.families.table_folders import folder_name
from penstock.destination.families.target import Target
from penstock.destination.iceberg.options import IcebergOptions
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable

_FILES = "penstock.destination.iceberg.durable_files.DurableFiles"

Identifier = tuple[str, str]

# It tells of every file that is gone already, at a level that people read.
logging.getLogger("pyiceberg").setLevel(logging.ERROR)


def identifier(schema: str, name: str) -> Identifier:
    """A table's name in the catalogue. Dots would part a namespace, and it cannot be blank."""
    return schema.replace(".", "~2e") if schema.strip() else folder_name(schema), name


def identifier_of(target: Target) -> Identifier:
    return identifier(target.schema, target.name)


class TableCatalog:
    """Opened when it is first asked; a SQL one makes its tables then."""

    def __init__(self, options: IcebergOptions) -> None:
        self._options = options

    @cached_property
    def catalog(self) -> Catalog:
        with self.explained("the catalogue"):
            return load_catalog(self._options.catalog_name, **self._properties())

    def _properties(self) -> dict[str, str | None]:
        options = self._options
        found = {name: value.get_secret_value() for name, value in options.properties.items()}
        found = {"py-io-impl": _FILES, **found}
        if options.warehouse is not None:
            found["warehouse"] = self.warehouse or ""
        if options.rest is not None:
            return {"type": "rest", "uri": options.rest, **found}
        if options.catalog is not None:
            url = options.catalog.reveal()
            if "://" not in url:
                raise DestinationError(
                    "destination iceberg: catalog has to be a URL, such as postgresql://host/name"
                )
            uri = f"postgresql+psycopg://{url.partition('://')[2]}"
            return {"type": "sql", "uri": uri, "pool_pre_ping": "true", **found}
        file = Path(options.catalog_file or "").absolute()
        file.parent.mkdir(parents=True, exist_ok=True)
        return {"type": "sql", "uri": f"sqlite:///{file}", **found}

    def probe(self) -> None:
        """Raise what ``explained`` makes of it where nobody answers. Makes nothing."""
        if self.is_there:
            with self.explained("the catalogue"):
                properties = {**self._properties(), "init_catalog_tables": "false"}
                try:
                    with load_catalog(self._options.catalog_name, **properties) as catalog:
                        catalog.list_namespaces()
                except sqlalchemy.exc.ProgrammingError:
                    return  # its tables are made by the first run

    @property
    def warehouse(self) -> str | None:
        folder = self._options.local_warehouse
        return self._options.warehouse if folder is None else f"file://{folder}"

    @property
    def is_there(self) -> bool:
        """Whether asking it makes nothing: a SQLite file would be made."""
        file = self._options.catalog_file
        return file is None or Path(file).exists()

    def location(self, of: Identifier) -> str | None:
        """Where a new table's files go; None where a service says it."""
        if self._options.rest is not None:
            return None
        root = (self.warehouse or "").rstrip("/")
        return f"{root}/{folder_name(of[0])}/{folder_name(of[1])}"

    def find(self, of: Identifier) -> Table | None:
        """A table as it is now, None without one."""
        with self.explained(".".join(of)):
            try:
                return self.catalog.load_table(of)
            except NoSuchTableError:
                return None

    def close(self) -> None:
        if "catalog" in self.__dict__:
            self.catalog.close()
            del self.catalog

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turns what pyiceberg says into errors that a person or the pipeline can act on."""
        try:
            yield
        except CommitFailedException as error:
            raise BatchAgain(
                f"destination iceberg: another writer was faster at {what}: {error}"
            ) from error
        except CommitStateUnknownException as error:
            # The table tells by its state whether it was.
            raise BatchAgain(
                f"destination iceberg: {what}: nobody knows if it was committed: {error}"
            ) from error
        except (
            sqlalchemy.exc.OperationalError,
            sqlalchemy.exc.InterfaceError,
            requests.exceptions.RequestException,
            ServerError,
            ServiceUnavailableError,
            TooManyRequestsError,
            OSError,
        ) as error:
            raise DestinationUnavailable(
                f"destination iceberg: {what}: {self._told(error)}",
                remedy="see that catalogue and warehouse can be reached, and that they may be "
                "written to",
            ) from None
        except (RESTError, sqlalchemy.exc.SQLAlchemyError) as error:
            raise DestinationError(
                f"destination iceberg: {what}: {self._told(error)}",
                remedy="see what the catalogue says",
            ) from None

    def _told(self, error: Exception) -> str:
        text = str(error).strip() or type(error).__name__
        secrets = [value.get_secret_value() for value in self._options.properties.values()]
        if self._options.catalog is not None:
            secrets += [self._options.catalog.reveal(), *self._options.catalog.secrets]
        for secret in secrets:
            # Short values are regions and flags.
            text = text.replace(secret, "***") if len(secret) >= 6 else text
        return text

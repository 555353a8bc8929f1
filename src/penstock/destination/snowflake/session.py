"""The connection to Snowflake: its own connector, one statement at a time."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.destination.families.warehouse.session import WarehouseSession
from penstock.destination.snowflake.options import SnowflakeOptions
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable

# Numbers of Snowflake's errors: a lock that was waited for too long, a deadlock, a transaction that
# somebody ended.
_CONFLICTS = (625, 626, 629)
# A session that ended, such as one that said nothing for four hours, and cannot be renewed.
_ENDED = range(390110, 390116)
_SECONDS = 60


class SnowflakeSession(WarehouseSession):
    """Signs in when the first statement comes. Its warehouse runs from the first statement that
    reads or writes rows, and sleeps as the warehouse's own AUTO_SUSPEND says.
    """

    def __init__(self, options: SnowflakeOptions, pipeline: str) -> None:
        super().__init__()
        self._options = options
        self._pipeline = pipeline
        self._connection: Any = None

    def run(self, statement: str) -> int:
        with self.lock, self._explained(), self._connected().cursor() as cursor:
            cursor.execute(statement)
            return max(cursor.rowcount or 0, 0)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.lock, self._explained(), self._connected().cursor() as cursor:
            return [tuple(row) for row in cursor.execute(query).fetchall()]

    def close(self) -> None:
        with self.lock:
            if self._connection is not None:
                with suppress(Exception):
                    self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        if self._connection is None:
            options, secret = self._options, dict[str, Any]()
            if options.password is not None:
                secret["password"] = options.password.get_secret_value()
            else:
                secret["private_key_file"] = options.private_key_file
                if options.private_key_password is not None:
                    secret["private_key_file_pwd"] = options.private_key_password.get_secret_value()
            self._connection = connector().connect(
                account=options.account,
                user=options.user,
                role=options.role,
                warehouse=options.warehouse,
                database=options.database,
                autocommit=True,
                login_timeout=_SECONDS,
                network_timeout=_SECONDS * 10,
                session_parameters={
                    "TIMEZONE": "UTC",
                    "QUERY_TAG": f"penstock {self._pipeline}",
                    "TRANSACTION_ABORT_ON_ERROR": False,
                },
                **secret,
            )
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns what Snowflake says into errors that a person or the pipeline can act on."""
        errors = connector().errors
        try:
            yield
        except errors.Error as error:
            text = " ".join(str(error).split())
            if error.errno in _CONFLICTS:
                raise BatchAgain(
                    f"destination snowflake: another transaction was faster: {text}"
                ) from None
            is_ended = error.errno in _ENDED or isinstance(
                error, getattr(errors, "ReauthenticationRequest", ())
            )
            if is_ended or isinstance(error, errors.OperationalError | errors.InterfaceError):
                self.close()
                raise DestinationUnavailable(
                    f"destination snowflake: account {self._options.account}: {text}",
                    remedy="see that the account can be reached, and the user may sign in",
                ) from None
            raise DestinationError(
                f"destination snowflake: {text}",
                remedy="see what Snowflake says; the rights that are needed: "
                "docs/destinations/snowflake.md",
            ) from None


def connector() -> Any:
    """Snowflake's package. Raises DestinationError where it is not installed."""
    try:
        return importlib.import_module("snowflake.connector")
    except ImportError as error:
        raise DestinationError(
            "destination snowflake: its connector is not installed",
            remedy="install it: pip install 'penstock[snowflake,objects]'",
        ) from error

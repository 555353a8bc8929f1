"""A Postgres connection URL that does not show its password by accident."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_SECRET_KEYS = ("password", "sslpassword", "passfile", "oauth_client_secret")


class ConnectionUrl:
    """Where a Postgres database is and how to sign in.

    ``str`` and ``repr`` leave out every secret, so that logs and errors may hold the object;
    ``reveal()`` is the only way to the text that libpq takes. Accepts a URL or ``key=value`` pairs.
    Raises ValueError for text that libpq does not understand, without repeating that text: a
    password with an unescaped ``@`` or ``?`` would otherwise end up in the message.
    """

    __slots__ = ("_parameters", "_text")

    def __init__(self, text: str) -> None:
        try:
            parsed = conninfo_to_dict(text)
        except psycopg.ProgrammingError:
            raise ValueError("not a Postgres connection URL") from None
        self._parameters = {key: str(item) for key, item in parsed.items() if item is not None}
        self._text = text
        if self._is_cut_wrongly():
            raise ValueError("not a Postgres connection URL: a special character is not escaped")

    def _is_cut_wrongly(self) -> bool:
        """Whether an unescaped / or @ in the password made its rest the port, path or host.

        libpq takes such text, and we would show a part of the password as a place.
        """
        path = re.match(r"\w+://[^/?]*/([^?]*)", self._text)
        host = self._parameters.get("host", "")
        return (
            not re.fullmatch(r"[0-9,]*", self._parameters.get("port", ""))
            or (path is not None and "@" in path[1])
            or ("@" in host and not host.startswith(("/", "@")))
        )

    def reveal(self) -> str:
        """The text as given, secrets included. Never log it."""
        return self._text

    def has(self, parameter: str) -> bool:
        """Whether the text itself sets this libpq parameter."""
        return parameter in self._parameters

    def milliseconds(self, parameter: str) -> int:
        """The number that the text sets this libpq parameter to; 0 where it sets none."""
        value = self._parameters.get(parameter, "")
        return int(value) if value.strip().isdecimal() else 0

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret value inside, for those who must take them out of foreign text."""
        return tuple(self._parameters[key] for key in _SECRET_KEYS if self._parameters.get(key))

    @property
    def host(self) -> str:
        return self._parameters.get("host") or self._parameters.get("hostaddr") or "local socket"

    @property
    def port(self) -> str:
        return self._parameters.get("port", "5432")

    @property
    def user(self) -> str | None:
        return self._parameters.get("user")

    @property
    def database(self) -> str | None:
        """The database named in the URL; libpq falls back to the user's name without one."""
        return self._parameters.get("dbname") or self.user

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"postgresql://{user}{self.host}:{self.port}/{self.database or ''}"

    def __repr__(self) -> str:
        return f"ConnectionUrl({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConnectionUrl) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def _validate(cls, value: object) -> ConnectionUrl:
        if isinstance(value, ConnectionUrl):
            return value
        try:
            if not isinstance(value, str) or not value.strip():
                raise ValueError
            return cls(value)
        except ValueError:
            raise PydanticCustomError(
                "connection_url",
                "Input should be a Postgres connection URL such as "
                "postgresql://user@host:5432/database; special characters in a password are "
                "written as %40 for @, %3F for ?, %2F for / and %23 for #",
            ) from None

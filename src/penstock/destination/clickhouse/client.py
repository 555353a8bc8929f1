"""Statements to a ClickHouse server by its HTTP interface, over a process's own connections."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.backoff import Backoff
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.model.errors import ConfigError, DestinationError, DestinationUnavailable

try:
    import clickhouse_connect
    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.exceptions import ClickHouseError
except ImportError as error:
    raise ConfigError(
        "destination clickhouse needs a package that is not installed",
        remedy="install `penstock[clickhouse]`",
    ) from error

_Result = TypeVar("_Result")
_CONNECT_SECONDS = 10
_SETTINGS = {
    # An answer means that it is done, and an error comes as one.
    "async_insert": "0",
    "wait_end_of_query": "1",
    "alter_sync": "2",
    "mutations_sync": "2",
    # Keys of rows stand in queries, some thousands at a time.
    "max_query_size": str(2**28),
    "max_ast_elements": "10000000",
    "max_expanded_ast_elements": "10000000",
    "output_format_arrow_compression_method": "none",
}
_WAIT_PASSES = frozenset(
    {
        *(159, 160, 164, 198, 202, 203, 209, 210, 225, 236, 241, 242, 243, 252, 279, 285, 319),
        *(373, 394, 425, 439, 473, 735, 746, 999),
    }
)
"""Errors that may pass by themselves: timeouts, memory, too many queries or parts, replicas."""
_CODE = re.compile(r"\bCode: (\d+)")
_RIGHTS = frozenset({192, 193, 194, 497, 516})

THROWN = 395
"""What ``throwIf`` raises."""
GONE = frozenset({60, 81, 218})
"""The table, or its database, is not there, or is being dropped."""

_clients: dict[str, Client] = {}


class Refused(DestinationError):
    """The server answered with an error. ``code`` is its number."""

    def __init__(self, message: str, *, remedy: str = "", code: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code


@dataclass(frozen=True)
class ClickHouseClient:
    """Pickled to the executors. Its connections belong to the process.

    Every statement may be made twice: a lost answer is followed by another try. Raises Refused for
    an error that does not pass, DestinationUnavailable for one that might have.
    """

    options: ClickHouseOptions

    def run(self, sql: str, *, doing: str) -> None:
        """Run a statement that has no result."""
        self._again(lambda client: client.command(sql), doing)

    def insert(self, sql: str, rows: pa.Table, *, doing: str) -> int:
        """Run an INSERT that reads these rows by ``input()``; how often it had to be sent again."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        body = sink.getvalue().to_pybytes()
        command = f"{sql} FORMAT ArrowStream"
        tries = 0

        def send(client: Client) -> None:
            nonlocal tries
            tries += 1
            client.command(command, data=body)

        self._again(send, doing)
        return tries - 1

    def read(self, sql: str, *, doing: str) -> pa.Table:
        """The result of a query."""
        found = self._again(lambda client: client.raw_query(sql, fmt="ArrowStream"), doing)
        return pa.ipc.open_stream(found).read_all()

    def value(self, sql: str, *, doing: str) -> str:
        """The single value that a statement has as its result."""
        return str(self._again(lambda client: client.command(sql), doing))

    def _again(self, call: Callable[[Client], _Result], doing: str) -> _Result:
        pauses = Backoff(first=0.1, longest=5.0)
        end = time.monotonic() + self.options.timeout
        while True:
            try:
                return call(self._client())
            except ClickHouseError as error:
                failed = self._failure(error, doing)
            except (OSError, pa.ArrowInvalid) as error:
                failed = self._unavailable(f"{doing} failed: {error}")
            if not isinstance(failed, DestinationUnavailable) or time.monotonic() > end:
                raise failed
            time.sleep(pauses.next_pause())

    def _failure(self, error: Exception, doing: str) -> DestinationError:
        text = " ".join(str(error).split())[:1000]
        # A proxy between may have left the header out that has it.
        told = getattr(error, "code", None) or next(iter(_CODE.findall(text)), None)
        if told is None or int(told) in _WAIT_PASSES:
            return self._unavailable(f"{doing} failed: {text}")
        code, remedy = int(told), "see the options of the destination, and the server's log"
        if code in _RIGHTS:
            remedy = "grant the user what docs/destinations/clickhouse.md lists"
        message = f"destination clickhouse: {doing} at {self.options.url} failed: {text}"
        return Refused(message, remedy=remedy, code=code)

    def _unavailable(self, what: str) -> DestinationUnavailable:
        return DestinationUnavailable(
            f"destination clickhouse at {self.options.url}: {what}",
            remedy="see whether the server can be reached, and what its log says",
        )

    def _client(self) -> Client:
        options = self.options
        # A password in another file is another client.
        name = f"{options!r} {options.password and hash(options.password)}"
        if name not in _clients:
            parts = urlsplit(options.url)
            secret = options.password.get_secret_value() if options.password else ""
            _clients[name] = clickhouse_connect.get_client(
                interface=parts.scheme,
                host=parts.hostname,
                port=parts.port or (8443 if parts.scheme == "https" else 8123),
                proxy_path=parts.path,
                username=options.user,
                password=secret,
                ca_cert=str(options.ca_file) if options.ca_file else None,
                connect_timeout=_CONNECT_SECONDS,
                send_receive_timeout=max(int(options.timeout), 600),
                autogenerate_session_id=False,
                query_retries=0,
                settings=_SETTINGS,
            )
        return _clients[name]

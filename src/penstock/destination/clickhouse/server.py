"""What a server must have, and what of it a person may not expect."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.destination.clickhouse.client import ClickHouseClient, Refused
from penstock.model.errors import DestinationError

_OLDEST = (23, 8)
_OLDEST_LATEST = (24, 8)
_RIGHTS = (
    "CREATE DATABASE, CREATE TABLE, CREATE VIEW, ALTER TABLE, DROP TABLE, DROP VIEW, SELECT, INSERT"
)
_LITTLE_SPACE = 0.05


def check_server(client: ClickHouseClient) -> Sequence[str]:
    """Raises DestinationError where rows could not be written; what a person should know."""
    version = client.value("SELECT version()", doing="asking for its version")
    found = tuple(int(part) for part in version.split(".")[:2])
    if client.options.mode == "append" and found < _OLDEST_LATEST:
        raise DestinationError(
            f"destination clickhouse: the server is {version}, and mode: append needs "
            f"{_OLDEST_LATEST[0]}.{_OLDEST_LATEST[1]}, whose queries may name themselves",
            remedy="take a newer server, or mode: merge",
        )
    if found < _OLDEST:
        raise DestinationError(
            f"destination clickhouse: the server is {version}, and {_OLDEST[0]}.{_OLDEST[1]} is "
            "the oldest whose tables know deleted rows and tell them by FINAL",
            remedy="take a newer server",
        )
    return [*_rights(client), *_space(client)]


def _rights(client: ClickHouseClient) -> Sequence[str]:
    try:
        found = client.value(f"CHECK GRANT {_RIGHTS} ON *.*", doing="asking for its rights")
    except Refused:
        return ["the server cannot be asked for rights (CHECK GRANT): the first table will tell"]
    if found == "1":
        return ()
    note = (
        f"the user has not all of {_RIGHTS} on every database: it needs them on those that "
        "destination.database and destination.ledger_database name"
    )
    return [note]


def _space(client: ClickHouseClient) -> Sequence[str]:
    sql = "SELECT name, free_space, total_space FROM system.disks WHERE total_space > 0"
    disks = client.read(sql, doing="asking for its disks").to_pylist()
    return [
        f"the disk {disk['name']} of the server has {disk['free_space'] >> 20} MiB left"
        for disk in disks
        if disk["free_space"] < _LITTLE_SPACE * disk["total_space"]
    ]

"""A stand-in for Redshift: Postgres behind a server of ours that speaks as much of Redshift as the
destination needs. It is no Redshift: what it shows is the order of statements, transactions and
rows, not the dialect, which `redshift_lint.py` looks after.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
import struct
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.destination.families.staged_merge.object_stage import stage_owner
from penstock.objects.bucket import Bucket
from tests.integration.fake_pooler import FakePooler
from tests.redshift_lint import complaints

ROLE = "arn:aws:iam::123456789012:role/penstock-stage"

# Types and functions that Postgres lacks. VARBYTE holds its hexadecimal digits.
_SETUP = """
DROP SCHEMA IF EXISTS stand_in CASCADE;
CREATE SCHEMA stand_in;
CREATE DOMAIN stand_in.varchar_65535 AS text CHECK (octet_length(value) <= 65535);
CREATE DOMAIN stand_in.varbyte AS text CHECK (value ~ '^([0-9a-f]{2})*$');
CREATE DOMAIN stand_in.super AS jsonb;
CREATE FUNCTION stand_in.json_parse(text) RETURNS jsonb LANGUAGE sql AS 'SELECT $1::jsonb';
CREATE FUNCTION stand_in.json_serialize(jsonb) RETURNS text LANGUAGE sql
    AS $$SELECT replace($1::text, '", "', '","')$$;
CREATE FUNCTION stand_in.json_extract_path_text(text, text) RETURNS text LANGUAGE sql
    AS 'SELECT $1::json ->> $2';
CREATE FUNCTION stand_in.to_hex(stand_in.varbyte) RETURNS text LANGUAGE sql AS 'SELECT $1::text';
CREATE FUNCTION stand_in.from_hex(text) RETURNS text LANGUAGE sql AS 'SELECT lower($1)';
CREATE FUNCTION stand_in.strtol(text, int) RETURNS bigint LANGUAGE sql
    AS $$SELECT ('x' || lpad($1, 16, '0'))::bit(64)::bigint WHERE $2 = 16$$;
CREATE FUNCTION stand_in.datediff(text, date, date) RETURNS bigint LANGUAGE sql
    AS $$SELECT $3 - $2 WHERE $1 = 'day'$$;
CREATE FUNCTION stand_in.datediff(text, timestamp, timestamp) RETURNS bigint LANGUAGE sql
    AS $$SELECT (extract(epoch FROM $3) - extract(epoch FROM $2)) * 1000000 WHERE $1 = 'us'$$;
CREATE FUNCTION stand_in.datediff(text, time, time) RETURNS bigint LANGUAGE sql
    AS $$SELECT (extract(epoch FROM $3) - extract(epoch FROM $2)) * 1000000 WHERE $1 = 'us'$$;
CREATE VIEW stand_in.columns AS
SELECT table_schema, table_name, column_name, ordinal_position, numeric_precision, numeric_scale,
       CASE domain_name WHEN 'varbyte' THEN 'binary varying' WHEN 'super' THEN 'super'
            WHEN 'varchar_65535' THEN 'character varying' ELSE data_type END AS data_type,
       CASE domain_name WHEN 'varchar_65535' THEN 65535 ELSE character_maximum_length END
           AS character_maximum_length
FROM information_schema.columns WHERE table_schema <> 'stand_in';
"""
_SPELLED = {
    r"\bVARBYTE\(\d+\)": "stand_in.varbyte",
    r"\bSUPER\b": "stand_in.super",
    r"\bVARCHAR\(65535\)": "stand_in.varchar_65535",
    r" (DISTSTYLE \w+|DISTKEY \([^)]*\)|SORTKEY \([^)]*\))": "",
    r"\binformation_schema\.columns\b": "stand_in.columns",
    r"\bDATEDIFF\((\w+), ": r"stand_in.datediff('\1', ",
    r"\bSTRTOL\(": "stand_in.strtol(",
    r"\bOCTET_LENGTH\((\S+)\) AS VARCHAR\(20\)": r"octet_length(\1) / 2 AS varchar(20)",
    r"\bSUBSTRING\((\S+), 1, 32000\)": r"left(\1, 64000)::stand_in.varbyte",
    r"\b(JSON_PARSE|JSON_SERIALIZE|JSON_EXTRACT_PATH_TEXT|FROM_HEX|TO_HEX)\(": r"stand_in.\1(",
    r'\b_old\."((?:[^"]|"")*)"': r"(_old ->> $name$\1$name$)",
}
_COPY = re.compile(
    r"COPY (?P<table>.+?) \((?P<columns>.*)\) FROM '(?P<manifest>s3://[^']+)'"
    r" IAM_ROLE (?P<role>default|'[^']*')(?: REGION '(?P<region>[^']*)')? MANIFEST GZIP CSV"
    r" NULL AS '(?P<null>[^']*)' DATEFORMAT 'auto' TIMEFORMAT 'auto' COMPUPDATE OFF STATUPDATE OFF"
)
_NAME = re.compile(r'"((?:[^"]|"")+)"')
_STRINGS = re.compile(r"('(?:[^']|'')*')")


class RedshiftStandIn(FakePooler):
    """``statements`` are all that came, in their order; ``denied`` what the deny-list says of them:
    such a statement fails. ``faults`` are patterns and messages: the next statement that fits
    fails with that one. The answer to the next that fits one of ``unanswered`` is lost, and the
    connection with it.
    """

    def __init__(self, database: str, stage_options: dict[str, str]) -> None:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(_SETUP.encode())
        self._database = database
        self._stage_options = stage_options
        self.statements: list[str] = []
        self.denied: list[tuple[str, str]] = []
        self.faults: list[tuple[str, str]] = []
        self.unanswered: list[str] = []
        super().__init__(int(str(conninfo_to_dict(database)["port"])))
        self.invents_numbers = False

    @property
    def url(self) -> str:
        return make_conninfo(self._database, host="127.0.0.1", port=self.port)

    def _serve_session(self, client: socket.socket, server: socket.socket) -> None:
        try:
            self._talk(client, server)
        finally:
            # Whose client is gone has its transaction rolled back.
            for each in (client, server):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        status = b"I"
        while True:
            kind, body = self._exactly(client, 1), self._packet(client)
            if kind != b"Q":
                server.sendall(kind + body)
                assert kind == b"X", f"only simple queries are expected, and {kind!r} came"
                return
            statement = body[4:-1].decode()
            self.statements.append(statement)
            lost = next((each for each in self.unanswered if re.search(each, statement)), None)
            if lost is not None:
                self.unanswered.remove(lost)
                nobody, other = socket.socketpair()
                self._execute(other, server, statement, status)
                nobody.close()
                other.close()
                return
            status = self._execute(client, server, statement, status)

    def _execute(
        self, client: socket.socket, server: socket.socket, statement: str, status: bytes
    ) -> bytes:
        copied = None
        if (refusal := self._refusal(statement, status != b"I")) is not None:
            sent = f"DO $refusal$ BEGIN RAISE EXCEPTION USING MESSAGE = '{refusal}'; END $refusal$"
        elif statement.startswith("COPY "):
            found = _COPY.fullmatch(statement)
            copied = None if found is None else self._files(found)
            if found is None or copied is None:
                sent = "DO $$ BEGIN RAISE EXCEPTION 'Load failed: no such file or role'; END $$"
            else:
                sent = (
                    f"COPY {found['table']} ({found['columns']}) FROM STDIN"
                    f" (FORMAT csv, NULL '{found['null']}')"
                )
        elif statement.startswith("TRUNCATE"):
            sent = f"{statement}; COMMIT"
        else:
            sent = _translated(statement)
        body = sent.encode() + b"\0"
        server.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        while True:
            kind, body = self._exactly(server, 1), self._packet(server)
            if kind == b"G":
                for data in copied or []:
                    server.sendall(b"d" + struct.pack("!i", len(data) + 4) + data)
                server.sendall(b"c" + struct.pack("!i", 4))
                continue
            client.sendall(kind + body)
            if kind == b"Z":
                return body[4:]

    def _refusal(self, statement: str, in_transaction: bool) -> str | None:
        for why in complaints(statement, in_transaction=in_transaction):
            self.denied.append((why, statement))
            return why
        for fault in self.faults:
            if re.search(fault[0], statement):
                self.faults.remove(fault)
                return fault[1]
        return None

    def _files(self, copy: re.Match[str]) -> list[bytes] | None:
        """What the manifest names; None where Redshift could not read it."""
        if copy["role"] != f"'{ROLE}'":
            return None
        manifest = self._object(copy["manifest"])
        if manifest is None:
            return None
        found = [self._object(entry["url"]) for entry in json.loads(manifest)["entries"]]
        if any(data is None for data in found):
            return None
        return [gzip.decompress(data) for data in found if data is not None]

    def _object(self, url: str) -> bytes | None:
        place, _, name = url.rpartition("/")
        data: Any = Bucket(place, self._stage_options, stage_owner("redshift")).get(name)
        return None if data is None else bytes(data)

    def _sign_in(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(EOFError):
            super()._sign_in(client, server)


def _translated(statement: str) -> str:
    """For Postgres; literals stay as they are."""
    parts = _STRINGS.split(statement)
    for index in range(0, len(parts), 2):
        parts[index] = _NAME.sub(_shortened, parts[index])
        for pattern, spelled in _SPELLED.items():
            parts[index] = re.sub(pattern, spelled, parts[index])
    return "".join(parts)


def _shortened(name: re.Match[str]) -> str:
    """Redshift's names have 127 bytes, those of Postgres 63."""
    whole = name[1].encode()
    return name[0] if len(whole) <= 63 else f'"{hashlib.md5(whole).hexdigest()}"'  # noqa: S324

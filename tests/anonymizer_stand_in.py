"""A stand-in for PostgreSQL Anonymizer, which no package registry has: an extension called anon
with a few functions of the same names, arguments and volatilities. They are written for the tests,
and give other values than the extension's own.

It is a real extension for the server: its folder of control files is one of the test's
(`extension_control_path`, from Postgres 18 on).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

OLDEST = 18
"""The first version of Postgres that takes extensions from a folder of anybody's own."""

_CONTROL = """\
comment = 'a stand-in for PostgreSQL Anonymizer, for tests alone'
default_version = '1.0'
relocatable = false
schema = anon
"""
_SCRIPT = """\
CREATE TABLE anon.city (oid serial PRIMARY KEY, val text);
INSERT INTO anon.city (val) SELECT 'City ' || n FROM generate_series(1, 50) n;
GRANT USAGE ON SCHEMA anon TO PUBLIC;
GRANT SELECT ON anon.city TO PUBLIC;

CREATE FUNCTION anon.partial(ov text, prefix int, padding text, suffix int) RETURNS text
  IMMUTABLE LANGUAGE sql SET search_path = '' AS
  $$ SELECT left(ov, prefix) || padding || right(ov, suffix) $$;
CREATE FUNCTION anon.partial_email(ov text) RETURNS text
  IMMUTABLE LANGUAGE sql SET search_path = '' AS
  $$ SELECT left(ov, 2) || '***@' || left(split_part(ov, '@', 2), 2) || '***' $$;
CREATE FUNCTION anon.digest(val text, salt text, algorithm text) RETURNS text
  IMMUTABLE STRICT LANGUAGE sql SET search_path = '' AS
  $$ SELECT CASE algorithm WHEN 'md5' THEN md5(val || salt)
       WHEN 'sha256' THEN encode(sha256((val || salt)::bytea), 'hex') END $$;
CREATE FUNCTION anon.hash(seed text) RETURNS text
  STABLE STRICT SECURITY DEFINER LANGUAGE sql SET search_path = '' AS
  $$ SELECT anon.digest(seed, current_setting('anon.salt'), 'sha256') $$;
CREATE FUNCTION anon.pseudo_city(seed anyelement, salt text DEFAULT NULL) RETURNS text
  STABLE SECURITY DEFINER LANGUAGE sql SET search_path = '' AS
  $$ SELECT val FROM anon.city WHERE oid = 1 + abs(hashtext(seed::text
       || coalesce(salt, current_setting('anon.salt')))::bigint)
       % (SELECT count(*) FROM anon.city) $$;
CREATE FUNCTION anon.fake_city() RETURNS text
  VOLATILE LANGUAGE sql SET search_path = '' AS
  $$ WITH one AS (SELECT 1 + floor(random() * 50)::int AS place)
     SELECT c.val FROM one JOIN anon.city c ON c.oid = one.place $$;
CREATE FUNCTION anon.noise(noise_value anyelement, ratio double precision) RETURNS anyelement
  VOLATILE LANGUAGE plpgsql SET search_path = '' AS
  $$ DECLARE res ALIAS FOR $0;
     BEGIN SELECT (noise_value * (1 + (2 * random() - 1) * ratio))::text INTO res; RETURN res; END
  $$;
CREATE FUNCTION anon.hex_to_int(hexval text) RETURNS int
  IMMUTABLE STRICT LANGUAGE plpgsql SET search_path = '' AS
  $$ DECLARE result int;
     BEGIN EXECUTE 'SELECT x' || quote_literal(hexval) || '::int' INTO result; RETURN result; END
  $$;
CREATE FUNCTION anon.generalize_int4range(val integer, step integer DEFAULT 10) RETURNS int4range
  IMMUTABLE LANGUAGE sql SET search_path = '' AS
  $$ SELECT int4range(val / step * step, (val / step + 1) * step) $$;
CREATE FUNCTION anon.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT pg_catalog.lower($1) $$;
CREATE FUNCTION anon.k_anonymity(relid text) RETURNS integer
  IMMUTABLE LANGUAGE sql SET search_path = '' AS $$ SELECT count(*)::int FROM anon.city $$;
CREATE FUNCTION anon.unload() RETURNS boolean
  VOLATILE LANGUAGE plpgsql AS $$ BEGIN DELETE FROM anon.city; RETURN true; END $$;
CREATE FUNCTION anon.detect(dict_lang text DEFAULT 'en') RETURNS SETOF text
  STABLE LANGUAGE sql AS $$ SELECT val FROM anon.city $$;
"""


@contextmanager
def _folder() -> Iterator[Path]:
    # The server may run as another user (nobody).
    with tempfile.TemporaryDirectory(prefix="penstock-anon-") as text:
        folder = Path(text, "extension")
        folder.mkdir()
        (folder / "anon.control").write_text(_CONTROL)
        (folder / "anon--1.0.sql").write_text(_SCRIPT)
        for path in (folder.parent, folder, *folder.iterdir()):
            path.chmod(0o755)
        yield folder.parent


def install(url: str) -> None:
    """Make the extension in a database, of whose functions some take the salt `one`."""
    with _folder() as folder, psycopg.connect(url, autocommit=True) as conn:
        path = sql.Literal(f"{folder}:$system")
        conn.execute(sql.SQL("SET extension_control_path = {}").format(path))
        conn.execute("CREATE EXTENSION anon")
    salt(url, "one")


def salt(url: str, text: str) -> None:
    """Another salt, for sessions that begin from now on."""
    with psycopg.connect(url, autocommit=True) as conn:
        own = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET anon.salt = {}").format(own, sql.Literal(text)))

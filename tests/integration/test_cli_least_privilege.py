"""The commands under a role with LOGIN and REPLICATION that owns its tables, and nothing else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from penstock.cli.main import main
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.lsn import parse_lsn

pytestmark = pytest.mark.every_postgres


@pytest.fixture
def role(pg_server: EmbeddedPostgres) -> Iterator[str]:
    role = f"role_{uuid.uuid4().hex}"
    with psycopg.connect(pg_server.url(), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE ROLE {} LOGIN REPLICATION PASSWORD 'hunter2'").format(
                sql.Identifier(role)
            )
        )
        yield role
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.fixture
def shop(role: str, database: str, pg_server: EmbeddedPostgres) -> str:
    """The role's URL of a database with one table of its own.

    It asks for ``role`` first, so that the database is dropped before its owner.
    """
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            sql.SQL(
                "CREATE SCHEMA shop AUTHORIZATION {0}; GRANT CREATE ON DATABASE {1} TO {0};"
                "CREATE TABLE shop.orders (id int PRIMARY KEY);"
                "ALTER TABLE shop.orders OWNER TO {0}"
            ).format(sql.Identifier(role), sql.Identifier(admin.info.dbname))
        )
        url = pg_server.url(admin.info.dbname, role)
    return url.replace(f"{role}@", f"{role}:hunter2@")


def test_the_whole_life_by_command_line(
    shop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Slots belong to the whole server, so two tests must not share a pipeline's name.
    name = f"t_{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("SHOP_URL", shop)
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"name: {name}\n"
        "source: {url: '${SHOP_URL}', tables: {include: ['shop.*']}, copy: false}\n"
        "destination: {type: discard}\n"
    )

    def command(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        captured = capsys.readouterr()
        assert "hunter2" not in captured.out + captured.err
        assert isinstance(caught.value.code, int)
        return caught.value.code, captured.out + captured.err

    code, text = command("check", str(path))
    assert code == 0, text
    assert "failed" not in text
    assert "1 match: shop.orders" in text
    code, text = command("init", str(path))
    assert code == 0, text
    assert f"Publication penstock_{name} with 1 tables." in text
    assert command("init", str(path)) == (0, text)
    code, text = command("status", str(path), "--json")
    status = json.loads(text)
    assert (code, status["source"]["state"]) == (0, "stopped")
    assert status["source"]["tables"] == ["shop.orders"]
    assert parse_lsn(status["source"]["start_lsn"]) > 0
    code, text = command("check", str(path))
    assert code == 0, text
    assert "not needed: the pipeline has its slot" in text
    assert command("status", str(path))[0] == 0
    code, text = command("destroy", str(path), "--yes")
    assert code == 0, text
    assert "Removed replication slot" in text
    assert command("destroy", str(path), "--yes")[1].startswith("There was nothing")
    with psycopg.connect(shop, autocommit=True) as conn:
        query = (
            "SELECT pubname::text FROM pg_publication UNION ALL"
            " SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database()"
        )
        assert conn.execute(query).fetchall() == []

"""`penstock log inspect` and `penstock status` on a log that a real server filled."""

from __future__ import annotations

import json

import psycopg
import pytest

from penstock.cli.main import main
from penstock.model.lsn import format_lsn, parse_lsn
from tests.fix_pipeline import PipelineUnderTest


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    captured = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, captured.out + captured.err


def test_inspect(pipeline: PipelineUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.execute(
        "CREATE TABLE items (id int PRIMARY KEY, name text, long text)",
        "ALTER TABLE items ALTER long SET STORAGE EXTERNAL",
        'CREATE TABLE "Other" (id int PRIMARY KEY)',
    )
    pipeline.subscribe()
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'größer', repeat('x', 9000)), (2, NULL, NULL)")
        conn.execute('INSERT INTO "Other" VALUES (7)')
    pipeline.execute(
        "UPDATE items SET id = 3, name = 'b' WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
        'TRUNCATE items, "Other"',
        "SELECT pg_logical_emit_message(true, 'note', 'hello')",
    )
    changes = pipeline.capture_all()
    path = pipeline.log.root.path

    code, text = command(capsys, "log", "inspect", path)
    assert code == 0
    listing = pipeline.log.list()
    lines = text.splitlines()
    assert len(lines) == len(listing.segments) + 2
    assert lines[0].split()[:4] == ["segment", "epoch", "changes", "size"]
    assert f"{len(listing.segments)} segments" in lines[-1]
    assert str(listing.frontier) in lines[-1]

    code, text = command(capsys, "log", "inspect", path, "--rows", "10")
    assert code == 0
    first = format_lsn(changes[0].position.commit_lsn)
    assert f"transaction {changes[0].xid}, commit {first} at " in text
    assert "3 changes here" in text
    assert 'insert public.items {"id": "2", "name": null, "long": null}' in text
    assert '"name": "größer"' in text
    assert 'update public.items {"id": "3", "name": "b", "long": "(unset)"} old {"id": "1"}' in text
    assert 'delete public.items {"id": "2"}' in text
    truncated = next(line for line in text.splitlines() if "truncate" in line)
    assert "public.items" in truncated
    assert "public.Other" in truncated
    assert "message 'note' b'hello'" in text

    code, text = command(capsys, "log", "inspect", path, "--rows", "10", "--table", "public.Other")
    assert code == 0
    assert 'insert public.Other {"id": "7"}' in text
    assert "insert public.items" not in text

    code, text = command(capsys, "log", "inspect", path, "--segment", "999")
    assert code == 2
    assert "has no segment 999" in text


def test_inspect_without_a_log(
    pipeline: PipelineUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = command(capsys, "log", "inspect", str(pipeline.folder))
    assert code == 2
    assert "holds no segments" in text
    assert "What to do" in text


def test_status_as_json(pipeline: PipelineUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.subscribe()
    pipeline.execute("INSERT INTO items VALUES (1)")
    with pipeline.capturing() as capture:
        held = pipeline.sync(capture)
        pipeline.log.set_reader(pipeline.name, held)
        code, text = command(capsys, "status", str(pipeline.file), "--json")
        status = json.loads(text)
        assert code == 0
        assert status["pipeline"] == pipeline.name
        assert status["source"]["state"] == "streaming"
        assert status["source"]["tables"] == ["public.items"]
        assert parse_lsn(status["log"]["end"]["end_lsn"]) >= held.end_lsn
        assert status["log"]["segments"] >= 1
        assert status["log"]["bytes"] > 0
        assert parse_lsn(status["log"]["readers"][pipeline.name]["commit_lsn"]) == held.commit_lsn
        assert status["log"]["capture"]["state"] in ("starting", "streaming")
    code, text = command(capsys, "status", str(pipeline.file))
    assert code == 0
    assert f"pipeline      {pipeline.name}: stopped" in text
    assert "change log" in text
    assert "capture       stopped" in text

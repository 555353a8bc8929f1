"""Parts of a whole schema that need no server: archives, kinds, changes, programs."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.config.models import PipelineConfig
from penstock.destination.postgres.options import FullSchemaOptions, PostgresOptions
from penstock.destination.postgres.whole_schema.archived_indexes import ArchivedIndexes
from penstock.destination.postgres.whole_schema.follow import SchemaChanges, schema_changes
from penstock.destination.postgres.whole_schema.kinds import wanted_entries
from penstock.destination.postgres.whole_schema.scripts import _without_prologue
from penstock.destination.registry import make_destination
from penstock.model.errors import ConfigError, SourceError
from penstock.model.table_definition import IndexDefinition, TableDefinition
from penstock.pipeline.copy.schema_copy import check_schema
from penstock.pipeline.run.opened import opened_destination
from penstock.source.postgres.whole_schema.archive import Entry, read_entries
from penstock.source.postgres.whole_schema.programs import find_programs
from penstock.source.schema_dump import DumpedIndex, DumpedRole, DumpFacts
from penstock.spark.preflight import _destination

VERSIONS = ((1, 14), (1, 15), (1, 16))
URL = "postgresql://localhost/there"


def entry(number: int, kind: str, name: str, **others: object) -> Entry:
    plain = Entry(
        number, 1259, number, kind, "public", name, "me", "pre", f"CREATE {name};", "DROP;", ()
    )
    return replace(plain, **others)  # type: ignore[arg-type]


def test_passwords_of_other_servers_are_not_shown() -> None:
    said = "CREATE USER MAPPING FOR app SERVER far OPTIONS (password 's3c''ret', \"user\" 'me');"
    shown = entry(1, "USER MAPPING", "app", statement=said).shown
    assert shown == (
        "CREATE USER MAPPING FOR app SERVER far OPTIONS (password '***', \"user\" '***');"
    )
    assert entry(1, "VIEW", "v", statement=" SELECT 's3cret' ").shown == "SELECT 's3cret'"


# -- archives ------------------------------------------------------------------------------------


def _number(value: int) -> bytes:
    return bytes([value < 0]) + abs(value).to_bytes(4, "little")


def _text(value: str | None) -> bytes:
    return _number(-1) if value is None else _number(len(value.encode())) + value.encode()


def archive(entries: list[Entry], version: tuple[int, int]) -> bytes:
    """As pg_dump writes it; comments and the like have no section of their own."""
    data = b"PGDMP" + bytes([*version, 0, 4, 8, 1])
    data += bytes([0]) if version >= (1, 15) else _number(0)
    data += b"".join(map(_number, (1, 2, 3, 4, 5, 126, 0)))
    data += _text("there") + _text("18.0") + _text("18.0") + _number(len(entries))
    for each in entries:
        section = {"pre": 2, "data": 3, "post": 4}[each.section]
        data += _number(each.id) + _number(0) + _text(str(each.catalogue)) + _text(str(each.oid))
        data += _text(each.name) + _text(each.kind) + _number(section)
        data += _text(each.statement) + _text(each.drop) + _text(None) + _text(each.schema)
        data += _text(None) + _text("heap") + (_number(114) if version >= (1, 16) else b"")
        data += _text(each.owner) + _text("false")
        data += b"".join(_text(str(needed)) for needed in each.needs) + _text(None)
        data += bytes([3]) + bytes(8)
    return data


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**31)
entries_of_any_kind = st.builds(
    Entry,
    *(numbers, numbers, numbers, texts, texts, texts, texts),
    st.sampled_from(["pre", "data", "post"]),
    *(texts, texts, st.lists(numbers, max_size=3).map(tuple)),
)


@given(st.lists(entries_of_any_kind, max_size=5), st.sampled_from(VERSIONS))
def test_every_entry_is_read(entries: list[Entry], version: tuple[int, int]) -> None:
    assert read_entries(archive(entries, version)) == entries


@given(st.data())
def test_an_archive_that_is_cut_short_is_an_error(data: st.DataObject) -> None:
    whole = archive([entry(1, "TABLE", "a"), entry(2, "VIEW", "b", needs=(1,))], (1, 16))
    with pytest.raises(SourceError):
        read_entries(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_an_archive_of_another_version_is_an_error() -> None:
    with pytest.raises(SourceError, match=r"1\.17"):
        read_entries(archive([], (1, 17)))


def test_what_is_for_psql_goes_and_bodies_stay() -> None:
    body = "CREATE FUNCTION f() AS $$\n\\restrict x\nSET row_security = off;\n\\unrestrict y\n$$;"
    script = f"--\n\\restrict key\n\nSET row_security = off;\nSET transaction_timeout = 0;\n{body}"
    assert _without_prologue(f"{script}\n\n\\unrestrict key\n\n") == body


def test_facts_come_back() -> None:
    facts = DumpFacts(
        (DumpedIndex(1, 2, 3, "public", "i", ("a",), is_primary=True),),
        {7: ("public", "t", "fk")},
        (("public", "m"),),
        (DumpedRole("bob", can_login=True, inherits=False, member_of=("team",)),),
        ("large",),
    )
    assert DumpFacts.from_json(json.loads(facts.to_json())) == facts


# -- kinds ---------------------------------------------------------------------------------------


def kept(entries: list[Entry], **options: object) -> list[str]:
    wanted = wanted_entries(entries, FullSchemaOptions.model_validate(options))
    return [each.name for each in wanted]


def test_what_belongs_to_what_is_left_out_goes_with_it() -> None:
    view = entry(1, "VIEW", "v")
    comment = entry(2, "COMMENT", "VIEW v", catalogue=0, needs=(1,))
    table, upon = entry(3, "TABLE", "t"), entry(4, "MATERIALIZED VIEW", "m", needs=(1,))
    every = [view, comment, table, upon]
    assert kept(every) == ["v", "VIEW v", "t", "m"]
    assert kept(every, exclude=["views"]) == ["t", "m"]
    assert kept(every, include=["materialized_views"]) == ["t", "m"]


def test_grants_come_if_asked_for_and_penstocks_own_never() -> None:
    grant = entry(1, "ACL", "TABLE t")
    own = entry(
        2, "EVENT TRIGGER", "penstock_ddl", statement="… EXECUTE FUNCTION penstock_ddl.note_ddl();"
    )
    theirs = entry(3, "EVENT TRIGGER", "mine", statement="… EXECUTE FUNCTION public.noted();")
    assert kept([grant, own, theirs]) == ["mine"]
    assert kept([grant, own, theirs], privileges=True) == ["TABLE t", "mine"]


# -- indexes -------------------------------------------------------------------------------------


def test_the_key_comes_alone_and_with_its_partitions() -> None:
    facts = DumpFacts(
        (
            DumpedIndex(11, 21, 1, "public", "p_pkey", ("id",), is_primary=True),
            DumpedIndex(
                12, 22, 1, "public", "p1_pkey", ("id",), is_primary=True, on_partition=True
            ),
            DumpedIndex(13, 0, 1, "public", "by_n", (), is_primary=False),
            DumpedIndex(14, 0, 1, "public", "p1_n", (), is_primary=False, on_partition=True),
        )
    )
    entries = [
        entry(101, "CONSTRAINT", "p p_pkey", oid=21),
        entry(102, "CONSTRAINT", "p1 p1_pkey", oid=22, needs=(101,)),
        entry(103, "INDEX", "by_n", oid=13),
        entry(104, "INDEX", "p1_n", oid=14, needs=(103,)),
        entry(105, "INDEX ATTACH", "p1_pkey", oid=0, needs=(102, 101)),
        entry(106, "INDEX ATTACH", "p1_n", oid=0, needs=(104, 103)),
    ]
    table = TableDefinition(1, "public", "p", "d", (), primary_key=("id",))
    # Its columns are not looked at: a key counts if the stream sends it.
    object.__setattr__(table, "merge_key", ("id",))
    indexes = ArchivedIndexes(entries, facts)
    assert [each.id for each in indexes.key_of(table)] == [101, 102, 105]
    assert [each.id for each in indexes.of(1)] == [101, 102, 103, 104, 105, 106]
    # What the source has dropped meanwhile does not come back.
    assert [each.id for each in indexes.named(table)] == [101, 102, 105]
    still = replace(table, indexes=(IndexDefinition("by_n", is_unique=False, definition=""),))
    assert [each.id for each in indexes.named(still)] == [101, 102, 103, 104, 105, 106]


# -- changes -------------------------------------------------------------------------------------


def changes(before: list[Entry], now: list[Entry], **others: object) -> SchemaChanges:
    known = {"followed": (), "there": (), "missing": {}, "owners": False, **others}
    return schema_changes(before, now, **known)  # type: ignore[arg-type]


def test_what_is_the_same_is_left_alone() -> None:
    every = [entry(1, "TABLE", "t"), entry(2, "VIEW", "v")]
    assert changes(every, [replace(each, id=each.id + 9) for each in every]) == SchemaChanges(
        (), ()
    )
    other = [replace(each, owner="you") for each in every]
    assert changes(every, other) == SchemaChanges((), ())
    assert [each.name for each, _ in changes(every, other, owners=True).made] == ["t", "v"]


def test_views_are_followed_and_followed_tables_are_not() -> None:
    table, view = entry(1, "TABLE", "t"), entry(2, "VIEW", "v")
    index = entry(3, "INDEX", "i", needs=(1,))
    now = [replace(each, statement="other") for each in (table, view, index)]
    found = changes([table, view, index], now, followed={1})
    assert [(each.name, former) for each, former in found.made] == [("v", view)]
    assert changes([table, view, index], [], followed={1}).gone == (view,)
    # Of one that nobody follows it is told.
    assert [each.name for each, _ in changes([table], now[:1]).made] == ["t"]


def test_a_new_partition_is_made_and_attached() -> None:
    root = entry(1, "TABLE", "root")
    part = entry(2, "TABLE", "part")
    attach = entry(3, "TABLE ATTACH", "part", needs=(2, 1))
    key = entry(4, "CONSTRAINT", "part part_pkey", needs=(2,))
    made = changes([root], [root, part, attach, key], followed={1}).made
    # ATTACH makes the key.
    assert [each.id for each, _ in made] == [2, 3]
    there = changes([root], [root, part, attach, key], followed={1, 2}, there={("public", "part")})
    assert there.made == ()


def test_types_of_followed_tables_are_the_streams() -> None:
    kind, inner = entry(1, "TYPE", "kind", needs=(2,)), entry(2, "DOMAIN", "inner")
    table, free = entry(3, "TABLE", "t", needs=(1,)), entry(4, "TYPE", "free")
    every = [kind, inner, table, free]
    now = [replace(each, statement="other") for each in every]
    assert [each.name for each, _ in changes(every, now, followed={3}).made] == ["free"]


def test_what_was_missing_is_tried_again() -> None:
    view = entry(1, "VIEW", "v")
    # Somebody else's is not touched; an older one of ours gives way.
    assert changes([view], [view], missing={"view public.v": False}).made == ((view, None),)
    assert changes([view], [view], missing={"view public.v": True}).made == ((view, view),)


def test_an_index_of_a_materialized_view_is_followed() -> None:
    view, index = entry(1, "MATERIALIZED VIEW", "m"), entry(2, "INDEX", "i", needs=(1,))
    assert changes([view], [view, index]).made == ((index, None),)
    assert changes([view, index], [view]).gone == (index,)


# -- programs ------------------------------------------------------------------------------------


def programs(folder: Path, version: int) -> Path:
    folder.mkdir()
    for name in ("pg_dump", "pg_restore"):
        file = folder / name
        file.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}.2 (some package)'\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return folder


def test_the_newest_programs_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = programs(tmp_path / "old", 15), programs(tmp_path / "new", 99)
    monkeypatch.setenv("PATH", f"{old}:{new}:/nowhere")
    assert find_programs(18).folder == new
    assert find_programs(14, str(old)).version == 15


def test_programs_that_are_too_old_are_an_error_that_helps(tmp_path: Path) -> None:
    old = programs(tmp_path / "old", 15)
    with pytest.raises(SourceError, match="the newest here is 15") as raised:
        find_programs(18, str(old))
    assert "postgresql-client-18" in raised.value.remedy
    with pytest.raises(SourceError, match=r"full_schema\.programs names"):
        find_programs(14, str(tmp_path))


# -- options -------------------------------------------------------------------------------------


def test_schema_is_a_word_or_a_place() -> None:
    def options(**others: object) -> PostgresOptions:
        return PostgresOptions.model_validate({"url": URL, **others})

    assert options().whole is None
    assert options(schema="tables").target_schema is None
    assert options(schema="full").target_schema is None
    assert options(schema="full").whole == FullSchemaOptions()
    assert options(schema="report").target_schema == "report"
    assert options(schema={"public": "full"}).target_schema == {"public": "full"}
    for wrong in (
        {"schema": "full", "mode": "append"},
        {"schema": "full", "tables": {"a": "b"}},
        {"full_schema": {"owner": True}},
        {"schema": "full", "full_schema": {"exclude": ["tables"]}},
    ):
        with pytest.raises(ValidationError):
            options(**wrong)


# -- what it does not go together with -----------------------------------------------------------


def whole(**others: object) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"url": URL, "copy": True},
            "destination": {"type": "postgres", "url": URL, "schema": "full"},
            **others,
        }
    )


@pytest.mark.parametrize(
    ("others", "what"),
    [
        ({"transform": {"rules": [{"table": "t", "columns": {"a": "null"}}]}}, "transform"),
        ({"filter": {"columns": {"t": {"exclude": ["a"]}}}}, r"filter\.columns"),
        ({"source": {"url": URL, "copy": False}}, r"source\.copy"),
    ],
)
def test_what_pg_dump_knows_nothing_of_is_refused(others: dict[str, object], what: str) -> None:
    """By `check`, and by whoever opens the destination, before anything is read or made."""
    config = whole(**others)
    with (
        pytest.raises(ConfigError, match=what) as refused,
        opened_destination(config, cast(Any, None), cast(Any, None)),
    ):
        pytest.fail("it was opened")
    assert "destination.schema to tables" in refused.value.remedy
    found = _destination(config)
    assert (found.status, found.remedy) == ("failed", refused.value.remedy)


def test_tables_alone_take_rules() -> None:
    """What the remedy says."""
    config = whole(transform={"rules": [{"table": "t", "columns": {"a": "null"}}]})
    options = {**config.destination_options, "schema": "tables"}
    destination = make_destination(config.destination_type, options, config.delivery)
    check_schema(config, destination)

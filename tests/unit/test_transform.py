"""Rules at work on changes, copied rows and definitions; no server, no Spark."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from penstock.config.filter_config import FilterConfig
from penstock.config.transform_config import TransformConfig
from penstock.decode.changes import ChangeSet, TableChanges
from penstock.model.errors import (
    ConfigError,
    DecodeError,
    RowsRefused,
    TableChanged,
    TableRefused,
)
from penstock.model.lsn import Frontier
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.model.table_rows import TableRows
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, Table, table
from penstock.testing.contract.chunk_rows import ChunkRows
from penstock.testing.contract.deliveries import definition
from penstock.transform.filter import Filter
from penstock.transform.transform import Transform
from penstock.transform.transform_check import check_rules, refused_later, require_rules
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Inputs
from penstock.transform.transformers.keys import Keys
from penstock.transform.transformers.registry import transformer_class

KEY = "a key of the tests, of which nobody makes use"
ID = Column("id", "int4", key=True)
PEOPLE = table("people", ID, Column("email", "text"), Column("note", "text"))
FULL = replace(PEOPLE, identity="f")


def transform(columns: Mapping[str, Any], **more: Any) -> Transform:
    of = more.pop("table", "public.people")
    rule = {"table": of, "columns": columns, **more.pop("rule", {})}
    return Transform(TransformConfig.model_validate({"key": KEY, "rules": [rule], **more}))


HIDING = transform({"id": "integer_key", "email": "hash"}, rule={"keep": ["note"]})


def one(changes: ChangeSet) -> TableChanges:
    (found,) = changes.tables
    return found


def rows(of: Transform, *given: tuple[str | None, ...], table: Table = PEOPLE) -> list[list[Any]]:
    """Copied rows, after the rules."""
    chunk = of.copied(ChunkRows(table, "0", list(given)))
    return [list(row) for part in chunk.texts() for row in zip(*part.columns, strict=True)]


def texts(found: list[list[Any]]) -> list[list[Any]]:
    return [[value.as_py() for value in row] for row in found]


@pytest.mark.parametrize("of", [PEOPLE, FULL], ids=["key", "full"])
def test_both_images_are_changed_as_copied_rows_are(of: Table) -> None:
    builder = ChangeBuilder()
    before = ("1", "anna@shop.de", "a note")
    old: dict[str, Any] = {"full": before} if of.identity == "f" else {"key": ("1", None, None)}
    with builder.transaction():
        builder.insert(of, *before)
        builder.update(of, "2", UNSET, "another", **old)
        builder.delete(of, **old)
    found = one(pickle.loads(pickle.dumps(HIDING)).apply(builder.cut()))  # noqa: S301
    ((key, email, _),) = texts(rows(HIDING, before, table=of))
    ((moved, _, _),) = texts(rows(HIDING, ("2", None, None), table=of))
    assert found.new_text(0).to_pylist() == [key, moved]
    assert found.old_text(0).to_pylist() == [key, key]
    assert key not in ("1", moved)
    if of.identity == "f":
        # What an update did not send is in its old image.
        assert found.new_text(1).to_pylist() == [email, email]
        assert found.old_text(1).to_pylist() == [email, email]
        assert not found.new_unset(1).any()
    else:
        assert found.new_text(1).to_pylist() == [email, None]
        assert found.new_unset(1).tolist() == [False, True]
    assert found.new_text(2).to_pylist() == ["a note", "another"]
    assert "anna" not in email


def test_nulls_stay_or_are_transformed() -> None:
    ((_, kept, _),) = texts(rows(HIDING, ("1", None, None)))
    assert kept is None
    filling = transform({"email": {"use": "email", "nulls": "transform"}}, mode="relaxed")
    ((_, made, _),) = texts(rows(filling, ("1", None, None)))
    assert made.endswith("@example.com")


def test_a_condition_that_is_not_known_to_be_false_transforms() -> None:
    rule = {"use": "literal", "value": "X", "when": "note = 'DE'"}
    found = rows(
        transform({"email": rule}, mode="relaxed"),
        ("1", "a", "DE"),
        ("2", "b", "US"),
        ("3", "c", None),
    )
    assert [row[1] for row in texts(found)] == ["X", "b", "X"]
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(PEOPLE, "1", "a", UNSET)
        builder.update(PEOPLE, "2", "b", "US")
    made = one(transform({"email": rule}, mode="relaxed").apply(builder.cut()))
    assert made.new_text(1).to_pylist() == ["X", "b"]


def test_a_condition_over_a_column_that_was_not_sent_stops_its_table() -> None:
    """Whether the value at the destination is the raw one hangs on what the row was before."""
    rule = {"use": "hash", "when": "note = 'DE'"}
    hiding = transform({"email": rule}, mode="relaxed")
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(PEOPLE, "1", UNSET, "DE")
    with pytest.raises(TableRefused, match=r"did not send it, because.*REPLICA IDENTITY FULL"):
        hiding.apply(builder.cut())
    # Under FULL the old row has it.
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(FULL, "1", UNSET, "DE", full=("1", "anna@shop.de", "FR"))
        builder.update(FULL, "1", UNSET, "FR", full=("1", "anna@shop.de", "DE"))
    found = one(hiding.apply(builder.cut()))
    ((_, made, _),) = texts(rows(hiding, ("1", "anna@shop.de", "DE")))
    assert found.new_text(1).to_pylist() == [made, "anna@shop.de"]
    # What the key alone decides is as it was, unless the key is another one.
    of_key = transform({"email": {"use": "hash", "when": "id > 5"}}, mode="relaxed")
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(PEOPLE, "7", UNSET, "DE")
    assert one(of_key.apply(builder.cut())).new_unset(1).all()
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(PEOPLE, "7", UNSET, "DE", key=("1", None, None))
    with pytest.raises(TableRefused, match="did not send it"):
        of_key.apply(builder.cut())


TEMPLATE = {"email": {"use": "template", "template": "{note|upper}@x.de", "missing": "nobody"}}


def test_a_template_takes_columns_as_they_leave() -> None:
    hidden = transform({**TEMPLATE, "note": {"use": "literal", "value": "n"}}, mode="relaxed")
    assert texts(rows(hidden, ("1", "a", "secret")))[0][1:] == ["N@x.de", "n"]
    assert texts(rows(transform(TEMPLATE, mode="relaxed"), ("1", "a", None)))[0][1] == "nobody@x.de"


def test_a_template_over_what_was_not_sent() -> None:
    """All of it unset: unset. Made of what was sent, while its own column was not: made."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(PEOPLE, "1", UNSET, UNSET)
        builder.update(PEOPLE, "2", UNSET, "new")
        builder.update(PEOPLE, "3", None, "new")
    found = one(transform(TEMPLATE, mode="relaxed").apply(builder.cut()))
    assert found.new_text(1).to_pylist() == [None, "NEW@x.de", None]
    assert found.new_unset(1).tolist() == [True, False, False]
    both = {"email": {"use": "template", "template": "{note}{id}"}}
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(PEOPLE, "1", "a", UNSET)
    with pytest.raises(TableRefused, match="did not send"):
        transform(both, mode="relaxed").apply(builder.cut())


def test_strict_mode_stops_a_table_with_a_column_that_no_rule_names() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(PEOPLE, "1", "anna@shop.de", "a note")
    strict = transform({"email": "hash"})
    with pytest.raises(TableRefused, match="without a rule: id, note") as refused:
        strict.apply(builder.cut())
    assert refused.value.table == PEOPLE.oid
    with pytest.raises(TableRefused, match="without a rule"):
        strict.copied(ChunkRows(PEOPLE, "0", [("1", "a", "b")]))


def test_a_renamed_column_stops_its_table_in_relaxed_mode_too() -> None:
    renamed = table("people", ID, Column("mail", "text"), Column("note", "text"))
    relaxed = transform({"email": "hash"}, mode="relaxed")
    with pytest.raises(TableRefused, match="no column email"):
        relaxed.plan(_schema(renamed))
    # Under a pattern the driver notices, who knows what the column was.
    pattern = transform({"email": "hash"}, mode="relaxed", table="public.*")
    refused = pattern.refused(definition(PEOPLE), definition(renamed))
    assert refused is not None
    assert "email" in refused.message


KEEPING = {"keep": ["*"]}


def test_keep_of_a_pattern_does_not_take_a_renamed_column() -> None:
    """Also in strict mode: `keep: ["*"]` would let it out in clear."""
    hiding = transform({"*mail*": "hash"}, table="public.*", rule=KEEPING)
    before = definition(PEOPLE)
    assert hiding.refused(before, before) is None
    renamed = definition(table("people", ID, Column("contact", "text"), Column("note", "text")))
    refused = hiding.refused(before, renamed)
    assert refused is not None
    assert "contact (which was public.people.email)" in refused.message
    assert refused.table == before.oid
    # Under another rule it may leave; or where a person says so of both names.
    assert (
        transform({"*mail*": "hash", "c*": "hash"}, table="public.*").refused(
            before, replace(renamed, columns=renamed.columns[1:2])
        )
        is None
    )
    allowed = transform({"*mail*": "hash"}, table="public.*", rule={"keep": ["email", "*"]})
    assert allowed.refused(before, renamed) is None
    # One that is gone is no leak.
    gone = replace(before, columns=tuple(c for c in before.columns if c.name != "email"))
    assert hiding.refused(before, gone) is None


@pytest.mark.parametrize("moved", [{"name": "persons"}, {"schema": "old"}], ids=str)
def test_a_table_that_leaves_its_rule_is_stopped(moved: dict[str, Any]) -> None:
    """By another name or schema, whether no rule matches it then or one that keeps everything."""
    rule = {"table": "public.people", "columns": {"email": "hash"}, **KEEPING}
    every = {"table": "*.*", **KEEPING}
    before = definition(PEOPLE)
    for rules in ([rule], [every, rule]):
        config = TransformConfig.model_validate({"key": KEY, "rules": rules})
        refused = Transform(config).refused(before, replace(before, **moved))
        assert refused is not None
        assert "email" in refused.message


def test_a_partition_brings_its_rows_under_no_weaker_rules() -> None:
    """Of a table that was followed by itself, and is attached to another one."""
    part = definition(PEOPLE)
    root = replace(part, oid=part.oid + 1, name="everybody")
    rule = {"table": "public.people", "columns": {"email": "hash"}, **KEEPING}
    every = {"table": "public.everybody", **KEEPING}
    config = TransformConfig.model_validate({"key": KEY, "rules": [rule, every]})
    refused = Transform(config).refused_partition(part, root)
    assert refused is not None
    assert refused.table == root.oid
    assert "email" in refused.message
    same = transform({"email": "hash"}, table="public.*", rule=KEEPING)
    assert same.refused_partition(part, root) is None


MOVED = replace(PEOPLE, name="persons")
CONTACT = table("people", ID, Column("contact", "text"), Column("note", "text"))
ADDED = replace(PEOPLE, columns=(*PEOPLE.columns, Column("more", "text")))
LAST = replace(PEOPLE, columns=(ID, PEOPLE.columns[2], PEOPLE.columns[1]))
SHIFTED = replace(
    PEOPLE, columns=(ID, Column("old", "text"), replace(PEOPLE.columns[1], name="email"))
)


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        (MOVED, "email"),
        (replace(PEOPLE, schema="old"), "email"),
        (CONTACT, "contact"),
        # email is called old now, and note email.
        (SHIFTED, "old"),
        # email and note have each other's name.
        (LAST, "id, note"),
        (ADDED, ""),
        (replace(PEOPLE, columns=PEOPLE.columns[:2]), ""),
        (PEOPLE, ""),
    ],
    ids=["name", "schema", "column", "shifted", "swapped", "added", "dropped", "same"],
)
def test_executors_notice_what_left_its_rule_though_nothing_told(seen: Table, lost: str) -> None:
    """Renamed without event triggers: no value leaves before the driver has looked."""
    hiding = transform({"*mail*": "hash"}, mode="relaxed", table="public.people*", rule=KEEPING)
    seen = replace(seen, oid=PEOPLE.oid)
    held = [(0, definition(PEOPLE))]
    hiding.compare_with(lambda: {PEOPLE.oid: held})
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(seen, "1", *("anna@shop.de" for _ in seen.columns[1:]))
    changes = builder.cut()
    executor = pickle.loads(pickle.dumps(hiding))  # noqa: S301 (our own)
    if not lost:
        executor.apply(changes)
        return
    with pytest.raises(TableChanged, match=f"no rule changes column {lost},? ") as raised:
        executor.apply(changes)
    assert raised.value.table == PEOPLE.oid
    assert raised.value.commit_lsn == one(changes).commit_lsn[0]
    # Once the driver knows of it, and judged it, the rows behind it come.
    after = [*held, (raised.value.commit_lsn - 1, definition(seen))]
    hiding.compare_with(lambda: {PEOPLE.oid: after})
    if seen.columns != LAST.columns:
        pickle.loads(pickle.dumps(hiding)).apply(changes)  # noqa: S301 (our own)


def test_a_table_with_rules_under_both_names_is_followed_over_a_rename() -> None:
    hiding = transform({"email": "hash"}, mode="relaxed", table=["people", "persons"])
    hiding.compare_with(lambda: {PEOPLE.oid: [(0, definition(PEOPLE))]})
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(replace(MOVED, oid=PEOPLE.oid), "1", "anna@shop.de", "x")
    (made,) = pickle.loads(pickle.dumps(hiding)).apply(builder.cut()).tables  # noqa: S301
    assert made.new_text(1).to_pylist() != ["anna@shop.de"]


def test_what_a_filter_leaves_out_needs_no_rule() -> None:
    """Also of destinations that keep every change, whose tables come with all columns."""
    said = {"columns": {"people": {"exclude": ["note"]}}, "tables": {"exclude": ["orders"]}}
    wanted = Filter(FilterConfig.model_validate(said))
    rules = [{"table": "*", "columns": {"id": "integer_key", "email": "hash"}}]
    config = TransformConfig.model_validate({"key": KEY, "rules": rules})
    strict, told = Transform(config, wanted), [definition(PEOPLE), definition(ORDERS)]
    require_rules(strict, strict.seen(told), merges=False)
    with pytest.raises(ConfigError, match=r"people\.note: has no rule"):
        require_rules(strict, told, merges=False)
    for each in told:
        assert strict.refused(each, each) is None
    more = definition(replace(PEOPLE, columns=(*PEOPLE.columns, Column("phone", "text"))))
    refused = strict.refused(told[0], more)
    assert refused is not None
    assert "without a rule: phone" in refused.message


def _schema(of: Table) -> Any:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(of, *(None for _ in of.columns))
    return one(builder.cut()).table


@pytest.mark.parametrize(
    "rule",
    [
        "noise",
        {"use": "integer", "random": True},
        {"use": "integer"},
        {"use": "integer_key", "when": "note = 'x'"},
        {"use": "integer_key", "errors": "null"},
    ],
    ids=str,
)
def test_keys_take_only_what_keeps_them_apart(rule: Any) -> None:
    with pytest.raises((TableRefused, ConfigError)):
        transform({"id": rule}, mode="relaxed").plan(_schema(PEOPLE))


def test_an_error_shows_no_value() -> None:
    hidden = transform({"email": "token"}, mode="relaxed")
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(PEOPLE, "1", "pl4nted", "x")
    with pytest.raises(TableRefused) as refused:
        hidden.apply(builder.cut())
    assert "pl4nted" not in str(refused.value)
    assert refused.value.__cause__ is None
    nulls = transform({"email": {"use": "token", "errors": "null"}}, mode="relaxed")
    assert texts(rows(nulls, ("1", "pl4nted", "x"), ("2", "1234567", "x")))[0][1] is None
    assert texts(rows(nulls, ("1", "pl4nted", "x"), ("2", "1234567", "x")))[1][1] is not None


class Refused(ChunkRows):
    """A chunk that the source does not give, and says why."""

    def texts(self) -> Iterator[TableRows]:
        raise RowsRefused('invalid input syntax for type integer: "pl4nted"', sqlstate="22P02")


def test_what_the_source_says_of_a_row_is_not_shown() -> None:
    chunk = HIDING.copied(Refused(PEOPLE, "0", []))
    with pytest.raises(RowsRefused, match="SQLSTATE 22P02") as refused:
        list(chunk.texts())
    assert "pl4nted" not in "".join(traceback.format_exception(refused.value))
    plain = HIDING.copied(Refused(table("other", ID), "0", []))
    with pytest.raises(RowsRefused, match="pl4nted"):
        list(plain.texts())


def test_a_filter_before_rules_shows_no_value() -> None:
    """What is no value of its type stops the filter's condition first."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(table("people", ID, Column("code", "int4")), "1", "pl4nted")
    changes = builder.cut()
    copied = TableRows(
        one(changes).table,
        (pa.array(["1"], pa.string()), pa.array(["pl4nted"], pa.string())),
        1,
        Frontier(1, 1),
    )
    config = FilterConfig.model_validate({"rows": {"people": "code > 5"}})
    hiding = Filter(config, hides=HIDING.rules.covers)
    hiding = pickle.loads(pickle.dumps(hiding))  # noqa: S301 (our own)
    for attempt in (partial(hiding.apply, changes), partial(hiding.apply_rows, copied)):
        with pytest.raises(DecodeError, match="it is not shown") as raised:
            attempt()
        assert "pl4nted" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(DecodeError, match="pl4nted"):
        Filter(config).apply(changes)


def test_messages_are_dropped_unless_asked_for() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.message("app", b"anna@shop.de")
    changes = builder.cut()
    assert HIDING.apply(changes).messages == ()
    passing = transform({"email": "hash"}, mode="relaxed", messages="pass")
    assert len(passing.apply(changes).messages) == 1


def test_tables_without_rules_keep_the_fastest_way() -> None:
    other = table("other", ID)
    chunk = ChunkRows(other, "0", [("1",)])
    assert HIDING.copied(chunk) is chunk


def test_keys_are_found_again_at_the_source() -> None:
    ((key, _, _),) = texts(rows(HIDING, ("7", "a", "b")))
    assert HIDING.source_keys(definition(PEOPLE), [(key,)]) == [("7",)]
    empty = pa.array([], pa.string())
    again = TableRows(_schema(PEOPLE), (empty, empty, empty), 0, Frontier(1, 1))
    assert len(HIDING.read_again(again)) == 0


def test_a_definition_shows_no_values() -> None:
    told = definition(PEOPLE)
    columns = tuple(
        replace(c, default="'anna@shop.de'::text", missing='{"anna@shop.de"}')
        if c.name in ("email", "note")
        else c
        for c in told.columns
    )
    told = replace(
        told,
        columns=columns,
        constraints=(
            ConstraintDefinition("c1", "check", "CHECK (email <> 'anna@shop.de')"),
            ConstraintDefinition("c2", "check", "CHECK (note <> 'x')"),
        ),
        indexes=(
            IndexDefinition("i1", False, "USING btree (id) WHERE (email = 'anna@shop.de')"),
            IndexDefinition("i2", False, "USING btree (email)"),
        ),
    )
    seen = HIDING.definition(told)
    email, note = seen.columns[1], seen.columns[2]
    assert email.default is None
    assert "anna" not in str(email)
    assert note.default is not None
    ((_, made, _),) = texts(rows(HIDING, ("1", "anna@shop.de", None)))
    assert email.missing == f'{{"{made}"}}'
    assert [c.name for c in seen.constraints] == ["c2"]
    assert [i.name for i in seen.indexes] == ["i2"]
    assert seen.transform
    assert TableDefinition.from_json(seen.to_json()) == seen


@pytest.mark.parametrize(
    ("rule", "missing", "again"),
    [
        ("hash", '{"anna"}', False),
        ("hash", None, False),
        ({"use": "hash", "when": "note = 'x'"}, '{"anna"}', True),
        ({"use": "hash", "when": "note = 'x'"}, None, False),
        ({"use": "template", "template": "{note}"}, '{"anna"}', True),
        ({"use": "email", "random": True}, '{"anna"}', True),
        ({"use": "token"}, '{"anna"}', True),
        ({"use": "email", "nulls": "transform"}, None, True),
    ],
    ids=str,
)
def test_older_rows_of_a_column_that_came_later(
    rule: Any, missing: str | None, again: bool
) -> None:
    """They have what a copy would give them, or the table is copied anew."""
    hiding = transform({"email": rule}, mode="relaxed")
    after = definition(PEOPLE)
    email = replace(after.columns[1], missing=missing)
    after = replace(after, columns=(after.columns[0], email, after.columns[2]))
    before = replace(after, columns=(after.columns[0], after.columns[2]))
    told = hiding.definition(after)
    assert hiding.asks_for_copy(before, told) == again
    assert not hiding.asks_for_copy(told, told)
    if again or missing is None:
        assert told.columns[1].missing in (None, "{NULL}")
    else:
        ((_, made, _),) = texts(rows(hiding, ("1", "anna", "x")))
        assert told.columns[1].missing == f'{{"{made}"}}'


@pytest.mark.parametrize(
    ("definition_sql", "shows"),
    [
        ("USING btree (id) WHERE (email = 'anna')", True),
        ("USING btree (id) WHERE (email = 123456789)", True),
        ("USING btree (id) WHERE (email > .5)", True),
        ("USING btree (substr(email, 1, 3))", True),
        ("USING btree (((people.*)::text = '(1,anna)'))", True),
        ("USING btree (note) WHERE (note = 'x')", False),
        ("USING btree (email int4_ops) WITH (fillfactor='70') WHERE (email IS NOT NULL)", False),
        ('USING btree ("line 2", email)', False),
    ],
)
def test_an_index_with_a_constant_beside_a_changed_column_is_not_made(
    definition_sql: str, shows: bool
) -> None:
    told = replace(definition(PEOPLE), indexes=(IndexDefinition("i", False, definition_sql),))
    seen = HIDING.definition(told)
    assert len(seen.indexes) == (not shows)
    assert ("index i is not made" in str(seen.left_out)) == shows
    assert "anna" not in str(seen)


def test_generated_columns_and_exclusions_show_no_values() -> None:
    told = definition(PEOPLE)
    last = replace(told.columns[2], published=False, default=None)
    columns = (
        *told.columns[:2],
        replace(last, name="is_boss", attnum=8, generated="(email = 'anna@shop.de'::text)"),
        replace(last, name="lowered", attnum=9, generated="lower(email)"),
        replace(last, name="noted", attnum=10, generated="(note = 'anna'::text)"),
    )
    without = "EXCLUDE USING btree (id WITH =) WHERE ((email = 'anna@shop.de'::text))"
    exclusion = ConstraintDefinition("x", "exclude", without)
    shared = transform({"*": "hash", "id": "keep", "note*": "keep"})
    for hiding in (HIDING, shared):
        seen = hiding.definition(replace(told, columns=columns, constraints=(exclusion,)))
        found = {column.name: column.generated for column in seen.columns}
        assert (found["is_boss"], found["lowered"]) == (None, "lower(email)")
        assert found["noted"] is not None
        assert seen.constraints == ()
        assert "anna@shop.de" not in str(seen)
        assert "generated column is_boss is not made" in str(seen.left_out)
    # One that is sent and has a rule is what the rule makes of it.
    sent = tuple(replace(c, published=True) for c in columns)
    seen = transform({"*": "hash", "id": "keep", "note*": "keep"}).definition(
        replace(told, columns=sent)
    )
    assert {c.name: c.generated for c in seen.columns}["lowered"] is None


def test_the_fingerprint_is_of_rules_key_and_columns() -> None:
    told = definition(PEOPLE)
    mark = HIDING.rules.fingerprint(told)
    assert mark == transform(
        {"id": "integer_key", "email": "hash", "note": "keep"}
    ).rules.fingerprint(told)
    other = Transform(HIDING.rules.config.model_copy(update={"key": None}))
    assert mark != transform({"id": "integer_key", "email": "email"}).rules.fingerprint(told)
    assert mark != transform(
        {"id": {"use": "integer_key", "domain": "x"}, "email": "hash"}
    ).rules.fingerprint(told)
    with pytest.raises(ConfigError, match=r"transform\.key is missing"):
        other.rules.fingerprint(told)
    another = TransformConfig.model_validate(
        {
            "key": KEY[::-1],
            "rules": [{"table": "people", "columns": {"id": "integer_key", "email": "hash"}}],
        }
    )
    assert mark != Transform(another).rules.fingerprint(told)
    # A column that is not there yet changes nothing for the rows that are.
    more = {"id": "integer_key", "email": "hash", "later": "hash"}
    assert transform(more, table="public.p*").rules.fingerprint(told) == mark


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"email": {"use": "nobody"}}, "no transformer 'nobody'"),
        ({"email": {"use": "hash", "size": 3}}, "does not take these options: size"),
        ({"email": {"use": "mask", "character": "ab"}}, "character"),
    ],
)
def test_wrong_options_are_named(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        transform(columns)


def test_a_weak_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="too weak"):
        Transform(TransformConfig.model_validate({"key": "x" * 40, "rules": [{"table": "a"}]}))


# -- against the catalogue

ORDERS = table("orders", ID, Column("person", "int4"), Column("total", "numeric"))
REFERS = ConstraintDefinition(
    "orders_person",
    "foreign",
    "FOREIGN KEY (person) REFERENCES public.people(id) ON DELETE CASCADE",
    references=("public", "people"),
)


def findings(*rules: dict[str, Any], merges: bool = True, **told: Any) -> dict[str, str]:
    """Status by place, of what is not passed."""
    people = replace(definition(PEOPLE), **told)
    orders = replace(definition(ORDERS), constraints=(REFERS,))
    config = TransformConfig.model_validate({"key": KEY, "mode": "relaxed", "rules": list(rules)})
    found = check_rules(Transform(config), [people, orders], merges=merges)
    return {f.where: f"{f.status}: {f.text}" for f in found if f.status != "passed"}


def test_what_refers_needs_the_same_rule() -> None:
    people = {"table": "people", "columns": {"id": "integer_key"}}
    same = {"table": "orders", "columns": {"person": "integer_key"}}
    other = {"table": "orders", "columns": {"person": {"use": "integer_key", "domain": "x"}}}
    assert findings(people, same) == {}
    assert "another rule" in findings(people, other)["public.orders.person"]
    assert "none of its own" in findings(people)["public.orders.person"]
    assert "has not" in findings(same)["public.orders.person"]


def test_what_refers_by_odd_names_is_looked_at_too() -> None:
    columns = tuple(
        replace(c, name=f'{c.name} ("x")') if c.name == "id" else c
        for c in definition(PEOPLE).columns
    )
    people = replace(definition(PEOPLE), name="people (old)", columns=columns, primary_key=())
    refers = replace(
        REFERS,
        definition='FOREIGN KEY (person) REFERENCES public."people (old)"("id (""x"")")',
        references=("public", "people (old)"),
    )
    orders = replace(definition(ORDERS), constraints=(refers,))
    rule = {"table": 'public."people (old)"', "columns": {'id ("x")': "integer_key"}}
    config = TransformConfig.model_validate({"key": KEY, "mode": "relaxed", "rules": [rule]})
    found = check_rules(Transform(config), [people, orders], merges=True)
    assert "none of its own" in next(f.text for f in found if f.status == "failed")


BY_MAIL = replace(
    REFERS, definition="FOREIGN KEY (note) REFERENCES public.people(email)", name="by_mail"
)


def typed(email: TypeName, note: TypeName) -> tuple[ColumnDefinition, ...]:
    key, first, last = definition(PEOPLE).columns
    return key, replace(first, type=email), replace(last, type=note)


def test_what_refers_needs_a_column_of_the_same_length_where_the_rule_cuts() -> None:
    text = TypeName("pg_catalog", "text")
    short = TypeName("pg_catalog", "character varying", "(34)")
    rules = {"table": "people", "columns": {"email": "email", "note": "email"}}
    found = findings(rules, constraints=(BY_MAIL,), columns=typed(text, short))
    assert "another length" in found["public.people.note"]
    long = TypeName("pg_catalog", "character varying", "(90)")
    assert findings(rules, constraints=(BY_MAIL,), columns=typed(text, long)) == {}
    # What depends on no length takes any.
    rules = {"table": "people", "columns": {"email": "hash", "note": "hash"}}
    assert findings(rules, constraints=(BY_MAIL,), columns=typed(text, short)) == {}
    # And where the length changes, so does what is told of the table: it is copied anew.
    hiding = transform({"email": "email", "note": "keep"}, mode="relaxed")
    tables = [replace(definition(PEOPLE), columns=typed(t, text)) for t in (text, long, short)]
    assert [hiding.asks_for_copy(tables[0], t) for t in tables] == [False, False, True]
    assert len({hiding.rules.fingerprint(t) for t in tables}) == 2


@pytest.mark.parametrize(
    ("use", "passes"),
    [("hash", True), ("email", True), ("uuid", True), ("encrypt", False), ("token", False)],
)
def test_what_refers_in_any_case_needs_a_rule_that_tells_no_case(use: str, passes: bool) -> None:
    citext = TypeName("public", "citext", extension="citext")
    rules = {"table": "people", "columns": {"email": use, "note": use}}
    found = findings(rules, constraints=(BY_MAIL,), columns=typed(citext, citext))
    assert ("tells upper from lower case" in str(found)) != passes
    kind = transformer_class(use)
    made = kind(kind.options_model(), Keys(KEY.encode()), ColumnFacts("c", "text", "citext"))
    if passes:
        same = made.apply(pa.array(["Anna@Shop.de", "anna@shop.de"]), Inputs())
        assert len(same.unique()) == 1


@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        ({"use": "token", "alphabet": "alphanumeric"}, True),
        ({"use": "token", "alphabet": "hex"}, True),
        ({"use": "token", "short": "hash"}, True),
        ({"use": "token", "short": "null"}, False),
    ],
    ids=str,
)
def test_what_surely_meets_is_lost(rule: Any, lost: bool) -> None:
    index = IndexDefinition("people_email", True, "USING btree (email)", ("email",))
    short = TypeName("pg_catalog", "character varying", "(8)")
    columns = typed(short, TypeName("pg_catalog", "text"))
    found = email_findings(rule, indexes=(index,), columns=columns)
    assert found.startswith("failed" if lost else "warning")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"use": "uuid", "random": True}, "draws at random"),
        ({"use": "hash", "when": "note = 'x'"}, "condition is asked of two rows"),
        ({"use": "template", "template": "{id}"}, "depends on id"),
        ({"use": "hash", "nulls": "transform"}, "lets a null refer"),
        ({"use": "hash", "errors": "null"}, ""),
    ],
    ids=str,
)
def test_the_same_rule_is_not_enough_where_it_depends_on_more(rule: Any, why: str) -> None:
    rules = {"table": "people", "columns": {"email": rule, "note": rule}}
    found = findings(rules, constraints=(BY_MAIL,)).get("public.people.note", "")
    assert (why in found) if why else not found


def test_unique_indexes_ask_for_values_that_stay_apart() -> None:
    index = IndexDefinition("people_email", True, "USING btree (email)", ("email",))
    named = {"table": "people", "columns": {"email": "first_name"}}
    hashed = {"table": "people", "columns": {"email": "hash"}}
    assert findings(named, indexes=(index,))["public.people.email"].startswith("failed")
    assert findings(named, indexes=(index,), merges=False)["public.people.email"].startswith("warn")
    assert findings(hashed, indexes=(index,))["public.people.email"].startswith("warning")


def test_a_column_that_is_called_as_a_type_is_not_in_every_cast() -> None:
    people = definition(PEOPLE)
    columns = (*people.columns, replace(people.columns[2], name="text", attnum=9))
    rule = {"table": "people", "columns": {"email": "hash", "text": "redact"}}
    cast = IndexDefinition("i", True, "USING btree (lower((email)::text), (id)::text)")
    assert "public.people.text" not in findings(rule, columns=columns, indexes=(cast,))
    own = IndexDefinition("i", True, "USING btree (lower((text)::text))")
    assert "index i" in findings(rule, columns=columns, indexes=(own,))["public.people.text"]


def email_findings(rule: Any, **told: Any) -> str:
    found = findings({"table": "people", "columns": {"email": rule}}, **told)
    return found.get("public.people.email", "")


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"use": "hash", "nulls": "transform"}, "failed: nulls: transform makes one value"),
        ({"use": "token", "when": "note = 'x'"}, "failed: what token makes of a value"),
        ({"use": "encrypt", "when": "note = 'x'"}, "warning"),
        ({"use": "token", "errors": "null"}, ""),
        ("encrypt", ""),
    ],
    ids=str,
)
def test_conditions_and_nulls_can_cost_uniqueness(rule: Any, why: str) -> None:
    index = IndexDefinition("people_email", True, "USING btree (email)", ("email",))
    assert email_findings(rule, indexes=(index,)).startswith(why)
    if not why:
        same = replace(index, definition="USING btree (email) NULLS NOT DISTINCT")
        assert ("several nulls" in email_findings(rule, indexes=(same,))) == (rule != "encrypt")
    # Without nulls none becomes a value.
    columns = tuple(replace(c, not_null=True) for c in definition(PEOPLE).columns)
    if "nulls" in str(rule):
        found = email_findings(rule, indexes=(index,), columns=columns)
        assert found.startswith("warning: hash keeps values apart almost always")


def test_a_condition_names_columns_of_the_table() -> None:
    def found(when: str, **told: Any) -> str:
        return email_findings({"use": "null", "when": when}, replica_identity="f", **told)

    assert "names note2, which is no column" in found("note = 'DE' AND nOte2 = 'id'")
    assert "names no column" in found("'note' = 'email'")
    assert found("note = 'DE' AND lower(email) IN ('x', note)") == ""
    typed = tuple(
        replace(column, type_oid=oid)
        for column, oid in zip(definition(PEOPLE).columns, (23, 25, 25), strict=True)
    )
    assert "wrong at character" in found("note > 5", columns=typed)
    assert found("note <> '5' AND id > 5", columns=typed) == ""
    # One that the pipeline leaves out does not come.
    left_out = (*typed[:2], replace(typed[2], ignored=True))
    assert "names note, which is no column" in found("note = 'x'", columns=left_out)


def test_a_condition_over_a_large_column_asks_for_whole_old_rows() -> None:
    def found(identity: Any = "d", when: str | None = None, **told: Any) -> str:
        return email_findings({"use": "hash", "when": when}, replica_identity=identity, **told)

    assert found(when="note = 'DE'").startswith("warning: has a condition")
    assert found() == found("f", when="note = 'DE'") == found(when="id > 5") == ""
    columns = tuple(
        replace(c, type=TypeName("pg_catalog", "character varying", "(100)"))
        if c.name == "email"
        else c
        for c in definition(PEOPLE).columns
    )
    assert found(when="note = 'DE'", columns=columns) == ""


def test_types_lengths_keys_and_names_are_checked() -> None:
    assert (
        "does not take"
        in findings({"table": "people", "columns": {"id": "email"}})["public.people.id"]
    )
    assert "key" in findings({"table": "people", "columns": {"id": "integer"}})["public.people.id"]
    assert (
        "no column"
        in findings({"table": "people", "columns": {"mail": "hash"}})["public.people.mail"]
    )
    strict = {"table": "people", "mode": "strict", "keep": ["id", "n*"]}
    assert list(findings(strict)) == ["public.people.email"]
    assert "matches no table" in findings({"table": "persons"})["persons"]
    nulled = {"table": "people", "columns": {"note": "null"}}
    columns = tuple(replace(c, not_null=True) for c in definition(PEOPLE).columns)
    assert "NOT NULL" in findings(nulled, columns=columns)["public.people.note"]


def test_each_name_of_a_list_has_to_be_a_table() -> None:
    found = findings({"table": ["people", "oders", "x*"], "keep": ["*"]})
    assert found["oders"].startswith("failed: transform.rules[0] matches no table")
    assert found["x*"].startswith("warning")
    assert len(found) == 2


def test_a_check_constraint_over_a_changed_column_is_told_of() -> None:
    check = ConstraintDefinition("c", "check", "CHECK (email LIKE '%@%')")
    found = findings({"table": "people", "columns": {"email": "hash"}}, constraints=(check,))
    assert found["public.people.email"].startswith("warning: check constraint c is not made")


def test_a_domain_brings_its_checks_along() -> None:
    address = TypeDefinition(
        "public",
        "address",
        "domain",
        base=TypeName("pg_catalog", "text"),
        constraints=("CONSTRAINT at CHECK (VALUE LIKE '%@%')",),
        not_null=True,
    )
    inner = TypeName("public", "address")
    outer = TypeDefinition("public", "outer", "domain", base=inner)
    for kind in (inner, TypeName("public", "outer"), replace(inner, is_array=True)):
        told: dict[str, Any] = {
            "types": (address, outer),
            "columns": typed(kind, TypeName("pg_catalog", "text")),
        }
        rule = {"use": "array", "each": {"use": "hash"}} if kind.is_array else "hash"
        found = email_findings(rule, **told)
        assert found.startswith("warning: is of domain public.address, whose check")
        if not kind.is_array:
            told["types"] = (replace(address, constraints=()), outer)
            assert "NOT NULL" in email_findings("null", **told)
        assert email_findings("keep", **told) == ""


def test_what_comes_later_is_held_to_keys_and_generated_columns_too() -> None:
    before = definition(PEOPLE)
    lowered = replace(before.columns[2], name="lowered", attnum=9, generated="lower(email)")
    hiding = transform({"email": "hash"}, mode="relaxed", rule={"keep": ["*"]})
    refused = hiding.refused(before, replace(before, columns=(*before.columns, lowered)))
    assert refused is not None
    assert "lowered" in refused.message
    assert "generated from email" in refused.message
    # One that does not come shows nothing.
    unsent = replace(lowered, published=False)
    assert hiding.refused(before, replace(before, columns=(*before.columns, unsent))) is None
    lossy = transform({"id": {"use": "integer", "max": 5}}, mode="relaxed")
    full = replace(before, replica_identity="f")
    refused = lossy.refused(None, full)
    assert refused is not None
    assert "it belongs to the key" in refused.message
    assert lossy.refused(None, replace(full, primary_key=())) is None


def test_later_unique_indexes_and_foreign_keys_are_held_to_rules_too() -> None:
    index = IndexDefinition("people_email", True, "USING btree (email)", ("email",))
    people, orders = definition(PEOPLE), replace(definition(ORDERS), oid=9)
    hiding = transform({"id": "integer_key", "email": "first_name"}, mode="relaxed")

    def why(after: TableDefinition, *, merges: bool = True, **told: Any) -> str:
        before = replace(after, indexes=(), constraints=())
        known = [people, orders]
        refused = refused_later(hiding, before, after, known, merges=merges, **told)
        return "" if refused is None else refused.message

    assert why(people) == why(orders) == ""
    indexed = replace(people, indexes=(index,))
    assert "unique index people_email is over it" in why(indexed)
    assert why(indexed, merges=False) == ""
    referring = replace(orders, constraints=(REFERS,))
    assert "orders, column person: refers to public.people.id" in why(referring)
    assert why(referring, merges=False) != ""
    assert why(referring, had=(REFERS,)) == ""
    elsewhere = replace(REFERS, references=("public", "nobody"))
    assert why(replace(orders, constraints=(elsewhere,))) == ""
    itself = replace(REFERS, definition="FOREIGN KEY (email) REFERENCES public.people(id)")
    assert "another rule" in why(replace(people, constraints=(itself,)))
    assert refused_later(hiding, None, referring, [orders], merges=True) is None


def test_an_index_that_is_not_made_is_told_of() -> None:
    index = IndexDefinition("i", False, "USING btree (note) WHERE (email = 'anna')")
    found = findings({"table": "people", "columns": {"email": "hash"}}, indexes=(index,))
    assert found["public.people"].startswith("warning: index i is not made")
    assert "anna" not in str(found)

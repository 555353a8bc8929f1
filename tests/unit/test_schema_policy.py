"""What is done about schema changes, kind by kind, and how the pipeline file says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import PipelineConfig, load_pipeline
from penstock.config.models import SchemaChangesConfig
from penstock.model.errors import ConfigError
from penstock.model.schema_change import ChangeKind, TableChange
from penstock.model.schema_policy import FOLLOWED, Action, SchemaPolicy
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)

INT, BIGINT, TEXT = (TypeName("pg_catalog", name) for name in ("integer", "bigint", "text"))
MOOD = TypeDefinition("public", "mood", "enum", ("sad", "calm"), oid=200)
ID = ColumnDefinition(1, "id", INT, not_null=True)
LABEL = ColumnDefinition(2, "label", TEXT)
FEELS = ColumnDefinition(3, "feels", TypeName("public", "mood"))
SUM = ColumnDefinition(4, "sum", INT, generated="(id + 1)", published=False)
HIDDEN = ColumnDefinition(5, "hidden", TEXT, published=False)
CODE = ColumnDefinition(6, "code", INT)
ADDED = ColumnDefinition(7, "added", TEXT)
TABLE = TableDefinition(
    oid=10,
    schema="public",
    name="t",
    replica_identity="d",
    columns=(ID, LABEL, FEELS, SUM, HIDDEN, CODE),
    primary_key=("id",),
    types=(MOOD,),
    indexes=(IndexDefinition("by_label", False, "USING btree (label)", oid=100),),
    constraints=(ConstraintDefinition("full", "check", "CHECK ((id > 0))", oid=101),),
)

Edit = Callable[[TableDefinition], TableDefinition]


def column(number: int, **changes: object) -> Edit:
    """Another definition of one column."""

    def edit(table: TableDefinition) -> TableDefinition:
        columns = (
            replace(old, **changes) if old.attnum == number else old  # type: ignore[arg-type]
            for old in table.columns
        )
        return replace(table, columns=tuple(columns))

    return edit


def whole(**changes: object) -> Edit:
    """Another definition of the table."""
    return lambda table: replace(table, **changes)  # type: ignore[arg-type]


EDITS: dict[ChangeKind, Edit] = {
    "rename_table": whole(name="u"),
    "add_column": lambda table: replace(table, columns=(*table.columns, ADDED)),
    "drop_column": lambda table: replace(
        table, columns=tuple(c for c in table.columns if c.attnum != CODE.attnum)
    ),
    "rename_column": column(2, name="title"),
    "column_type": column(1, type=BIGINT),
    "column_default": column(2, default="'a'::text"),
    "column_nullability": column(2, not_null=True),
    "column_identity": column(1, identity="a"),
    "column_generated": column(4, generated="(id + 2)"),
    "column_published": column(5, published=True),
    "primary_key": whole(primary_key=()),
    "index": whole(indexes=()),
    "constraint": whole(constraints=()),
    "user_type": whole(types=(replace(MOOD, labels=("sad", "calm", "wild")),)),
    "replica_identity": whole(replica_identity="f"),
    "partitions": whole(partitions=(5, 6)),
}
"""What makes just one difference of each kind."""

CHANGES: dict[ChangeKind, TableChange] = {
    "create_table": TableChange(None, TABLE),
    "drop_table": TableChange(TABLE, None),
    "rewrite": TableChange(TABLE, TABLE, is_rewrite=True),
    **{kind: TableChange(TABLE, edit(TABLE)) for kind, edit in EDITS.items()},
}
KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
TAKEN_OVER: set[ChangeKind] = {"create_table", "drop_table", "replica_identity"}
"""These are not decided here: what the source has counts always."""


def kinds_of(change: TableChange) -> set[ChangeKind]:
    return {step.kind for step in change.differences()}


def named(kind: ChangeKind) -> ChangeKind:
    """Under which kind a person names it: a column that is published from now on is a new one."""
    return "add_column" if kind == "column_published" else kind


def test_the_changes_of_this_file_are_of_all_kinds() -> None:
    assert {kind: kinds_of(change) for kind, change in CHANGES.items()} == {
        kind: {kind} for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_by_default_everything_is_applied(kind: ChangeKind) -> None:
    policy = SchemaPolicy()
    assert policy.action(kind) == "apply"
    assert policy.stops_at(CHANGES[kind]) is None
    assert policy.resolved(CHANGES[kind]) == CHANGES[kind]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - TAKEN_OVER))
def test_a_kind_that_is_named_goes_before_the_default(kind: ChangeKind) -> None:
    change = CHANGES[kind]
    stop = SchemaPolicy("apply", {named(kind): "stop"}).stops_at(change)
    assert stop is not None
    assert stop.kind == kind
    assert SchemaPolicy("stop").stops_at(change) == stop
    assert SchemaPolicy("stop", {named(kind): "apply"}).stops_at(change) is None
    others: dict[ChangeKind, Action] = {other: "stop" for other in KINDS if other != named(kind)}
    assert SchemaPolicy("apply", others).stops_at(change) is None


@pytest.mark.parametrize("kind", sorted(set(KINDS) - FOLLOWED - TAKEN_OVER))
def test_what_is_ignored_leaves_no_difference(kind: ChangeKind) -> None:
    change = CHANGES[kind]
    for policy in (SchemaPolicy("ignore"), SchemaPolicy("apply", {named(kind): "ignore"})):
        assert policy.stops_at(change) is None
        assert kinds_of(policy.resolved(change)) == set()
    applied = SchemaPolicy("ignore", {named(kind): "apply"})
    assert applied.resolved(change) == change


@pytest.mark.parametrize("kind", sorted(FOLLOWED | TAKEN_OVER))
def test_what_rows_need_is_followed_also_where_the_default_is_to_ignore(kind: ChangeKind) -> None:
    assert SchemaPolicy("ignore").resolved(CHANGES[kind]) == CHANGES[kind]
    assert SchemaPolicy("ignore").action(kind) == "apply"
    assert SchemaPolicy("stop").action(kind) == ("apply" if kind in TAKEN_OVER else "stop")


@given(
    st.sets(st.sampled_from(sorted(EDITS))),
    st.sets(st.sampled_from(sorted(set(EDITS) - FOLLOWED - TAKEN_OVER - {"column_published"}))),
)
def test_of_a_change_just_what_is_ignored_is_left_out(
    made: set[ChangeKind], ignored: set[ChangeKind]
) -> None:
    after = TABLE
    for kind in sorted(made):
        after = EDITS[kind](after)
    change = TableChange(TABLE, after, is_rewrite=True)
    assert kinds_of(change) == made | {"rewrite"}
    resolved = SchemaPolicy("apply", dict.fromkeys(ignored, "ignore")).resolved(change)
    left_out = ignored | ({"column_published"} if "add_column" in ignored else set())
    assert kinds_of(resolved) == (made - left_out) | {"rewrite"}


def test_it_stops_at_the_first_step_that_says_so() -> None:
    change = TableChange(TABLE, EDITS["index"](EDITS["column_default"](EDITS["add_column"](TABLE))))
    steps = [difference.kind for difference in change.differences()]
    assert steps == ["index", "column_default", "add_column"]
    stop = SchemaPolicy("stop", {"index": "ignore"}).stops_at(change)
    assert stop is not None
    assert stop.text == "column label: default 'a'::text"


def test_an_added_column_that_is_ignored_stays_out_from_then_on() -> None:
    policy = SchemaPolicy("apply", {"add_column": "ignore"})
    with_column = EDITS["add_column"](TABLE)
    held = policy.resolved(TableChange(TABLE, with_column)).after
    assert held is not None
    assert held.columns == (*TABLE.columns, replace(ADDED, ignored=True))
    # The next change of the table tells of the column once more, as the source has it.
    renamed = EDITS["rename_column"](with_column)
    later = policy.resolved(TableChange(held, renamed))
    assert kinds_of(later) == {"rename_column"}
    assert later.after is not None
    assert later.after.columns[-1] == replace(ADDED, ignored=True)


def test_a_generated_column_that_is_ignored_stays_out() -> None:
    added = replace(SUM, attnum=8, name="twice")
    after = replace(TABLE, columns=(*TABLE.columns, added))
    resolved = SchemaPolicy("ignore").resolved(TableChange(TABLE, after))
    assert resolved.after == replace(after, columns=(*TABLE.columns, replace(added, ignored=True)))
    assert not resolved.differences()


def test_a_column_that_is_no_longer_generated_is_no_new_one() -> None:
    """Its values come from then on: at the destination it must not be computed any more."""
    change = TableChange(TABLE, column(4, generated=None, published=True)(TABLE))
    assert kinds_of(change) == {"column_generated"}
    assert SchemaPolicy("ignore").resolved(change) == change


def test_a_key_that_is_ignored_follows_the_names_of_its_columns() -> None:
    renamed = column(4, generated="(key + 1)")(column(1, name="key")(TABLE))
    after = replace(renamed, primary_key=())
    policy = SchemaPolicy("apply", {"primary_key": "ignore"})
    resolved = policy.resolved(TableChange(TABLE, after))
    assert kinds_of(resolved) == {"rename_column"}
    assert resolved.after is not None
    assert resolved.after.primary_key == ("key",)


def test_a_dropped_column_that_is_ignored_is_forgotten() -> None:
    without = EDITS["drop_column"](TABLE)
    change = TableChange(TABLE, without)
    resolved = SchemaPolicy("apply", {"drop_column": "ignore"}).resolved(change)
    assert (resolved.before, resolved.after) == (without, without)


def test_a_type_that_is_ignored_keeps_what_it_is_made_of() -> None:
    """The column keeps its enum at the destination, though nothing else needs that any more."""
    after = replace(column(3, type=TEXT)(TABLE), types=())
    change = TableChange(TABLE, after)
    assert kinds_of(change) == {"column_type", "user_type"}
    resolved = SchemaPolicy("apply", {"column_type": "ignore"}).resolved(change)
    assert resolved.after == TABLE
    assert not resolved.differences()


def test_a_type_is_ignored_with_its_collation() -> None:
    after = column(2, type=BIGINT, collation=("pg_catalog", "C"))(TABLE)
    resolved = SchemaPolicy("apply", {"column_type": "ignore"}).resolved(TableChange(TABLE, after))
    assert resolved.after == TABLE


def test_an_identity_is_ignored_with_the_default_that_comes_from_its_sequence() -> None:
    after = column(1, sequence="public.q", default="nextval('public.q')")(TABLE)
    policy = SchemaPolicy("apply", {"column_identity": "ignore"})
    assert policy.resolved(TableChange(TABLE, after)).after == TABLE


# -- the pipeline file ---------------------------------------------------------------------------

NAMED = sorted(set(SchemaChangesConfig.model_fields) - {"track", "trust", "default"})
FILE = """\
name: shop
source: {{url: postgresql://penstock@db/shop}}
destination: {{type: stdout}}
schema_changes: {}
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], PipelineConfig]:
    def write_and_load(schema_changes: str) -> PipelineConfig:
        path = tmp_path / "shop.yaml"
        path.write_text(FILE.format(schema_changes))
        return load_pipeline(path, environment={})

    return write_and_load


def test_a_file_that_says_nothing_lets_the_destination_follow(
    load: Callable[[str], PipelineConfig],
) -> None:
    config = load("{}").schema_changes
    assert config == SchemaChangesConfig()
    assert config.track
    assert config.policy == SchemaPolicy("apply", {})


@pytest.mark.parametrize("kind", NAMED)
def test_every_key_of_the_file_is_a_kind_of_change(
    kind: ChangeKind, load: Callable[[str], PipelineConfig]
) -> None:
    assert kind in KINDS
    for action in ("apply", "stop"):
        config = load(f"{{track: false, default: ignore, {kind}: {action}}}").schema_changes
        assert config.policy == SchemaPolicy("ignore", {kind: action})
        assert not config.track


@pytest.mark.parametrize("kind", NAMED)
def test_what_rows_need_cannot_be_ignored(
    kind: ChangeKind, load: Callable[[str], PipelineConfig]
) -> None:
    if kind not in FOLLOWED:
        assert load(f"{{{kind}: ignore}}").schema_changes.policy.action(kind) == "ignore"
        return
    with pytest.raises(ConfigError) as caught:
        load(f"{{{kind}: ignore}}")
    assert f"schema_changes.{kind}: " in caught.value.message
    assert "expected 'apply' or 'stop'" in caught.value.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{drop_column: drop}", "schema_changes.drop_column: "),
        ("{default: skip}", "schema_changes.default: "),
        ("{index: [apply]}", "schema_changes.index: "),
        ("{track: maybe}", "schema_changes.track: "),
        ("{drop_colum: stop}", 'drop_colum: unknown key; did you mean "drop_column"?'),
        ("{replica_identity: stop}", "replica_identity: unknown key"),
        ("{create_table: ignore}", "create_table: unknown key"),
        ("stop", "schema_changes: "),
    ],
)
def test_what_the_file_may_not_say(
    given: str, said: str, load: Callable[[str], PipelineConfig]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert said in caught.value.message
    assert caught.value.remedy

"""Values changed on the way: the rules at work on changes and on copied rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NoReturn, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config.row_condition_tree import column_names
from penstock.config.transform_config import TransformConfig
from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.given_image import GivenColumn, Values
from penstock.decode.image import Mask
from penstock.model.errors import ConfigError, DecodeError, SourceUnavailable, TableRefused
from penstock.model.table_definition import ColumnDefinition, TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.transform.changed_chunk import ChangedChunkReader
from penstock.transform.filter import Filter
from penstock.transform.known_tables import (
    KnownTable,
    Versions,
    expect_covered,
    known_versions,
)
from penstock.transform.refusals import (
    absent_columns,
    bare_columns,
    source_unquoted,
    uncovered_columns,
    unfit_rule,
)
from penstock.transform.row_condition import RowCondition
from penstock.transform.row_condition_evaluation import ConditionRows
from penstock.transform.rules import BoundRule, Rules, facts_of, in_order
from penstock.transform.shown_definition import mentions, shown_definition
from penstock.transform.step import Step
from penstock.transform.transformers.column_facts import ColumnFacts
from penstock.transform.transformers.contract import Inputs, UnfitError, ValueRefusedError

Known = Mask | None
"""Where a value was sent; None: everywhere."""


_NULL = "{NULL}"
_OF_NO_VALUE = (SourceUnavailable, UnfitError)
"""What no value is to blame for: it makes none of them null."""


@dataclass(frozen=True)
class _Images:
    """New or old images of a table's changes, or copied rows. ``text`` gives a column and where it
    is known; null where not. ``are_old``: what is not known is not missed. ``moved`` are those new
    ones of which an old one came, too: what they lack has another key there.
    """

    table: TableSchema
    count: int
    text: Callable[[int], tuple[pa.Array, Known]]
    are_old: bool = False
    moved: Known = None

    def condition_rows(self) -> ConditionRows:
        def text(column: int) -> tuple[pa.Array, Mask | None]:
            texts, known = self.text(column)
            return texts, None if known is None else ~known

        return ConditionRows(self.table, self.count, text)


class Transform(Step):
    """The part ``transform`` of the pipeline file at work. Can be pickled."""

    is_slow = True

    def __init__(self, config: TransformConfig, wanted: Filter | None = None) -> None:
        """``wanted`` comes first: what it leaves out needs no rule.

        Raises ConfigError where a rule's options or the key are wrong.
        """
        self.rules = Rules(config)
        self._filter = wanted
        self._plans: dict[TableSchema, list[BoundRule]] = {}
        self._versions: Callable[[], Mapping[int, Versions]] | None = None
        self._known: dict[int, tuple[KnownTable, ...]] = {}
        self._made_of: dict[int, Versions] = {}

    def __getstate__(self) -> dict[str, object]:
        """As executors get it for a job: with the tables as they are known when the job begins."""
        self._look_up()
        return {
            "rules": self.rules,
            "_filter": None,
            "_plans": {},
            "_versions": None,
            "_known": {oid: known for oid, known in self._known.items() if known},
            "_made_of": {},
        }

    # -- on the driver

    def compare_with(self, versions: Callable[[], Mapping[int, Versions]]) -> None:
        """Let executors compare tables with what is known of them: ``versions`` is asked before
        every job, by the thread that begins it.
        """
        self._versions = versions

    def seen(self, tables: Iterable[TableDefinition]) -> list[TableDefinition]:
        """The tables that the filter lets pass, with the columns that it does."""
        if self._filter is None:
            return list(tables)
        passing = (t for t in tables if self._filter.passes_table(t.schema, t.name))
        return list(map(self._filter.narrowed, passing))

    def _look_up(self) -> None:
        if self._versions is None:
            return
        known = {}
        versions = self._versions()
        for oid, found in versions.items():
            is_same = self._made_of.get(oid) == found and oid in self._known
            known[oid] = self._known[oid] if is_same else known_versions(found, self.covered)
        self._known, self._made_of = known, dict(versions)

    def definition(self, table: TableDefinition) -> TableDefinition:
        """The table with the mark of its rules, and without what shows values of its columns."""
        covered = self.covered(table)
        if not covered:
            return table
        shown = shown_definition(table, covered, lambda column: self._missing(table, column))
        return replace(shown, transform=self.rules.fingerprint(table))

    def marked(self, table: TableDefinition) -> TableDefinition:
        return replace(table, transform=self.rules.fingerprint(table))

    def covered(self, table: TableDefinition) -> set[str]:
        """The columns whose values change."""
        return {
            column.name
            for column in table.columns
            if (rule := self.rules.rule(table.schema, table.name, column.name)) is not None
            and not rule.keeps
        }

    def differing(self, table: TableDefinition) -> set[str]:
        """The columns whose values are others at the destination: also those that are generated
        there from such.
        """
        covered = self.covered(table)
        return covered | {
            column.name
            for column in table.columns
            if column.generated is not None and any(mentions(column.generated, c) for c in covered)
        }

    def _missing(self, table: TableDefinition, column: ColumnDefinition) -> str | None:
        """What rows have that are older than the column: a value like all others; null where that
        is not the same for all of them (``asks_for_copy``).
        """
        if column.missing is None:
            return None
        from penstock.decode.types.array_text import split_array
        from penstock.decode.types.text_column import MalformedTextError

        facts = facts_of(table).get(column.name)
        rule = self.rules.rule(table.schema, table.name, column.name)
        if facts is None or rule is None:
            return None
        try:
            (value,) = split_array(column.missing).elements
            bound = self.rules.bind(rule, facts, f"{table.qualified_name}.{column.name}")
            if value is None:
                return None
            if bound.inputs or bound.transformer.is_random or bound.condition is not None:
                return _NULL
            made = bound.transformer.apply(pa.array([value], pa.string()), Inputs())[0].as_py()
        except (MalformedTextError, UnfitError, ValueRefusedError, ValueError, pa.ArrowInvalid):
            return _NULL
        if made is None:
            return _NULL
        quoted = made.replace("\\", "\\\\").replace('"', '\\"')
        return f'{{"{quoted}"}}'

    def asks_for_copy(self, before: TableDefinition, after: TableDefinition) -> bool:
        """Whether rows that are older than a column of ``after`` (as ``definition`` gives it) have
        values in it that only a copy tells, or have others than newer ones would.
        """
        known = {column.attnum: column.name for column in before.columns}
        covered = self.covered(after)
        was, now = self._signatures(before), self._signatures(after)
        for column in after.columns:
            if column.name not in covered or not column.is_delivered:
                continue
            if column.attnum in known:
                # Another type, length or name, and so another output for the same value.
                signature = was.get(known[column.attnum])
                if signature not in (None, now.get(column.name)):
                    return True
                continue
            rule = self.rules.rule(after.schema, after.name, column.name)
            fills = rule is not None and rule.nulls == "transform"
            if column.missing == _NULL or (column.missing is None and fills):
                return True
        return False

    def _signatures(self, table: TableDefinition) -> dict[str, str]:
        return {
            column: bound.signature
            for column, bound in self.rules.bound(table.schema, table.name, facts_of(table))
            if isinstance(bound, BoundRule)
        }

    def refused(
        self, before: TableDefinition | None, after: TableDefinition
    ) -> TableRefused | None:
        """Why a table that was changed cannot be followed under the rules; None where it can."""
        if not (found := self.seen([after])):
            return None
        (after,) = found
        schema, name = after.schema, after.name
        facts = facts_of(after)
        if uncovered := self.rules.uncovered(schema, name, list(facts)):
            return uncovered_columns(after.qualified_name, uncovered, after.oid)
        absent = self.rules.absent(schema, name, list(facts))
        if absent:
            return absent_columns(after.qualified_name, sorted(absent), after.oid)
        if before is not None:
            now = {column.attnum: column.name for column in after.columns}
            names = {c.name: now.get(c.attnum, c.name) for c in before.columns}
            if bare := self._bare(before, after, names):
                return bare_columns(after, bare)
        key, bound_columns = {*after.merge_key, *after.primary_key}, set()
        for column, bound in self.rules.bound(schema, name, facts):
            if isinstance(bound, UnfitError):
                return unfit_rule(after.qualified_name, column, bound.why, after.oid)
            if column in key and (why := bound.why_no_key) is not None:
                why = f"it belongs to the key, and {why}"
                return unfit_rule(after.qualified_name, column, why, after.oid)
            bound_columns.add(column)
        return _shown_by_generated(after, bound_columns)

    def refused_partition(
        self, part: TableDefinition, root: TableDefinition
    ) -> TableRefused | None:
        """Why rows of a table that was followed by itself cannot come as those of another one,
        whose partition it is now; None where they can.
        """
        bare = self._bare(part, root, {column.name: column.name for column in part.columns})
        return bare_columns(root, bare) if bare else None

    def _bare(
        self, before: TableDefinition, after: TableDefinition, names: Mapping[str, str]
    ) -> list[str]:
        """The columns whose values changed on the way, and would leave as they are from now on.
        ``names`` are those of now. ``keep`` counts as little as no rule: it may be a pattern that
        means all others.
        """
        found = []
        for column in sorted(self.covered(before) & names.keys()):
            rule = self.rules.rule(after.schema, after.name, names[column])
            if rule is None or rule.keeps:
                place = f"{before.schema}.{before.name}.{column}"
                found.append(f"{names[column]} (which was {place})")
        return found

    def source_keys(
        self, table: TableDefinition, keys: Sequence[tuple[str, ...]]
    ) -> Sequence[tuple[str, ...]]:
        columns: list[list[str]] = [list(texts) for texts in zip(*keys, strict=True)]
        facts = facts_of(table)
        for place, name in enumerate(table.merge_key):
            rule = self.rules.rule(table.schema, table.name, name)
            if rule is None or rule.keeps:
                continue
            try:
                bound = self.rules.bind(rule, facts[name], f"{table.qualified_name}.{name}")
                given = pa.array(columns[place], pa.string())
                columns[place] = bound.transformer.undo(given).to_pylist()
            except (UnfitError, ValueRefusedError) as error:
                raise unfit_rule(table.qualified_name, name, error.why, table.oid) from None
        return list(zip(*columns, strict=True))

    def reading(self, table: TableSchema | TableDefinition) -> AbstractContextManager[None]:
        if self.rules.covers(table.schema, table.name):
            return source_unquoted(table.qualified_name)
        return nullcontext()

    def read_again(self, rows: TableRows) -> TableRows:
        return self.apply_rows(rows)

    # -- on executors

    def apply(self, changes: ChangeSet) -> ChangeSet:
        """Raises TableRefused where a rule does not suit a table, or does not take a value, and
        TableChanged where a table has changed so that values may leave as they are.
        """
        for table in changes.tables:
            self._expect(table)
        messages = changes.messages if self.rules.config.messages == "pass" else ()
        return ChangeSet(
            tuple(self._changed(table) for table in changes.tables),
            changes.truncates,
            messages,
        )

    def _expect(self, changes: TableChanges) -> None:
        table = changes.table
        if (known := self._known.get(table.oid)) and len(changes):
            changing = {bound.column for bound in self.plan(table)}
            bare = {column.name for column in table.columns} - changing
            expect_covered(table, bare, known, int(changes.commit_lsn[0]))

    def copied(self, reader: ChunkReader) -> ChunkReader:
        if not self.plan(reader.table):
            return reader
        return _HiddenChunkReader(reader, reader.table, self.apply_rows)

    def apply_rows(self, rows: TableRows) -> TableRows:
        """Copied rows, changed."""
        plan = self.plan(rows.table)
        made = self._made(
            _Images(rows.table, len(rows), lambda column: (rows.columns[column], None)), plan
        )
        columns = tuple(
            made[number][0] if number in made else column
            for number, column in enumerate(rows.columns)
        )
        return replace(rows, columns=columns)

    def _changed(self, changes: TableChanges) -> TableChanges:
        plan = self.plan(changes.table)
        if not plan or not len(changes):
            return changes
        made_new = self._made(_new_images(changes), plan)
        made_old = self._made(_old_images(changes), plan)
        columns: list[int | GivenColumn] = list(range(len(changes.table.columns)))
        for number, (texts, known) in made_new.items():
            old, _known = made_old[number]
            columns[number] = GivenColumn(
                Values(texts, None if known is None else ~known),
                Values(old, changes.old_unset(number)),
            )
        return changes.with_columns(changes.table, columns)

    def plan(self, table: TableSchema) -> list[BoundRule]:
        """The rules of a table, in an order in which they can be taken. Raises TableRefused where
        one does not suit, or strict mode misses one.
        """
        plan = self._plans.get(table)
        if plan is None:
            plan = self._plans[table] = self._made_plan(table)
        return plan

    def _made_plan(self, table: TableSchema) -> list[BoundRule]:
        schema, name = table.schema, table.name
        if not self.rules.covers(schema, name):
            return []
        names = [column.name for column in table.columns]
        if uncovered := self.rules.uncovered(schema, name, names):
            raise uncovered_columns(table.qualified_name, uncovered, table.oid)
        if absent := self.rules.absent(schema, name, names):
            raise absent_columns(table.qualified_name, absent, table.oid)
        facts = {c.name: ColumnFacts.of_column(c) for c in table.columns}
        plan = []
        for column, bound in self.rules.bound(schema, name, facts):
            if isinstance(bound, UnfitError):
                _refuse(table, column, bound.why)
            number = names.index(column)
            is_key = table.columns[number].is_key and table.replica_identity != "f"
            if is_key and (why := bound.why_no_key) is not None:
                _refuse(table, column, f"it belongs to the key, and {why}")
            for other in bound.inputs:
                if other not in names:
                    _refuse(table, column, f"it needs a column {other}, which is not there")
            try:
                if bound.condition is not None:
                    bound.condition.check(table)
            except ConfigError as error:
                _refuse(table, column, error.message)
            plan.append(bound)
        try:
            return in_order(plan, table.qualified_name)
        except UnfitError as error:
            _refuse(table, plan[0].column, error.why)

    def _made(self, images: _Images, plan: list[BoundRule]) -> dict[int, tuple[pa.Array, Known]]:
        """The columns of the plan, by number, each with where it is known."""
        names = [column.name for column in images.table.columns]
        made: dict[int, tuple[pa.Array, Known]] = {}
        for bound in plan:
            number = names.index(bound.column)
            try:
                made[number] = _Column(images, bound, names, made).made(number)
            except (ValueRefusedError, UnfitError) as error:
                _refuse(images.table, bound.column, error.why)
            except DecodeError:
                _refuse(images.table, bound.column, "its condition meets a value that is none")
            except (TableRefused, ConfigError, SourceUnavailable):
                raise
            except Exception as error:
                # What it says may show a value.
                _refuse(images.table, bound.column, f"it failed with {type(error).__name__}")
        return made


class _HiddenChunkReader(ChangedChunkReader):
    """Whose errors show no value either."""

    def texts(self) -> Iterator[TableRows]:
        with source_unquoted(self.table.qualified_name):
            yield from super().texts()


class _Column:
    """One rule over some images."""

    def __init__(
        self,
        images: _Images,
        bound: BoundRule,
        names: list[str],
        made: Mapping[int, tuple[pa.Array, Known]],
    ) -> None:
        self._images = images
        self._bound = bound
        self._names = names
        self._made = made

    def made(self, number: int) -> tuple[pa.Array, Known]:
        """The column as it leaves, and where it is known."""
        values, own = self._images.text(number)
        bound = self._bound
        # One that is made of others is known where they are.
        known = self._known_inputs(own) if bound.transformer.made_inputs else own
        chosen = np.ones(len(values), bool) if known is None else known.copy()
        if bound.condition is not None:
            self._expect_sent(bound.condition, own)
            chosen &= bound.condition.not_false(self._images.condition_rows())
        source = values
        if bound.rule.nulls == "transform":
            source = values.fill_null("")
        elif values.null_count:
            # What was not sent is not null: nulls are never large.
            valid = np.asarray(values.is_valid())
            chosen &= valid if own is None else valid | ~own
        if ColumnFacts.of_column(self._images.table.columns[number]).padded:
            source = pc.utf8_rtrim(source, " ")
        if chosen.all():
            return self._applied(source, None), known
        if not chosen.any():
            return values, known
        rows = pa.array(np.flatnonzero(chosen))
        some = self._applied(source.take(rows), rows)
        return pc.replace_with_mask(values.cast(pa.string()), pa.array(chosen), some), known

    def _expect_sent(self, condition: RowCondition, own: Known) -> None:
        """Raises ValueRefusedError where a row whose value was not sent may have become one that
        the condition holds for, or does not hold for any more: what the destination has of it would
        stay.
        """
        if own is None or self._images.are_old:
            return
        unsure, moved = ~own, self._images.moved
        key = {column.name for column in self._images.table.columns if column.is_key}
        if key.issuperset(column_names(condition.tree)):
            unsure = unsure & (False if moved is None else moved)
        if unsure.any():
            raise ValueRefusedError(
                "it has a condition, and an update did not send it, because it is large and did "
                "not change: nobody knows what the condition said of the row before (REPLICA "
                "IDENTITY FULL lets Postgres send it)"
            )

    def _known_inputs(self, own: Known) -> Known:
        """Where what the rule needs was sent: all of it, or none. Raises ValueRefusedError where
        only a part was.
        """
        columns = [self._input(name)[1] for name in self._bound.transformer.made_inputs]
        if "{value" in getattr(self._bound.transformer.options, "template", ""):
            columns.append(own)
        if self._images.are_old:
            every_one = [known for known in (own, *columns) if known is not None]
            return cast(Known, np.all(every_one, axis=0)) if every_one else None
        lacking = [~known for known in columns if known is not None]
        if not lacking:
            return None
        some, every = np.any(lacking, axis=0), np.all(lacking, axis=0)
        if len(lacking) < len(columns) or (some & ~every).any():
            raise ValueRefusedError(
                "an update did not send a column that it is made of, because that is large and "
                "did not change (REPLICA IDENTITY FULL lets Postgres send it)"
            )
        return cast(Known, ~every)

    def _input(self, name: str, *, raw: bool = False) -> tuple[pa.Array, Known]:
        number = self._names.index(name)
        if not raw and number in self._made:
            return self._made[number]
        return self._images.text(number)

    def _applied(self, values: pa.Array, rows: pa.Array | None) -> pa.Array:
        transformer = self._bound.transformer
        inputs = Inputs(
            {name: self._whole_input(name) for name in transformer.raw_inputs},
            {name: self._input(name)[0] for name in transformer.made_inputs},
        )
        if rows is not None:
            inputs = inputs.take(rows)
        made = self._of_all(values, inputs)
        if made is not None:
            return made
        if transformer.is_random or self._bound.inputs:
            return self._by_halves(values, inputs)
        coded = values.cast(pa.string()).dictionary_encode()
        return self._by_halves(coded.dictionary, inputs).take(coded.indices)

    def _of_all(self, values: pa.Array, inputs: Inputs) -> pa.Array | None:
        """What becomes of values; None where one of them is to be null."""
        try:
            return self._checked(self._bound.transformer.apply(values, inputs), len(values))
        except _OF_NO_VALUE:
            raise
        except Exception:
            if self._bound.rule.errors == "refuse":
                raise
        return None

    def _by_halves(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        """Null for what is refused alone. To be called for each value may take long."""
        if len(values) <= 1:
            return pa.nulls(len(values), pa.string())
        middle, found = len(values) // 2, []
        for rows in (np.arange(middle), np.arange(middle, len(values))):
            half = values.take(pa.array(rows)), inputs.take(pa.array(rows))
            made = self._of_all(*half)
            found.append(self._by_halves(*half) if made is None else made)
        return pa.concat_arrays(found)

    def _whole_input(self, name: str) -> pa.Array:
        texts, known = self._input(name, raw=True)
        if known is not None and not known.all():
            own = self._images.text(self._names.index(self._bound.column))[0]
            if (np.asarray(own.is_valid()) & ~known).any():
                raise ValueRefusedError(
                    f"an update did not send column {name}, which says how it changes (REPLICA "
                    "IDENTITY FULL lets Postgres send it)"
                )
        return texts

    def _checked(self, made: pa.Array, count: int) -> pa.Array:
        if isinstance(made, pa.ChunkedArray):
            made = made.combine_chunks()
        if len(made) != count or not (
            pa.types.is_string(made.type) or pa.types.is_large_string(made.type)
        ):
            raise ValueRefusedError("the transformer did not give one text for each value")
        return made.cast(pa.string())


def _shown_by_generated(table: TableDefinition, covered: set[str]) -> TableRefused | None:
    """Why a column that is generated from such, and sent, would show their values."""
    for column in table.columns:
        if column.generated is None or not column.is_delivered or column.name in covered:
            continue
        if sources := sorted(name for name in covered if mentions(column.generated, name)):
            return bare_columns(
                table, [f"{column.name} (which is generated from {', '.join(sources)})"]
            )
    return None


def _new_images(changes: TableChanges) -> _Images:
    """New images; what they lack is taken from old ones, where these have it."""

    old = np.searchsorted(changes.old_rows, changes.new_rows)
    old = np.minimum(old, max(len(changes.old_rows) - 1, 0))
    has_old = np.zeros(len(changes.new_rows), bool)
    if len(changes.old_rows):
        has_old = changes.old_rows[old] == changes.new_rows

    def text(column: int) -> tuple[pa.Array, Known]:
        texts, unset = changes.new_text(column), changes.new_unset(column)
        if not unset.any():
            return texts, None
        filled = unset & has_old
        if filled.any():
            filled[filled] = _old_known(changes, column)[old[filled]]
            found = changes.old_text(column).take(pa.array(old[filled]))
            texts = pc.replace_with_mask(texts, pa.array(filled), found)
        left = unset & ~filled
        return texts, ~left if left.any() else None

    return _Images(changes.table, len(changes.new_rows), text, moved=has_old)


def _old_images(changes: TableChanges) -> _Images:
    def text(column: int) -> tuple[pa.Array, Known]:
        known = _old_known(changes, column)
        return changes.old_text(column), None if known.all() else known

    return _Images(changes.table, len(changes.old_rows), text, are_old=True)


def _old_known(changes: TableChanges, column: int) -> Mask:
    """For each old image: whether it has the column."""
    is_key = changes.table.columns[column].is_key
    return (changes.old_is_full | is_key) & ~changes.old_unset(column)


def _refuse(table: TableSchema, column: str, why: str) -> NoReturn:
    raise unfit_rule(table.qualified_name, column, why, table.oid) from None

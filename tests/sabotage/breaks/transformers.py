"""Breaks of the rules that change values on the way."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_STAYS = "Values that rules cover do not leave"
_SAME = "The same value gives the same output"
_SOME = "Who holds some rows holds the right ones"

BREAKS: tuple[Break, ...] = (
    Break(
        name="old-images-leave-as-they-are",
        guarantee=_STAYS,
        without="Of an update or delete the row before leaves without the rules.",
        file="transform/transform.py",
        edits=(
            ("Values(old, changes.old_unset", "Values(changes.old_text(number), changes.old_unset"),
        ),
        noticed_by=(("unit/test_transform.py", "test_both_images_are_changed_as_copied_rows_are"),),
    ),
    Break(
        name="new-columns-leave-in-strict-mode",
        guarantee=_STAYS,
        without="A column that no rule names leaves as it is, though the mode is strict.",
        file="transform/transform.py",
        edits=(("uncovered := self.rules.uncovered(schema, name, names)", "uncovered := ()"),),
        noticed_by=(
            (
                "unit/test_transform.py",
                "test_strict_mode_stops_a_table_with_a_column_that_no_rule_names",
            ),
        ),
    ),
    Break(
        name="domains-share-a-key",
        guarantee=_SAME,
        without="Columns of two domains get the same pseudonyms, and can be joined.",
        file="transform/transformers/keys.py",
        edits=((", self.domain.encode()))", ", b''))"),),
        noticed_by=(("unit/test_transformers.py", "test_domains_and_keys"),),
    ),
    Break(
        name="defaults-show-values",
        guarantee=_STAYS,
        without="Defaults of changed columns are made at the destination.",
        file="transform/transform.py",
        edits=(
            ("column.default if column.sequence is not None else None", "column.default"),
            ("default=default, missing=", "default=column.default, missing="),
        ),
        noticed_by=(("integration/test_planted_values.py", "test_no_planted_value_gets_out"),),
    ),
    Break(
        name="a-whole-schema-beside-rules",
        guarantee=_STAYS,
        without="pg_dump's text of the schema goes to the destination, with what rules hide.",
        file="pipeline/copy/schema_copy.py",
        edits=(("if config.transform is not None:", "if False:"),),
        noticed_by=(
            ("unit/test_whole_schema.py", "test_what_pg_dump_knows_nothing_of_is_refused"),
        ),
    ),
    Break(
        name="a-row-that-begins-to-match-is-updated",
        guarantee=_SOME,
        without="A row that begins to meet a condition is told as an update of one that is there.",
        file="transform/filter.py",
        edits=(("came = was_in[rows] < is_in[rows]", "came = np.zeros(len(rows), bool)"),),
        noticed_by=(
            ("unit/test_filter.py", "test_who_holds_rows_holds_those_that_meet_the_condition"),
        ),
    ),
)

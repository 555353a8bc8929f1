"""Breaks of the rules that change values on the way."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_STAYS = "Values that rules cover do not leave"
_SAME = "The same value gives the same output"

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
)

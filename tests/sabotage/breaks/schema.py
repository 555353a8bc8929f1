"""Breaks of how schema changes are followed."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="schema-change-inside-a-batch",
        guarantee="In commit order",
        without="A batch passes a schema change, which then comes after the rows behind it.",
        file="changelog/log_batches.py",
        edits=(("self._schema_points.next_after(listing, self.frontier.commit_lsn)", "None"),),
        noticed_by=(
            (
                "unit/test_schema_points.py",
                "test_a_batch_ends_before_a_transaction_that_changes_tables",
            ),
        ),
    ),
    Break(
        name="rewrite-not-told",
        guarantee="A copy and the stream fit",
        without="A table is not copied anew after a rewrite, which no change of a row tells of.",
        file="pipeline/schema/schema_follower.py",
        edits=(("if t.is_rewrite and t.after", "if t.is_rewrite and not t.after"),),
        noticed_by=(
            ("unit/test_schema_follower.py", "test_a_table_that_was_rewritten_is_copied_anew"),
        ),
    ),
    Break(
        name="emptied-partition-unseen",
        guarantee="An emptied partition is noticed",
        without="A partition that was made after the copy may be emptied without a word.",
        file="pipeline/tables/partition_files.py",
        edits=(("leaf.file != known.get(oid, oid)", "leaf.file != known.get(oid, leaf.file)"),),
        noticed_by=(
            (
                "unit/test_partition_files.py",
                "test_an_emptied_partition_has_its_table_copied_anew",
            ),
        ),
    ),
)

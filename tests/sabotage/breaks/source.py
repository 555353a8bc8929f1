"""Breaks at the source: publication, slot, lock, and what must never be published."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_SLOT = "start = _create_slot(conn, config, slot, slot_wait)"

BREAKS = (
    Break(
        name="slot-before-publication",
        guarantee="Nothing is lost",
        without="The slot is made before the publication is committed: rows that are written in "
        "between are in neither snapshot nor stream.",
        file="source/postgres/subscription/subscription.py",
        edits=(
            (f"    {_SLOT}\n", ""),
            (
                "    publication = publication_name(config.name)\n",
                f"    publication = publication_name(config.name)\n    {_SLOT}\n",
            ),
        ),
        noticed_by=(
            (
                "integration/test_subscription.py",
                "TestEnsure::test_the_publication_is_there_before_the_slot",
            ),
        ),
    ),
    Break(
        name="published-without-identity",
        guarantee="Your application goes on",
        without="A table without an identity is published, and the application's UPDATE fails.",
        file="source/postgres/subscription/table_selection.py",
        edits=(
            (
                "if table.oid in need and (lacking := selection.why_unidentified(table)):",
                "if not need and (lacking := ''):",
            ),
        ),
        noticed_by=(
            ("integration/test_reconcile.py", "TestLeftOut::test_the_applications_updates_go_on"),
        ),
    ),
    Break(
        name="insert-only-publishes-updates",
        guarantee="Your application goes on",
        without="Updates of a table that is followed by its inserts alone are published, and fail.",
        file="source/postgres/subscription/publications.py",
        edits=(('_INSERTS = "insert, truncate"', '_INSERTS = "insert, update, truncate"'),),
        noticed_by=(
            (
                "integration/test_insert_only.py",
                "test_the_application_goes_on_and_only_inserts_and_truncates_come",
            ),
        ),
    ),
    Break(
        name="holder-without-a-sign-of-life",
        guarantee="One writer",
        without="A driver that lives is taken for one whose machine is lost, and replaced.",
        file="source/postgres/pipeline_lock.py",
        edits=(('self._conn.execute("SELECT")', "self._conn.closed"),),
        noticed_by=(
            (
                "integration/test_pipeline_lock.py",
                "test_a_holder_that_lives_keeps_it_beyond_its_lease_whatever_it_is_busy_with",
            ),
        ),
    ),
    Break(
        name="second-run-beside-the-first",
        guarantee="One writer",
        without="A second `penstock run` of a pipeline starts beside the first.",
        file="source/postgres/pipeline_lock.py",
        edits=(("row = self._conn.execute(_HOLDER, keys).fetchone()", "row = None"),),
        noticed_by=(
            ("integration/test_pipeline_lock.py", "test_a_second_holder_is_refused_and_told_who"),
        ),
    ),
    Break(
        name="checksums-not-compared",
        guarantee="What is there can be proven",
        without="`penstock verify` counts rows, and takes rows with other values for equal.",
        file="verify/checksums.py",
        edits=(
            (
                "if self.chunks.get(c) != other.chunks.get(c)]",
                "if self.rows_of(c) != other.rows_of(c)]",
            ),
        ),
        noticed_by=(("integration/test_verify_compare.py", "test_differing_keys_are_named"),),
    ),
)

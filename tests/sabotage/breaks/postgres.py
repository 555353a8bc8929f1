"""Breaks of the destination postgres: its commit, its merge, its refusals."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_STAGING = "destination/postgres/staging"
_TABLE_MERGE = "destination/postgres/merging/table_merge.py"

BREAKS = (
    Break(
        name="stale-driver-not-fenced",
        guarantee="Once, in tables",
        without="A driver commits though another one has moved the position since.",
        file="destination/postgres/progress.py",
        edits=(("if changed != 1:", "if changed > 1:"),),
        noticed_by=(
            ("contract/test_postgres.py", "TestPostgres::test_a_stale_driver_is_fenced[merge]"),
        ),
    ),
    Break(
        name="settings-lost-in-a-pool",
        guarantee="Once, in tables",
        without="A batch is committed on a server connection that has none of our settings.",
        file="destination/postgres/progress.py",
        edits=(
            (
                "current_setting('penstock.session', true) = %s::text || ' ' || pg_backend_pid()",
                "%s::text IS NOT NULL",
            ),
        ),
        noticed_by=(
            (
                "integration/test_destination_pooler.py",
                "test_one_that_hid_well_is_found_out_before_anything_is_committed",
            ),
        ),
    ),
    Break(
        name="expected-position-not-compared",
        guarantee="Once, in tables",
        without="A commit whose answer was lost is made once more, from where the driver stood.",
        file="destination/postgres/progress.py",
        edits=(
            (
                ' AND commit_lsn IS NOT DISTINCT FROM %s::pg_lsn"',
                ' AND (commit_lsn IS NOT DISTINCT FROM %s::pg_lsn OR true)"',
            ),
            (
                ' AND end_lsn IS NOT DISTINCT FROM %s::pg_lsn"',
                ' AND (end_lsn IS NOT DISTINCT FROM %s::pg_lsn OR true)"',
            ),
        ),
        noticed_by=(
            (
                "integration/test_postgres_commit.py",
                "test_a_commit_whose_answer_is_lost_has_happened_once",
            ),
        ),
    ),
    Break(
        name="staged-rows-not-counted",
        guarantee="Once, in tables",
        without="Rows that a crash of the server took from the staging tables are not missed.",
        file="destination/postgres/merging/batch_merge.py",
        edits=(("if found != expected:", "if found and not expected:"),),
        noticed_by=(
            (
                "integration/test_postgres_commit.py",
                "test_staging_that_was_emptied_is_staged_again",
            ),
        ),
    ),
    Break(
        name="handed-rows-forgotten",
        guarantee="Once, in tables",
        without="Rows that were handed over are left out where they do not go straight in.",
        file=f"{_STAGING}/restaging.py",
        edits=(("if part.handed is None:", "if part.handed is None or part.part:"),),
        noticed_by=(
            (
                "integration/test_postgres_handover.py",
                "test_a_row_that_is_there_already_is_replaced_as_ever",
            ),
        ),
    ),
    Break(
        name="handed-rows-cut-short",
        guarantee="Once, in tables",
        without="A file of rows that ends too early is taken for whole.",
        file=f"{_STAGING}/handover.py",
        edits=(
            (
                "                if not count:\n                    raise _gone(self.file)",
                "                if not count:\n                    break",
            ),
        ),
        noticed_by=(
            (
                "integration/test_postgres_handover.py",
                "test_rows_that_are_cut_short_are_asked_for_again",
            ),
        ),
    ),
    Break(
        name="handed-to-another-machine",
        guarantee="Once, in tables",
        without="A task leaves its rows in a folder of that name that is not the driver's.",
        file=f"{_STAGING}/handover.py",
        edits=((".read_text() == self.mark", '.read_text() != ""'),),
        noticed_by=(("unit/test_handover.py", "test_a_folder_without_the_mark_is_another_one"),),
    ),
    Break(
        name="handed-rows-not-escaped",
        guarantee="Once, in tables",
        without="A backslash in a row that is handed over is taken for COPY's own.",
        file="decode/plain_lines.py",
        edits=(("if np.count_nonzero(text == _BACKSLASH) != nulls:", "if nulls < 0:"),),
        noticed_by=(
            ("unit/test_plain_lines.py", "test_what_has_to_be_escaped_is_left_to_the_columns"),
        ),
    ),
    Break(
        name="handed-rows-lie-about",
        guarantee="What is on disk is its owner's alone",
        without="Rows that were handed over stay in a file when their batch is over.",
        file="destination/postgres/destination.py",
        edits=(("            if was_handed:\n", "            if not was_handed:\n"),),
        noticed_by=(
            (
                "integration/test_postgres_handover.py",
                "test_nothing_of_a_batch_lies_about_once_it_is_over",
            ),
        ),
    ),
    Break(
        name="handed-rows-visible-early",
        guarantee="Once, in tables",
        without="Rows that were handed over are committed before the position.",
        file="destination/postgres/merging/batch_merge.py",
        edits=(
            (
                "    added = copy_in(conn,",
                '    conn.pgconn.exec_(b"COMMIT")\n    added = copy_in(conn,',
            ),
        ),
        noticed_by=(
            (
                "integration/test_postgres_handover.py",
                "test_readers_see_all_tables_of_a_batch_or_none",
            ),
        ),
    ),
    Break(
        name="pieces-stay",
        guarantee="Once, in tables",
        without="What was taken of a batch that is given up stands at the targets all the same.",
        file="destination/postgres/begun_batch.py",
        edits=(('"ROLLBACK"', '"COMMIT"'),),
        noticed_by=(("integration/test_postgres_pieces.py", "test_what_is_undone_leaves_nothing"),),
    ),
    Break(
        name="pieces-out-of-order",
        guarantee="Once, in tables",
        without="Rows to add are taken ahead of changes that stand before them in the batch.",
        file="destination/postgres/begun_batch.py",
        edits=(
            ("if self._is_full or piece.truncates", "if piece.truncates"),
            ("or [*receipts[:count]] != self._taken", ""),
        ),
        noticed_by=(
            (
                "integration/test_postgres_pieces.py",
                "test_so_do_those_of_a_table_without_a_key",
            ),
        ),
    ),
    Break(
        name="truncate-keeps-what-was-staged",
        guarantee="Once, in tables",
        without="Rows that were staged before a TRUNCATE are merged after it.",
        file="destination/postgres/staging/receipt.py",
        edits=(("found.pop(table, None)", "found.get(table)"),),
        noticed_by=(
            (
                "contract/test_postgres.py",
                "TestPostgres::test_a_truncate_makes_what_other_tasks_wrote_before_it_void[merge]",
            ),
        ),
    ),
    Break(
        name="unique-values-not-exchanged",
        guarantee="Once, in tables",
        without="Rows that exchange the values of a unique index stop their table.",
        file=_TABLE_MERGE,
        edits=(("isinstance(error, Odd) or (", "isinstance(error, Odd) and ("),),
        noticed_by=(
            (
                "integration/test_postgres_conflicts.py",
                "test_values_of_a_unique_index_that_two_rows_exchange",
            ),
        ),
    ),
    Break(
        name="key-change-loses-unset-columns",
        guarantee="Unset is not null",
        without="A row that gets another key loses the columns that its change did not hold.",
        file=_TABLE_MERGE,
        edits=(("            self._send(merge_sql.complete, only_rekeys=True)\n", ""),),
        noticed_by=(
            (
                "integration/test_postgres_histories.py",
                "test_what_becomes_of_one_row_in_several_parts",
            ),
        ),
    ),
    Break(
        name="commit-not-flushed",
        guarantee="Nothing is lost",
        without="A commit of the destination counts before it has reached the disk.",
        file="destination/postgres/sessions/driver_session.py",
        edits=(('{"synchronous_commit": "on"}', '{"synchronous_commit": "off"}'),),
        noticed_by=(
            (
                "integration/test_postgres_commit.py",
                "test_a_commit_waits_for_the_disk_whatever_the_database_says",
            ),
        ),
    ),
    Break(
        name="refused-row-dropped",
        guarantee="A refused row is never dropped",
        without="A row that the target refuses is left out, and no dead letter holds it.",
        file=_TABLE_MERGE,
        edits=(("        write_letter(self._conn, letters_of, self._stage, letter)\n", ""),),
        noticed_by=(
            (
                "integration/test_postgres_refusals.py",
                "TestDeadLetters::test_just_the_refused_rows_whole",
            ),
        ),
    ),
    Break(
        name="refused-row-without-a-letter",
        guarantee="A refused row is never dropped",
        without="Without dead letters the table goes on behind a row that was refused.",
        file=_TABLE_MERGE,
        edits=(
            (
                "        if letters_of is None:\n            raise refusal(\n",
                "        if letters_of is None:\n            return\n            raise refusal(\n",
            ),
        ),
        noticed_by=(
            ("integration/test_postgres_refusals.py", "test_the_table_stops_and_the_others_go_on"),
        ),
    ),
    Break(
        name="a-right-stops-all",
        guarantee="Tables fail alone",
        without="A right that is missing on one target stops the whole pipeline.",
        file=_TABLE_MERGE,
        edits=(("and not is_passing(error))", "and is_refusal(error))"),),
        noticed_by=(
            (
                "integration/test_postgres_targets.py",
                "test_a_right_that_is_revoked_stops_one_table",
            ),
        ),
    ),
)

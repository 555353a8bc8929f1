"""Breaks of copies: what is read, what is written once, and how the stream goes on from there."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_COMPLETE = "test_a_table_is_complete_behind_its_last_snapshot_and_with_nothing_parked"

BREAKS = (
    Break(
        name="a-chunk-whose-commit-fails",
        guarantee="A copy is not begun anew",
        without="A chunk that was read and that the destination did not take is in nobody's hand.",
        file="pipeline/copy/copy_units.py",
        edits=(("                self._failed(taken, error)\n", "                raise\n"),),
        noticed_by=(
            ("unit/test_copy_manager.py", "test_a_table_whose_chunk_is_refused_is_set_aside"),
        ),
    ),
    Break(
        name="copies-change-the-destination-beside-the-stream",
        guarantee="A copy and the stream fit",
        without="A new table that the stream and its copy meet at once is made by both, and the "
        "second one is refused.",
        file="pipeline/copy/copies.py",
        edits=((", committer.lock)", ")"),),
        noticed_by=(
            (
                "unit/test_copies_alone.py",
                "test_a_table_is_fitted_for_its_copy_while_nothing_else_changes_the_destination",
            ),
        ),
    ),
    Break(
        name="joined-before-its-replay",
        guarantee="A copy and the stream fit",
        without="Where tasks write at once, the stream brings changes of a table whose earlier "
        "ones are still to be replayed.",
        file="pipeline/run/joins.py",
        edits=(("self._at_once and not", "False and not"),),
        noticed_by=(
            (
                "unit/test_joins.py",
                "test_a_batch_that_writes_at_once_waits_for_those_that_join",
            ),
        ),
    ),
    Break(
        name="changes-applied-twice-around-a-snapshot",
        guarantee="A copy and the stream fit",
        without="The last transaction that a table holds already is applied to it once more.",
        file="transform/floors.py",
        edits=(('floor, "right")', 'floor, "left")'),),
        noticed_by=(("unit/test_watermarks.py", "test_floors_cut_rows_truncates_and_messages"),),
    ),
    Break(
        name="snapshot-without-its-position",
        guarantee="A copy and the stream fit",
        without="A snapshot is taken for one of another position than the slot's consistent point.",
        file="source/postgres/snapshot/slot_snapshot.py",
        edits=(("return SlotSnapshot(name, parse_lsn(point))", "return SlotSnapshot(name, 1)"),),
        noticed_by=(
            (
                "integration/test_snapshot_holder.py",
                "test_it_shows_what_was_committed_before_its_point",
            ),
        ),
    ),
    Break(
        name="parked-key-forgotten",
        guarantee="A copy and the stream fit",
        without="A row of which only a part is known is not read again from the source.",
        file="destination/postgres/merging/table_merge.py",
        edits=(("            self._send(replay_sql.park)\n", ""),),
        noticed_by=(
            (
                "integration/test_postgres_copy_replay.py",
                "test_keys_of_any_type_are_parked_and_found_again",
            ),
        ),
    ),
    Break(
        name="deleted-rows-come-back",
        guarantee="A copy and the stream fit",
        without="A parked key whose row is gone at the source keeps its old row.",
        file="destination/postgres/copying/parked_keys.py",
        edits=(("[key for key in keys if key not in there]", "[]"),),
        noticed_by=(
            (
                "integration/test_postgres_copy_replay.py",
                "test_keys_of_any_type_are_parked_and_found_again",
            ),
        ),
    ),
    Break(
        name="parked-rows-before-their-time",
        guarantee="A copy and the stream fit",
        without="Rows that are read again are put in place before the changes that came before "
        "them.",
        file="pipeline/copy/finish_copies.py",
        edits=(("self._replay.bring_to([table.oid for table in tables], point)", "pass"),),
        noticed_by=(("unit/test_finish_copies.py", _COMPLETE),),
    ),
    Break(
        name="complete-before-its-last-snapshot",
        guarantee="A copy and the stream fit",
        without="A table passes for complete before the changes up to its last snapshot are there.",
        file="pipeline/copy/finish_copies.py",
        edits=(("self._replay.bring_near(oids, consistent)", "self._replay.bring_near(oids)"),),
        noticed_by=(("unit/test_finish_copies.py", _COMPLETE),),
    ),
    Break(
        name="filenode-not-compared",
        guarantee="A copy and the stream fit",
        without="A chunk is read from a table that was rewritten since its copy was planned.",
        file="source/postgres/snapshot/chunk_reader.py",
        edits=(("if (oid, file) != (self._range.relation, self._range.file):", "if not oid:"),),
        noticed_by=(
            ("integration/test_chunk_reader.py", "test_a_table_that_was_rewritten_is_not_read"),
        ),
    ),
    Break(
        name="hidden-rows-left-out",
        guarantee="Hidden rows are an error",
        without="A copy leaves out rows that a policy hides, and nobody hears of it.",
        file="source/postgres/snapshot/source_session.py",
        edits=(('"row_security": "off"', '"row_security": "on"'),),
        noticed_by=(("integration/test_chunk_reader.py", "test_hidden_rows_are_an_error"),),
    ),
    Break(
        name="chunk-written-twice",
        guarantee="A copy is not begun anew",
        without="A chunk that a task wrote twice stands twice.",
        file="destination/postgres/targets/target_record.py",
        edits=(("    if fresh:\n", "    if fresh >= 0:\n"),),
        noticed_by=(
            (
                "contract/test_postgres.py",
                "TestPostgres::test_a_chunk_that_is_written_twice_stands_once[append]",
            ),
        ),
    ),
    Break(
        name="chunk-committed-twice",
        guarantee="A copy is not begun anew",
        without="A chunk whose receipt is committed again is committed as another one.",
        file="destination/files/destination.py",
        edits=(("if self._tree.exists(file.final):", "if not file.final:"),),
        noticed_by=(
            (
                "contract/test_files.py",
                "TestFiles::test_a_receipt_that_is_committed_twice_counts_once[parquet]",
            ),
        ),
    ),
    Break(
        name="done-chunk-not-recorded",
        guarantee="A copy is not begun anew",
        without="Finished chunks are not written to the store, and a restart reads them again.",
        file="store/copies.py",
        edits=(("            self._write_chunks(ids, done)\n", ""),),
        noticed_by=(("contract/test_store_copies.py", "TestCopies::test_progress_is_kept"),),
    ),
    Break(
        name="frozen-writer-keeps-its-chunk",
        guarantee="A copy is not begun anew",
        without="A worker that is frozen in the middle of a chunk holds it as long as it is.",
        file="destination/postgres/copying/chunk_writer.py",
        edits=(
            ('conn.execute(_END_STUCK, [session_name(self.pipeline, "copy"), _PATIENCE])', "pass"),
            ("return self._written(conn, rows, 0)", "return self._written(conn, rows, _PATIENCE)"),
        ),
        noticed_by=(
            (
                "integration/test_postgres_copy.py",
                "test_a_writer_that_is_frozen_holds_up_nobody",
            ),
        ),
    ),
    Break(
        name="copy-that-was-given-up-goes-on",
        guarantee="A copy is not begun anew",
        without="A task of a copy that was given up writes into the next one.",
        file="destination/postgres/targets/target_record.py",
        edits=(("if current != (copy,):", "if current is None:"),),
        noticed_by=(
            (
                "integration/test_postgres_copy.py",
                "test_a_task_of_a_copy_that_was_given_up_writes_nothing",
            ),
        ),
    ),
    Break(
        name="rows-of-others-removed",
        guarantee="Nobody's rows are removed",
        without="A target with rows that Penstock did not bring passes for one of its own, and is "
        "emptied.",
        file="destination/postgres/targets/target_record.py",
        edits=(
            (
                '"foreign": not (target.created or ours) and has_rows(conn, target)',
                '"foreign": False',
            ),
        ),
        noticed_by=(
            ("integration/test_postgres_copy.py", "test_rows_that_somebody_else_put_there"),
        ),
    ),
    Break(
        name="refused-objects-forgotten",
        guarantee="A whole schema is whole, or listed",
        without="What the destination refuses of a whole schema is left out without a word.",
        file="destination/postgres/whole_schema/scripts.py",
        edits=(("    return [unrestored(entry, error)]\n", "    return []\n"),),
        noticed_by=(("integration/test_full_schema.py", "test_what_cannot_be_made_is_listed"),),
    ),
    Break(
        name="what-lay-upon-it-is-lost",
        guarantee="A whole schema is whole, or listed",
        without="Indexes, comments and grants of a view that is made anew are gone.",
        file="destination/postgres/whole_schema/follow.py",
        edits=(("            self._lose(again)\n", "            continue\n"),),
        noticed_by=(
            (
                "integration/test_full_schema_steps.py",
                "test_what_lies_upon_a_changed_view_is_made_again",
            ),
        ),
    ),
    Break(
        name="half-of-a-schema",
        guarantee="A whole schema is whole, or listed",
        without="What is refused is found, and with it half of what could be made goes.",
        file="destination/postgres/whole_schema/scripts.py",
        edits=(
            (
                "        return first + restore(conn, scripts, entries[middle:])\n",
                "        return first\n",
            ),
        ),
        noticed_by=(("integration/test_full_schema.py", "test_what_cannot_be_made_is_listed"),),
    ),
)

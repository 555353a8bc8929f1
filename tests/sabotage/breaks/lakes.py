"""Breaks of destinations that merge into lakes."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="a-stale-position-of-an-idle-pipeline",
        guarantee="Once, in lakes",
        without="A driver that slept takes its successor's note for its own.",
        file="destination/families/staged_merge/stage.py",
        edits=(('    return f"{driver}{_NOTE}"', '    return f"1{_NOTE}"'),),
        noticed_by=(
            (
                "contract/test_delta.py",
                "test_a_stale_driver_that_slept_leaves_the_position_of_the_next_one",
            ),
        ),
    ),
    Break(
        name="the-copied-rows-of-another-catalogue",
        guarantee="Once, in lakes",
        without="A lake removes files that another one with the same data path has.",
        file="destination/ducklake/destination.py",
        edits=(
            (
                'return "/penstock-copies", self.pipeline, self._copies_name',
                'return "/penstock-copies", self.pipeline',
            ),
        ),
        noticed_by=(
            (
                "contract/test_ducklake.py",
                "test_another_catalogue_with_the_same_data_path_leaves_the_rows_of_the_first",
            ),
        ),
    ),
    Break(
        name="two-pipelines-that-keep-house-in-one-lake",
        guarantee="Once, in lakes",
        without="A lake's files are put together while another pipeline deletes rows in them.",
        file="destination/ducklake/lake.py",
        edits=(("if self._house is None else self._house.alone()", "if True else self._house"),),
        noticed_by=(
            (
                "contract/test_ducklake.py",
                "test_another_pipeline_keeps_house_while_rows_are_deleted",
            ),
        ),
    ),
    Break(
        name="files-of-a-commit-whose-answer-was-lost",
        guarantee="Once, in lakes",
        without="DuckLake removes files that its catalogue names from then on.",
        file="destination/ducklake/lake.py",
        edits=(("                    self._keep_files(session)\n", ""),),
        noticed_by=(
            (
                "contract/test_ducklake.py",
                "test_the_files_of_a_commit_stay_whose_answer_was_lost",
            ),
        ),
    ),
    Break(
        name="a-house-lock-of-a-frozen-process",
        guarantee="Once, in lakes",
        without="A process that is frozen while it keeps house stops all pipelines of the lake.",
        file="destination/ducklake/house_lock.py",
        edits=(("idle_in_transaction_session_timeout = '{_LEASE}'", "statement_timeout = 0"),),
        noticed_by=(("contract/test_ducklake.py", "test_a_frozen_process_does_not_keep_the_lock"),),
    ),
    Break(
        name="a-house-lock-that-was-lost",
        guarantee="Once, in lakes",
        without="Deleted rows are committed though others may have put files together meanwhile.",
        file="destination/ducklake/lake.py",
        edits=(("                    expect_locked()\n", ""),),
        noticed_by=(
            ("contract/test_ducklake.py", "test_a_delete_whose_lock_was_lost_is_not_committed"),
        ),
    ),
    Break(
        name="one-table-keeps-others-from-maintenance",
        guarantee="Once, in lakes",
        without="A table whose maintenance fails is forgotten.",
        file="destination/families/staged_merge/maintenance.py",
        edits=(("            return False\n", "            return True\n"),),
        noticed_by=(
            (
                "contract/test_delta.py",
                "test_a_table_that_fails_keeps_no_other_one_from_its_maintenance",
            ),
        ),
    ),
    Break(
        name="a-lake-with-two-drivers",
        guarantee="Once, in lakes",
        without="A Delta table takes the commit of a driver that another one has replaced.",
        file="destination/delta/commits.py",
        edits=(
            (
                'if (self.read(table, "driver") or 0) > self.driver:',
                "if self.driver < 0:",
            ),
        ),
        noticed_by=(("contract/test_delta.py", "test_a_stale_driver_is_refused_by_each_table"),),
    ),
    Break(
        name="an-iceberg-table-with-two-drivers",
        guarantee="Once, in lakes",
        without="An Iceberg table takes the commit of a driver that another one has replaced.",
        file="destination/iceberg/commits.py",
        edits=(("self.state(table).driver > self.driver:", "self.driver < 0:"),),
        noticed_by=(("contract/test_iceberg.py", "test_a_stale_driver_is_refused_by_each_table"),),
    ),
    Break(
        name="tables-that-are-ahead",
        guarantee="Once, in lakes",
        without="Nobody is told of tables that a driver which died left ahead of the others.",
        file="destination/families/staged_merge/destination.py",
        edits=(("return found.placed(ahead) if ahead else found", "return found"),),
        noticed_by=(("contract/test_delta.py", "test_a_driver_dies_among_the_tables_of_a_batch"),),
    ),
    Break(
        name="a-schema-change-that-is-done-twice",
        guarantee="Once, in lakes",
        without="After a crash all changes of a transaction are followed again, from the first.",
        file="destination/families/staged_merge/destination.py",
        edits=(
            (
                "if oid not in begun or begun[oid].position <= change.position",
                "if oid not in begun or begun[oid].position.commit_lsn",
            ),
        ),
        noticed_by=(
            (
                "contract/test_delta.py",
                "test_a_driver_dies_anywhere_in_a_transaction_that_changes_tables",
            ),
        ),
    ),
    Break(
        name="a-table-of-the-same-name",
        guarantee="Once, in lakes",
        without="A table is taken for another one that has its new name.",
        file="destination/iceberg/tables.py",
        edits=(
            (
                "if old == new or self._commits.is_there(new, oid):",
                "if old == new or self._commits.tables.find(new) is not None:",
            ),
        ),
        noticed_by=(("contract/test_iceberg.py", "test_a_name_that_another_table_has_is_refused"),),
    ),
    Break(
        name="a-table-of-somebody-else",
        guarantee="Once, in lakes",
        without="A driver that starts takes somebody else's table for one that is to be renamed.",
        file="destination/delta/commits.py",
        edits=(
            (
                'return self.read(table, "driver") is not None',
                "return table is not None",
            ),
        ),
        noticed_by=(
            ("contract/test_delta.py", "test_a_name_that_a_table_of_others_has_is_refused"),
        ),
    ),
    Break(
        name="a-chunk-that-comes-behind-another",
        guarantee="Once, in lakes",
        without="A chunk that a driver brought before it died is brought again.",
        file="destination/families/staged_merge/destination.py",
        edits=(
            (
                "if table not in self._last_noted and (mark",
                "if table in self._last_noted and (mark",
            ),
        ),
        noticed_by=(
            ("contract/test_delta.py", "test_chunks_come_again_in_another_order"),
            ("contract/test_iceberg.py", "test_chunks_come_again_in_another_order"),
        ),
    ),
    Break(
        name="a-batch-that-comes-again-in-one-process",
        guarantee="Once, in lakes",
        without="Tables are not asked how far they are where a commit to them broke off.",
        file="destination/families/staged_merge/destination.py",
        edits=(
            (
                "            self._ended.clear()\n            raise\n",
                "            raise\n",
            ),
        ),
        noticed_by=(
            ("contract/test_delta.py", "test_tables_are_not_asked_again_what_their_driver_knows"),
        ),
    ),
    Break(
        name="parked-keys-of-a-driver-that-died",
        guarantee="Once, in lakes",
        without="Rows that are to be read again are noted when their table is committed already.",
        file="destination/families/staged_merge/destination.py",
        edits=(
            (
                "        if keys:\n            with self._parking",
                "        if not keys:\n            with self._parking",
            ),
        ),
        noticed_by=(
            (
                "contract/test_delta.py",
                "test_rows_that_are_to_be_read_again_are_noted_before_their_table_is_committed",
            ),
        ),
    ),
    Break(
        name="an-idle-position-behind-a-lost-answer",
        guarantee="Once, in lakes",
        without="A commit whose answer was lost is not counted, and idle positions mean nothing.",
        file="destination/families/staged_merge/destination.py",
        edits=(
            (
                'self._commits = int(notes.get("commits", 0))',
                'self._commits = self._commits or int(notes.get("commits", 0))',
            ),
        ),
        noticed_by=(
            (
                "contract/test_delta.py",
                "test_a_commit_whose_answer_was_lost_hides_no_later_position",
            ),
        ),
    ),
    Break(
        name="unfit-values-pass",
        guarantee="Once, in lakes",
        without="A value that a type cannot hold becomes null, and nobody hears of it.",
        file="destination/families/staged_merge/typed_columns.py",
        edits=(
            (
                'if self.unfit == "refuse" or index in target.key:',
                "if index in target.key:",
            ),
        ),
        noticed_by=(
            (
                "unit/test_typed_columns.py",
                "test_what_is_unfit_is_refused_with_key_position_and_cause",
            ),
        ),
    ),
    Break(
        name="a-store-that-replaces-versions",
        guarantee="Once, in lakes",
        without="A store is taken that lets two writers write one version of a Delta table.",
        file="destination/delta/places.py",
        edits=(("        if is_replaced:\n", "        if not self.url:\n"),),
        noticed_by=(
            (
                "contract/test_delta_objects.py",
                "test_a_store_that_replaces_what_is_there_is_refused",
            ),
        ),
    ),
    Break(
        name="a-renamed-table-without-its-marks",
        guarantee="Once, in lakes",
        without="A table that is renamed in an object store forgets how far it has come.",
        file="destination/delta/tables.py",
        edits=(("self._commits.all_of(table)", "dict[str, int]()"),),
        noticed_by=(
            (
                "contract/test_delta_objects.py",
                "test_a_driver_dies_when_a_renamed_table_is_there_twice",
            ),
        ),
    ),
)

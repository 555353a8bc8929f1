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
)

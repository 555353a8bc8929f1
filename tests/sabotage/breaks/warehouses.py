"""Breaks of destinations that merge into warehouses."""

from __future__ import annotations

from tests.sabotage.a_break import Break

BREAKS = (
    Break(
        name="two-drivers-with-one-number",
        guarantee="Once, in warehouses",
        without="The driver's number is read before it is written to: two that start at the same "
        "time read the same one.",
        file="destination/families/warehouse/ledger.py",
        edits=(("is_counted = self._session.run(self._touch()) > 0", "is_counted = True"),),
        noticed_by=(
            (
                "integration/test_warehouse_drivers.py",
                "test_two_drivers_that_start_at_the_same_time_have_two_numbers",
            ),
        ),
    ),
    Break(
        name="a-commit-that-lands-late",
        guarantee="Once, in warehouses",
        without="A commit whose answer was lost, and that landed after the ledger was asked, comes "
        "again.",
        file="destination/families/staged_merge/destination.py",
        edits=(("if int(commits) != self._commits:", "if int(commits) < self._commits:"),),
        noticed_by=(
            (
                "contract/test_ducklake.py",
                "test_a_commit_whose_answer_was_lost_lands_after_the_lake_was_asked",
            ),
        ),
    ),
    Break(
        name="no-room-for-staged-rows",
        guarantee="Once, in warehouses",
        without="A table that is made anew has no table for staged rows.",
        file="destination/families/warehouse/destination.py",
        edits=(("            one_each(self.dialect.staging_table(target), self.session)\n", ""),),
        noticed_by=(
            (
                "contract/test_snowflake.py",
                "test_a_batch_is_one_transaction_with_one_merge_a_table",
            ),
        ),
    ),
    Break(
        name="blank-lines",
        guarantee="Once, in warehouses",
        without="Nothing stands for null in files: a row without values is a blank line.",
        file="destination/families/warehouse/loaded_files.py",
        edits=(("        null = own_null(path.name)\n", '        null = ""\n'),),
        noticed_by=(("contract/test_snowflake.py", "test_rows_without_a_value"),),
    ),
    Break(
        name="a-warehouse-with-two-drivers",
        guarantee="Once, in warehouses",
        without="A warehouse takes the commit of a driver that another one has replaced.",
        file="destination/families/warehouse/ledger.py",
        edits=(("            self._touch() + own, 1,", "            self._touch(), 1,"),),
        noticed_by=(
            (
                "contract/test_redshift.py",
                "test_another_driver_takes_over_in_the_middle_of_a_commit",
            ),
        ),
    ),
    Break(
        name="two-scripts-of-one-turn",
        guarantee="Once, in warehouses",
        without="A script whose answer never came commits beside the one that took its place.",
        file="destination/bigquery/ledger.py",
        edits=(
            (
                '            f" AND note = {literal(before)}",\n',
                "            f\" AND note LIKE {literal(before.partition('/')[0] + '/%')}\",\n",
            ),
        ),
        noticed_by=(
            (
                "contract/test_bigquery.py",
                "test_a_script_that_nobody_waits_for_does_not_commit_beside_its_successor",
            ),
        ),
    ),
    Break(
        name="a-script-of-a-stale-driver",
        guarantee="Once, in warehouses",
        without="BigQuery takes the script of a driver that another one has replaced.",
        file="destination/bigquery/ledger.py",
        edits=(('            f" AND note = {literal(before)}",\n', '"",\n'),),
        noticed_by=(
            (
                "contract/test_bigquery.py",
                "test_another_driver_takes_over_in_the_middle_of_a_commit",
            ),
        ),
    ),
    Break(
        name="an-answer-of-bigquery-that-is-lost",
        guarantee="Once, in warehouses",
        without="A job whose answer was lost is not asked for, and its batch counts as failed.",
        file="destination/bigquery/session.py",
        edits=(("        except exceptions.Conflict:\n", "        except exceptions.NotFound:\n"),),
        noticed_by=(
            (
                "contract/test_bigquery.py",
                "test_an_answer_that_is_lost_is_asked_for_by_the_name_of_the_job",
            ),
        ),
    ),
    Break(
        name="a-slice-with-the-mark-of-all",
        guarantee="Once, in warehouses",
        without="A batch in slices is several scripts: a driver that dies between them loses rows.",
        file="destination/bigquery/destination.py",
        edits=(("        if not is_next_slice and self.", "        if self."),),
        noticed_by=(
            ("contract/test_bigquery.py", "test_a_batch_that_is_merged_in_slices_is_one_script"),
        ),
    ),
    Break(
        name="changes-of-a-batch-without-its-position",
        guarantee="Once, in warehouses",
        without="Changes are committed before the position: those of a lost commit come twice.",
        file="destination/families/warehouse/destination.py",
        edits=(
            (
                "self._merge(rows.target).apply(rows)",
                "self._merge(rows.target).apply(rows); self.session.commit(); self.session.begin()",
            ),
        ),
        noticed_by=(
            ("contract/test_redshift.py", "test_every_change_stands_once_whatever_is_lost"),
        ),
    ),
    Break(
        name="rows-before-a-schema-change-come-again",
        guarantee="Once, in warehouses",
        without="What was committed because a table is changed behind it leaves no mark.",
        file="destination/families/warehouse/destination.py",
        edits=(
            (
                "for oid, mark in self._applied.items()",
                "for oid, mark in dict[int, Mark]().items()",
            ),
        ),
        noticed_by=(
            (
                "contract/test_snowflake.py",
                "test_a_driver_dies_at_every_statement_around_a_schema_change",
            ),
        ),
    ),
    Break(
        name="a-value-for-older-rows-and-a-crash",
        guarantee="Once, in warehouses",
        without="A driver that dies between a column and the values of older rows leaves nulls.",
        file="destination/families/warehouse/tables.py",
        edits=((" and not is_filled\n", "\n"),),
        noticed_by=(
            (
                "contract/test_bigquery.py",
                "test_a_driver_dies_at_every_job_around_a_schema_change",
            ),
        ),
    ),
    Break(
        name="a-schema-change-taken-for-another",
        guarantee="Once, in warehouses",
        without="One schema change of a table that is done stands for the next one, too.",
        file="destination/families/warehouse/done_changes.py",
        edits=((">= self.position\n", ">= Position(0, 0)\n"),),
        noticed_by=(
            ("contract/test_snowflake.py", "test_a_transaction_comes_again_with_a_table_more"),
        ),
    ),
    Break(
        name="a-schema-change-of-every-table",
        guarantee="Once, in warehouses",
        without="What was done with one table of a transaction counts for a table that is behind.",
        file="destination/families/warehouse/done_changes.py",
        edits=(
            ('    return f"{_COUNT}/{table}/"\n', '    return f"{_COUNT}/all/"\n'),
            (">= self.position\n", ">= Position(0, 0)\n"),
        ),
        noticed_by=(
            (
                "contract/test_snowflake.py",
                "test_a_transaction_comes_again_without_a_table_that_was_refused",
            ),
            ("contract/test_snowflake.py", "test_a_transaction_comes_again_with_a_table_more"),
        ),
    ),
    Break(
        name="what-an-older-version-counted",
        guarantee="Once, in warehouses",
        without="A count of an older version is believed whatever the table looks like.",
        file="destination/families/warehouse/tables.py",
        edits=((" or not self._is_there(self._before, there)\n", " or True\n"),),
        noticed_by=(
            (
                "contract/test_snowflake.py",
                "test_what_an_older_version_counted_of_a_refused_table_is_not_believed",
            ),
        ),
    ),
    Break(
        name="a-transaction-under-another-number",
        guarantee="Once, in warehouses",
        without="Rows come twice where another commit comes between two tries of a transaction.",
        file="destination/families/staged_merge/destination.py",
        edits=(("(held.lacking > 0 or oid in begun)", "(oid in begun)"),),
        noticed_by=tuple(
            (
                f"contract/test_{name}.py",
                "test_another_commit_comes_between_two_tries_of_a_schema_change",
            )
            for name in ("snowflake", "delta", "iceberg")
        ),
    ),
    Break(
        name="a-parked-key-before-a-schema-change",
        guarantee="Once, in warehouses",
        without="A row that is to be read again is forgotten if its batch is committed in parts.",
        file="destination/families/warehouse/destination.py",
        edits=(("            if parked:\n", "            if not self.pipeline:\n"),),
        noticed_by=(
            (
                "contract/test_bigquery.py",
                "test_a_parked_key_is_noted_with_the_rows_that_are_committed",
            ),
        ),
    ),
    Break(
        name="a-name-that-is-not-free",
        guarantee="Once, in warehouses",
        without="A table cannot have the name of one that stayed when it was followed no longer.",
        file="destination/families/kept_tables.py",
        edits=(('                notes[f"table/{table.oid}"] = None\n', ""),),
        noticed_by=(
            ("contract/test_snowflake.py", "test_a_table_takes_the_name_of_one_that_stayed"),
        ),
    ),
    Break(
        name="a-name-that-is-handed-on",
        guarantee="Once, in warehouses",
        without="What a transaction made of a table does not count before it is committed.",
        file="destination/families/warehouse/destination.py",
        edits=(("(self._known() | self._made)", "self._known()"),),
        noticed_by=(("contract/test_snowflake.py", "test_a_name_is_handed_on_in_one_transaction"),),
    ),
    Break(
        name="a-table-in-the-place-of-another",
        guarantee="Once, in warehouses",
        without="A table that is renamed is dropped where another one has the name and columns.",
        file="destination/families/warehouse/tables.py",
        edits=(("            self._expect_own(session, marks)\n", ""),),
        noticed_by=(
            (
                "contract/test_snowflake.py",
                "test_a_table_does_not_take_the_place_of_one_that_stayed",
            ),
            (
                "contract/test_bigquery.py",
                "test_a_table_does_not_take_the_place_of_one_that_stayed",
            ),
        ),
    ),
    Break(
        name="a-driver-that-slept-in-a-schema-change",
        guarantee="Once, in warehouses",
        without="A driver that another one has replaced drops the table of that one.",
        file="destination/families/warehouse/destination.py",
        edits=(
            (
                "        in_transaction = self.session.in_transaction\n",
                "        in_transaction = True\n",
            ),
        ),
        noticed_by=(
            (
                "contract/test_bigquery.py",
                "test_a_driver_that_slept_in_a_schema_change_drops_no_table_of_the_next_one",
            ),
        ),
    ),
    Break(
        name="blanks-at-the-end-of-a-key",
        guarantee="Once, in warehouses",
        without="Two rows whose keys differ in blanks at their ends are one to Redshift.",
        file="destination/redshift/dialect.py",
        edits=(('        if held == "text":\n', '        if held == "no such":\n'),),
        noticed_by=(("unit/test_redshift.py", "test_blanks_at_the_end_of_a_key_count"),),
    ),
    Break(
        name="a-text-that-is-cut",
        guarantee="Once, in warehouses",
        without="A text that is too long for a warehouse is cut, and nobody hears of it.",
        file="destination/families/warehouse/checked_texts.py",
        edits=(("    if not nearest or not unfit.any():\n", "    if not unfit.any():\n"),),
        noticed_by=(
            (
                "unit/test_checked_texts.py",
                "test_a_text_is_cut_between_characters_and_only_if_asked_to",
            ),
        ),
    ),
    Break(
        name="an-idle-pipeline-wakes-the-warehouse",
        guarantee="Once, in warehouses",
        without="Every look whether the destination is there asks the warehouse itself.",
        file="destination/families/warehouse/destination.py",
        edits=(("        if self._was_checked:\n", "        if not self.options:\n"),),
        noticed_by=(("contract/test_redshift.py", "test_a_commit_without_rows_sends_nothing"),),
    ),
    Break(
        name="sums-that-are-not-compared",
        guarantee="What is there can be proven",
        without="`penstock verify` counts a warehouse's rows, and takes other values for equal.",
        file="verify/engine_sums.py",
        edits=(("    if here == there:\n", "    if here.rows == there.rows:\n"),),
        noticed_by=(("integration/test_warehouses.py", "test_verify"),),
    ),
)

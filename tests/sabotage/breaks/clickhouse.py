"""Breaks of versioned rows: the `clickhouse` destination."""

from __future__ import annotations

from tests.sabotage.a_break import Break

_GUARANTEE = "Of two versions of a row the older loses"
_FAULTS = "contract/test_clickhouse_faults.py"

BREAKS = (
    Break(
        name="clickhouse-version-without-lsn",
        guarantee=_GUARANTEE,
        without="A batch that comes again writes over what came after it.",
        file="destination/clickhouse/rows.py",
        edits=(
            (
                "bitShiftLeft(toUInt128({commit_lsn}), 64) + toUInt128({ordinal})",
                "toUInt128({commit_lsn}) * 0 + toUInt128({ordinal})",
            ),
        ),
        noticed_by=(
            (
                "contract/test_clickhouse.py",
                "TestClickHouse::test_of_two_writes_of_a_row_the_older_one_loses",
            ),
        ),
    ),
    Break(
        name="clickhouse-changes-that-come-again",
        guarantee=_GUARANTEE,
        without="A change that comes again in another batch stands twice in its change table.",
        file="destination/clickhouse/changes.py",
        edits=(
            (
                'pa.repeat("", rows.num_rows)',
                "pa.repeat(str(id(rows)), rows.num_rows)",
            ),
        ),
        noticed_by=(("contract/test_clickhouse.py", "test_changes_that_come_again_stand_once"),),
    ),
    Break(
        name="clickhouse-tasks-without-a-fence",
        guarantee=_GUARANTEE,
        without="Tasks of a driver that was replaced go on writing.",
        file="destination/clickhouse/rows.py",
        edits=(("if self._driver is None else", "if self._driver is not None else"),),
        noticed_by=((_FAULTS, "test_what_a_stale_driver_and_its_tasks_write_is_refused"),),
    ),
    Break(
        name="clickhouse-a-driver-s-number-again",
        guarantee=_GUARANTEE,
        without="A driver from before the ledger was forgotten has the number of the new one.",
        file="destination/clickhouse/ledger.py",
        edits=(("[time.time_ns() // 1000, *(", "[1, *("),),
        noticed_by=((_FAULTS, "test_no_two_drivers_have_one_number"),),
    ),
    Break(
        name="clickhouse-a-copy-into-the-same-table",
        guarantee=_GUARANTEE,
        without="What an earlier copy still writes gets into the one that follows it.",
        file="destination/clickhouse/destination.py",
        edits=(("number = self._whereabouts(target.oid).made + 1", "number = 1"),),
        noticed_by=(
            (
                _FAULTS,
                "test_a_copy_is_seen_when_it_is_whole_and_an_older_one_gets_nothing_in",
            ),
        ),
    ),
)

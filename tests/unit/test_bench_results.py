from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.results import Measurement, percentile, ratio, summarise, write_results
from bench.results_table import cells, print_table

pytestmark = pytest.mark.release

REFERENCE = Measurement("w1", "pg_recvlogical", 1000, 1.0, 0.002, 0.005, 14.0)
CAPTURE = Measurement("w1", "capture", 1000, 0.8, 0.001, 0.004, 120.0)


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (50, 50), (98.5, 99), (99, 99), (100, 100)]
)
def test_percentile_is_a_value_that_was_seen(percent: float, expected: int) -> None:
    assert percentile(reversed(range(1, 101)), percent) == expected


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.5], 50) == percentile([7.5], 99) == 7.5


def test_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_ratio_applies_only_with_a_reference() -> None:
    assert ratio(230.0, 200.0) == 1.15
    assert ratio(230.0, None) is None
    assert ratio(None, 200.0) is None


def test_an_entry_has_the_promised_keys_and_per_million_figures() -> None:
    reference, capture = summarise([REFERENCE, CAPTURE], scale=0.5)
    assert reference["ratio_to_pg_recvlogical"] == 1.0
    assert capture["workload"] == "w1"
    assert capture["system"] == "capture"
    assert capture["rows_per_s"] == 1250
    assert capture["ratio_to_pg_recvlogical"] == 1.25
    assert capture["cpu_s_per_million"] == 1.0
    assert capture["server_cpu_s_per_million"] == 4.0
    assert capture["peak_rss_mb"] == 120.0
    assert capture["p50_ms"] is None
    assert capture["p99_ms"] is None
    assert capture["scale"] == 0.5


def test_rounds_give_medians_and_the_worst_memory_and_are_kept() -> None:
    rounds = [
        replace(CAPTURE, seconds=seconds, peak_rss_mb=rss)
        for seconds, rss in ((0.5, 100.0), (2.0, 150.0), (0.8, 110.0))
    ]
    (entry,) = summarise(rounds, scale=1.0)
    assert entry["rows_per_s"] == 1250
    assert entry["peak_rss_mb"] == 150.0
    assert [one["rows_per_s"] for one in entry["rounds"]] == [2000, 500, 1250]


def test_a_ratio_is_never_taken_across_workloads() -> None:
    entries = summarise([REFERENCE, replace(CAPTURE, workload="w4")], scale=1.0)
    assert entries[1]["ratio_to_pg_recvlogical"] is None


def test_phases_are_entries_of_their_own_with_ratios_of_their_own() -> None:
    native = replace(REFERENCE, system="native_subscription", seconds=2.0)
    ours = replace(REFERENCE, system="postgres")
    entries = summarise(
        [native, ours, replace(native, phase="update"), replace(ours, phase="update", seconds=4.0)],
        scale=1.0,
    )
    assert [(entry["phase"], entry["ratio_to_native"]) for entry in entries] == [
        (None, 1.0),
        (None, 2.0),
        ("update", 1.0),
        ("update", 0.5),
    ]
    assert cells(entries[3])[:5] == ["w1 update", "postgres", "250", "-", "0.50"]


def test_who_writes_no_table_is_not_compared_with_native_replication() -> None:
    native = replace(REFERENCE, system="native_subscription")
    assert [entry["ratio_to_native"] for entry in summarise([native, CAPTURE], scale=1.0)] == [
        1.0,
        None,
    ]


def test_a_steady_load_has_no_ratio() -> None:
    (entry,) = summarise([replace(REFERENCE, p50_ms=3.0)], scale=1.0)
    assert entry["ratio_to_pg_recvlogical"] is None


def test_the_share_of_memory_is_the_worst_of_the_rounds_that_have_one() -> None:
    rounds = [replace(CAPTURE, peak_pss_mb=pss) for pss in (None, 80.0, 70.0)]
    assert summarise(rounds, scale=1.0)[0]["peak_pss_mb"] == 80.0
    assert summarise([CAPTURE], scale=1.0)[0]["peak_pss_mb"] is None


def test_peak_memory_of_parts_is_the_worst_of_each() -> None:
    rounds = [replace(CAPTURE, rss_mb={"jvm": jvm, "workers": 5.0}) for jvm in (400.0, 300.0)]
    (entry,) = summarise(rounds, scale=1.0)
    assert entry["rss_mb"] == {"jvm": 400.0, "workers": 5.0}


def test_cells_show_a_dash_where_a_figure_does_not_apply() -> None:
    (entry,) = summarise(
        [replace(CAPTURE, changes=1_000_000, p50_ms=41.6, peak_pss_mb=119.6)], scale=1.0
    )
    assert cells(entry) == ["w1", "capture", "1,250,000", "-", "-", "0.00", "120", "42", "-"]


def test_without_a_terminal_the_table_is_plain_and_whole() -> None:
    out = io.StringIO()
    print_table(summarise([REFERENCE, CAPTURE], scale=1.0), Console(file=out, width=20))
    lines = out.getvalue().splitlines()
    assert lines[0].split()[:4] == ["workload", "system", "rows/s", "ratio"]
    assert lines[2].split()[:4] == ["w1", "capture", "1,250", "1.25"]
    assert out.getvalue().isascii()


def test_in_a_terminal_of_80_columns_nothing_is_cut_off() -> None:
    out = io.StringIO()
    large = replace(REFERENCE, system="native_subscription", phase="update", changes=345_678)
    slow = replace(large, workload="w3", phase=None, p50_ms=1234.0, p99_ms=12345.0)
    print_table(
        summarise([large, slow], scale=1.0),
        Console(file=out, width=80, force_terminal=True, no_color=True),
    )
    assert "…" not in out.getvalue()
    assert "345,678" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 3


COPIES = [
    Measurement("copy", "psql_copy_binary_2", 1000, 1.0, 0.1, 0.5, 14.0),
    Measurement("copy", "spark_jdbc", 1000, 4.0, 4.0, 0.5, 900.0),
    Measurement(
        "copy", "discard", 1000, 2.0, 1.0, 0.5, 900.0, chunk_seconds=2.0, peak_pss_mb=700.0
    ),
    Measurement("copy", "psql_copy_pipe", 1000, 5.0, 0.2, 0.5, 14.0),
    Measurement("copy", "postgres", 1000, 4.0, 0.5, 0.5, 700.0, chunk_seconds=2.5),
]


def test_copies_are_compared_with_those_who_do_the_same() -> None:
    ratios = ("ratio_to_psql_copy", "ratio_to_spark_jdbc", "ratio_to_psql_pipe")
    entries = summarise(COPIES, scale=1.0)
    assert [[entry[ratio] for ratio in ratios] for entry in entries] == [
        [1.0, None, None],
        [0.25, 1.0, None],
        [0.5, 2.0, None],
        [None, None, 1.0],
        [None, None, 1.25],
    ]
    assert entries[4]["rows_per_s"] == 250
    assert entries[4]["chunk_rows_per_s"] == 400
    assert cells(entries[2]) == [
        *("copy", "discard", "500", "-", "0.50", "2.00", "-", "-", "1000.00", "700")
    ]


def test_copies_of_many_tables_count_tables() -> None:
    (entry,) = summarise(
        [Measurement("copy_small", "postgres", 5000, 4.0, 1.0, 1.0, 9.0, tables=100)], scale=0.1
    )
    assert entry["tables_per_s"] == 25.0
    assert cells(entry)[:4] == ["copy_small", "postgres", "1,250", "25"]


def test_copies_have_a_table_of_their_own() -> None:
    out = io.StringIO()
    entries = summarise([REFERENCE, *COPIES, replace(REFERENCE, workload="w4")], scale=1.0)
    print_table(
        entries, Console(file=out, width=80, force_terminal=True, no_color=True, highlight=False)
    )
    lines = out.getvalue().splitlines()
    assert "…" not in out.getvalue()
    assert [line.split()[0] for line in lines if "psql_copy_pipe" in line] == ["copy"]
    assert ["tables/s" in line for line in lines].count(True) == 1
    assert ["p99" in line for line in lines].count(True) == 1


def test_results_replace_only_what_was_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    write_results(path, summarise([REFERENCE, CAPTURE], scale=1.0))
    write_results(path, summarise([replace(REFERENCE, changes=2000)], scale=1.0))
    write_results(path, summarise([replace(CAPTURE, phase="insert")], scale=1.0))
    write_results(path, summarise([CAPTURE], scale=4.0))
    found = json.loads(path.read_text())
    keys = ("system", "phase", "scale", "rows")
    assert [tuple(entry[key] for key in keys) for entry in found] == [
        ("pg_recvlogical", None, 1.0, 2000),
        ("capture", None, 1.0, 1000),
        ("capture", "insert", 1.0, 1000),
        ("capture", None, 4.0, 1000),
    ]
    assert [entry.name for entry in path.parent.iterdir()] == ["latest.json"]

"""Traces are told from lines that matter."""

from __future__ import annotations

from penstock.spark.trace_lines import TraceLines

PYTHON = """\
Traceback (most recent call last):
  File "worker.py", line 7, in main
    process()
    ^^^^^^^^^
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 9, in main
    raise SystemExit(1)
RuntimeError: b
"""
JAVA = """\
org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.hasNext(PythonRunner.scala:596)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.IOException: gone
\t... 34 more
"""


def kept(text: str) -> list[str]:
    is_trace = TraceLines()
    return [line for line in text.splitlines() if not is_trace(line.encode() + b"\n")]


def test_traces_go_and_the_rest_stays() -> None:
    first, last = "a line that matters", "java is fine: at home (really)"
    assert kept(f"{first}\n{PYTHON}{last}\n{JAVA}{first}\n") == [first, last, first]


def test_empty_lines_stay_where_no_trace_is() -> None:
    assert kept("a\n\n  b\n") == ["a", "", "  b"]

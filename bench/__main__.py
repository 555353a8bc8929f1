"""Entry point of `make bench`; docs/benchmarks.md says what is measured and how."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from bench.backlog import BacklogBench
from bench.results import Measurement, summarise, write_results
from bench.results_table import print_table
from bench.server import SETTINGS, BenchError, bench_database
from bench.settings import RESULTS, Settings
from bench.steady import SteadyBench, steady_seconds
from bench.warm_spark import WarmSpark
from bench.workloads import backlog, w1
from penstock.cli.terminal import say, show_error
from penstock.demo.embedded_postgres import EmbeddedPostgres
from penstock.errors import PenstockError

_WARM_UP_SCALE = 0.1
# At full scale: the table, its WAL, what the server spills while it decodes, and one change log.
_GIGABYTES = {"w1": 4, "w2": 12, "w3": 1, "w4": 4}


def main() -> int:
    try:
        settings = Settings.of(os.environ)
        _require_disk(settings, Path(tempfile.gettempdir()))
        _measure(settings)
    except PenstockError as error:
        show_error(error.message, error.remedy)
        return 1
    except psycopg.Error as error:
        show_error(
            f"The embedded Postgres failed: {str(error).strip()}.",
            "Run it again; a full disk or lack of memory are the usual causes.",
        )
        return 1
    except KeyboardInterrupt:
        say("stopped; nothing that the benchmark started is left")
        return 130
    return 0


def _require_disk(settings: Settings, folder: Path) -> None:
    """Workloads come one after another and leave nothing, so the largest counts."""
    needed = 1 + settings.scale * max(_GIGABYTES[name] for name in settings.workloads)
    free = shutil.disk_usage(folder).free / 1e9
    if free < needed:
        raise BenchError(
            f"The benchmark needs about {needed:.0f} GB in {folder}; {free:.1f} GB are free.",
            remedy="Set TMPDIR to a folder on a larger disk, or take a smaller SCALE.",
        )


def _measure(settings: Settings) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        server = stack.enter_context(EmbeddedPostgres(settings=SETTINGS))
        say(
            f"Postgres {server.version} on this machine's {os.cpu_count()} cores, "
            + ", ".join(f"{name} {value}" for name, value in SETTINGS.items())
        )
        spark = None
        if "discard" in settings.systems:
            spark = stack.enter_context(WarmSpark(folder))
            _warm_up(server, folder, spark)
        measurements: list[Measurement] = []
        others: list[dict[str, Any]] = []
        for name in settings.workloads:
            if name == "w3" and spark is None:
                say("w3 is left out: it needs discard in SYSTEMS")
                continue
            with bench_database(server, f"bench_{name}", folder) as database:
                if name == "w3" and spark is not None:
                    measured, idle = SteadyBench(database, spark).run(
                        steady_seconds(settings.scale), settings.scale, say
                    )
                    measurements += measured
                    others.append(idle)
                else:
                    bench = BacklogBench(database, backlog(name, settings.scale), spark)
                    measurements += bench.run(settings, settings.rounds_of(name), say)
            # After each, so that a run that is stopped later has not measured in vain.
            write_results(RESULTS, summarise(measurements, settings.scale) + others)
    print_table(summarise(measurements, settings.scale) + others)
    say(f"written to {os.path.relpath(RESULTS)}")


def _warm_up(server: EmbeddedPostgres, folder: Path, spark: WarmSpark) -> None:
    """Let the JVM compile and the workers start; nothing of it is reported."""
    with bench_database(server, "bench_warm_up", folder) as database:
        only = Settings(systems=("discard",))
        for _ in BacklogBench(database, w1(_WARM_UP_SCALE), spark).run(only, 1, lambda _text: None):
            pass
    say("Spark is warm")


if __name__ == "__main__":
    sys.exit(main())

"""`make chaos`: seeds one after another, each with its own servers; goes on where it stopped.

Everything is told by the environment, as make passes it on: ``SEEDS`` (how many), ``FIRST`` (from
which on), ``KILLS`` (faults a seed), ``SEED`` (this one alone, whatever is recorded). ``COPY=1``
brings the faults over copies of full tables, ``TABLES=1`` lets tables come, go and be copied anew,
``SCHEMA=1`` lets them change, with ``TRUST=1`` servers, files, disks and the clock are not what
they were, with ``OBJECTS=1`` the change log is in an object store, which dies and fails as well,
with ``CLUSTER=1`` tasks run on a Spark cluster besides, whose master, workers and executors die,
with ``TRANSFORM=1`` rules change all keys of ten tables that refer to each other.
These are into Postgres; ``INTO=kafka`` delivers to a Kafka broker, which dies as well,
``INTO=kinesis`` to Kinesis, whose records fail, ``INTO=rabbitmq`` to RabbitMQ, which dies, blocks
and is cut off, ``INTO=files`` to files. A destination has seeds where this folder has a
file NAME_seed.py with a function ``run_into``.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import SeedInto, SeedReport, run_seed
from tests.crash.cluster_seed import run_cluster_seed
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.crash.objects_seed import run_objects_seed
from tests.crash.outage import run_outage
from tests.crash.schema_seed import run_schema_seed
from tests.crash.table_seed import run_table_seed
from tests.crash.transform_seed import run_transform_seed
from tests.crash.trust_seed import run_trust_seed
from tests.fix_postgres import SETTINGS

# Below the repository's root, where make runs this.
_FOLDER = Path(".cache", "chaos")
_RESULTS = _FOLDER / "results.jsonl"
_KILLS = 10
_MODES = ("COPY", "TABLES", "SCHEMA", "TRUST", "OBJECTS", "CLUSTER", "TRANSFORM")
_RUNS = {
    "TABLES=1": run_table_seed,
    "SCHEMA=1": run_schema_seed,
    "TRUST=1": run_trust_seed,
    "OBJECTS=1": run_objects_seed,
    "TRANSFORM=1": run_transform_seed,
    "CLUSTER=1": run_cluster_seed,
}
"""What runs a seed, for those modes that have something of their own."""
_SEEDS = sorted(Path(__file__).parent.glob("*_seed.py"))
_OUTAGE = "outage"
"""Stands where a seed's number stands, for the destination that is away for two minutes."""

Result = dict[str, Any]


def _mode() -> str:
    """Which kind of seeds: what asks for it (``COPY=1``, ``INTO=kafka``), or nothing."""
    into = os.environ.get("INTO") or ""
    if into:
        return f"INTO={into}"
    return next((f"{name}=1" for name in _MODES if os.environ.get(name)), "")


def seeds_into() -> list[str]:
    """The destinations that have seeds of their own."""
    return sorted(
        file.stem.removesuffix("_seed") for file in _SEEDS if "def run_into(" in file.read_text()
    )


def find_seed(name: str) -> SeedInto:
    """What runs a seed into this destination. Raises ValueError where nothing does."""
    if name not in seeds_into():
        raise ValueError(f"INTO={name}: there are seeds into {', '.join(seeds_into())}")
    run: SeedInto = importlib.import_module(f"tests.crash.{name}_seed").run_into
    return run


def main() -> int:
    kills = int(os.environ.get("KILLS") or _KILLS)
    if into := os.environ.get("INTO"):
        find_seed(into)
    commit = code_version()
    if only := os.environ.get("SEED"):
        return summarise([run_and_record(only, kills, commit)])
    first = int(os.environ.get("FIRST") or 1)
    numbers = range(first, first + int(os.environ.get("SEEDS") or 1))
    wanted = [*map(str, numbers), *([] if _mode() else [_OUTAGE])]
    done = finished(commit, kills)
    if skipped := [seed for seed in wanted if seed in done]:
        print(f"recorded for {commit} already: {', '.join(skipped)}")
    for seed in wanted:
        if seed not in done:
            done[seed] = run_and_record(seed, kills, commit)
    return summarise([done[seed] for seed in wanted])


def run_and_record(seed: str, kills: int, commit: str) -> Result:
    """Run one seed; its folder stays where it failed."""
    _say(f"seed {seed}")
    kind = _mode().removesuffix("=1").removeprefix("INTO=").lower()
    folder = _FOLDER / "-".join(filter(None, ("seed", kind, seed)))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = SeedReport(seed)
    began = time.monotonic()
    failure = _run(report, kills, folder.resolve())
    result = {
        **vars(report),
        "outcome": "failed" if failure else "equal",
        "kills": kills,
        "mode": _mode(),
        "commit": commit,
        "seconds": round(time.monotonic() - began),
    }
    with _RESULTS.open("a") as file:
        file.write(json.dumps(result) + "\n")
    if failure:
        (folder / "failure.txt").write_text(failure)
        _say(f"{failure}seed {seed}: FAILED; its logs are in {folder}")
        _say(f"replay it: {_replay(result)}")
    else:
        shutil.rmtree(folder)
        _say(
            f"seed {seed}: equal in {result['seconds']} s; {report.transactions} transactions, "
            f"{report.rows} rows in the end, {report.states} states seen in {report.polls} polls"
            f"{_chunks(report)}"
        )
    return result


def _chunks(report: SeedReport) -> str:
    if not report.chunk_reads:
        return ""
    return f"; {report.chunk_reads} chunks read, none of {report.chunks_kept} again that were done"


def _run(report: SeedReport, kills: int, folder: Path) -> str:
    """Why it failed, or nothing."""
    settings = {**SETTINGS, **SERVER_SETTINGS}
    with (
        EmbeddedPostgres(settings=settings) as source,
        EmbeddedPostgres(settings=settings) as target,
    ):
        try:
            if report.seed == _OUTAGE:
                seconds = float(os.environ.get("PENSTOCK_OUTAGE_SECONDS") or 120)
                run_outage(report, (source, target), folder, seconds, _say)
            elif into := os.environ.get("INTO"):
                find_seed(into)(report, kills, source, folder, _say)
            elif run := _RUNS.get(_mode()):
                run(report, kills, (source, target), folder, _say)
            else:
                copies = _mode() == "COPY=1"
                run_seed(report, kills, (source, target), folder, _say, copies=copies)
        except (KeyboardInterrupt, SystemExit):
            raise
        # What pytest raises for a failed wait is no Exception.
        except BaseException:
            for name, server in (("source", source), ("destination", target)):
                shutil.copyfile(server.log_path, folder / f"{name}.log")
            return traceback.format_exc()
    return ""


def finished(commit: str, kills: int) -> dict[str, Result]:
    """What is recorded for this very code, by seed; the latest counts."""
    if not _RESULTS.exists():
        return {}
    results = map(json.loads, _RESULTS.read_text().splitlines())
    return {
        result["seed"]: result
        for result in results
        if (result["commit"], result["kills"], result.get("mode", "")) == (commit, kills, _mode())
    }


def code_version() -> str:
    """The commit, with a hash of what differs from it: results count for the code that ran."""
    commit = _git("rev-parse", "--short", "HEAD").strip()
    changed = _git("status", "--porcelain", "--", "src", "tests")
    if not changed:
        return commit
    difference = changed + _git("diff", "HEAD", "--", "src", "tests")
    return f"{commit}+{hashlib.sha256(difference.encode()).hexdigest()[:8]}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def summarise(results: list[Result]) -> int:
    """Say how all of them ended; the exit code."""
    failed = [result for result in results if result["outcome"] != "equal"]
    faults = sum(len(result["faults"]) for result in results)
    seconds = sum(result["seconds"] for result in results)
    _say(
        f"{len(results)} runs, {faults} faults in {seconds} s: "
        f"{len(results) - len(failed)} equal, {len(failed)} failed"
    )
    for result in failed:
        _say(f"  failed: {_replay(result)}")
    return 1 if failed else 0


def _replay(result: Result) -> str:
    kills = f" KILLS={result['kills']}" if result["kills"] != _KILLS else ""
    mode = f" {result['mode']}" if result["mode"] else ""
    return f"make chaos SEED={result['seed']}{kills}{mode}"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

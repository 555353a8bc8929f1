"""A copy of full tables under writes, whose every process is killed in the middle of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.copied_tables import KEYED
from tests.crash.faults import COPY_FAULTS
from tests.crash.into_copied import IntoCopied
from tests.crash.into_postgres import SERVER_SETTINGS
from tests.crash.passed_failpoints import copy_failpoints
from tests.crash.penstock_run import PATIENCE
from tests.fix_pipeline import wait_until
from tests.fix_postgres import FreshServer

pytestmark = pytest.mark.slow

NAMES = copy_failpoints("postgres")
# At which pass; the counts begin anew with each process that died.
PASSES = {
    "copy.read": 4,
    "copy.written": 3,
    "postgres.copy_chunk_written": 2,
    "postgres.copy_truncated": 2,
}
# Failpoints kill a worker and the driver.
KINDS = ("worker", "snapshot holder", "capture", "driver", "JVM")
SOME_KINDS = ("snapshot holder",)


@pytest.mark.parametrize(
    "kinds",
    [SOME_KINDS, pytest.param(KINDS, marks=pytest.mark.release)],
    ids=["some", "every"],
)
def test_what_is_copied_is_not_copied_again(
    fresh_server: FreshServer, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    servers = fresh_server(**SERVER_SETTINGS), fresh_server(**SERVER_SETTINGS)
    chance = random.Random(5)
    fired = tmp_path / "fired"
    fired.mkdir()
    kills = {
        "PENSTOCK_FAILPOINTS": ",".join(f"{name}=kill:{PASSES[name]}" for name in NAMES),
        "PENSTOCK_FAILPOINT_DIR": str(fired),
    }
    with IntoCopied(*servers, tmp_path, seed=5) as injured:
        injured.load.start()
        # Dies when two targets are empty, and nothing says which snapshot is theirs.
        injured.start(**kills)
        injured.run.wait_gone()
        assert injured.run.exit_code == -9, injured.run.output[-3000:]

        injured.start(**kills)
        wait_until(
            lambda: {path.name for path in fired.iterdir()} == set(NAMES),
            "it died at each of them",
            PATIENCE,
        )
        for kind in kinds:
            _wait_chunks(injured, chance.randint(1, 4))
            injured.reads.mark()
            COPY_FAULTS[f"{kind} killed"](injured, 0.0)
        _wait_chunks(injured, 1)
        injured.reads.mark()
        injured.settle()
        injured.verify()
        injured.run.stop()
        injured.check_all()
        # There were some that could have been.
        assert injured.reads.kept > 2 * len(kinds)


def _wait_chunks(injured: IntoCopied, count: int) -> None:
    """Wait until so many more chunks are done that will not be copied again."""
    before = injured.chunks_done(*KEYED)

    def copied() -> bool:
        injured.check_alive()
        return injured.chunks_done(*KEYED) >= before + count

    wait_until(copied, f"{count} more chunks are copied", PATIENCE)

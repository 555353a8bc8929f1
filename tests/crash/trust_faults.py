"""What happens to a pipeline whose servers are not what they were, and to the machine below it.

Each fault leaves the pipeline running: it has gone on by itself, or it was refused with a message
that names the cause, and its remedy was followed. ``amount``, from 0 to 1, is which way, and how
long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import psycopg

from tests.crash.faults import FAULTS
from tests.crash.into_trusted import SILENCE_SECONDS, IntoTrusted
from tests.crash.machine_faults import (
    fill_log_disk,
    fill_target_disk,
    jump_clock,
    lose_machine,
    tear_file,
)
from tests.crash.penstock_run import PATIENCE
from tests.crash.refusals import expect_refused, follow, overcome
from tests.fix_pipeline import wait_until
from tests.physical_copies import demote, image_of, promote, restore
from tests.tcp_proxy import TcpProxy
from tests.workload_tables import INSERT_ONLY, TABLES

Fault = Callable[[IntoTrusted, float], str]

_LONGEST_STANDBY_SECONDS = 3.0
# More WAL than a restored source writes before anybody looks at it.
_FILLER = "SELECT pg_logical_emit_message(true, 'filler', repeat('x', 4000000))"
_WENT_BACK = "went back|left timeline|not in the history|another source|no publication and slot"
_EVERYTHING = "insert, update, delete, truncate"


def _fall_silent(
    network_of: Callable[[IntoTrusted], TcpProxy], injured: IntoTrusted, amount: float
) -> str:
    """What was connected stays so, and nothing passes any more; after a while others may."""
    seconds = amount * 2 * SILENCE_SECONDS
    network = network_of(injured)
    network.swallow()
    time.sleep(seconds)
    network.accept()
    said = overcome(injured, "nothing: it has to connect anew")
    return f"others after {seconds:.1f} s; {said}"


def _source_network(injured: IntoTrusted) -> TcpProxy:
    return injured.source_network


def _target_network(injured: IntoTrusted) -> TcpProxy:
    return injured.target_network


def _restore_source(injured: IntoTrusted, amount: float) -> str:
    """Less than was delivered, with the same timeline or a new one; the image is of now, or of the
    time before the pipeline. The load has to wait: a source that has written as much again cannot
    be told from what it was.
    """
    which, recovers = divmod(int(amount * 4), 2)
    image = injured.oldest if which else image_of(injured.server)
    injured.wait_load(10)
    injured.pipeline.execute(_FILLER)
    injured.wait_delivering()
    with injured.unjudged():
        with injured.load.paused():
            restore(injured.server, image, recovers=bool(recovers))
            refusal = expect_refused(injured, _WENT_BACK)
        said = follow(injured, refusal)
        injured.wait_delivering()
    age = "from before the pipeline" if which else "from a moment ago"
    return f"{age}{', recovered' if recovers else ''}; {said}"


def _promote(injured: IntoTrusted, amount: float) -> str:
    """A standby that has everything, slots too; for a moment it takes no writes."""
    seconds = amount * _LONGEST_STANDBY_SECONDS
    with injured.load.paused():
        demote(injured.server)
        time.sleep(seconds)
        promote(injured.server)
    said = overcome(injured, "nothing: nothing was lost")
    return f"standby for {seconds:.1f} s; {said}"


def _narrow(injured: IntoTrusted, amount: float) -> str:
    """One table leaves the publication, or one kind of change is published alone; while the
    pipeline runs or is down; it is set back by hand, or that is left to the pipeline.
    """
    way = int(amount * 8)
    is_down, by_hand, drops = way & 1, way & 2, way & 4
    publication = f"penstock_{injured.pipeline.name}"
    followed = [table for table in TABLES if table not in INSERT_ONLY]
    lost = [followed[int(amount * 1000) % len(followed)]] if drops else followed
    narrow, widen = (
        (f'DROP TABLE "{lost[0]}"', f'ADD TABLE ONLY "{lost[0]}"')
        if drops
        else ("SET (publish = 'insert')", f"SET (publish = '{_EVERYTHING}')")
    )
    injured.wait_ready()
    with injured.unjudged():
        before = _copy_ids(injured)
        if is_down:
            injured.kill()
        injured.pipeline.execute(f"ALTER PUBLICATION {publication} {narrow}")
        injured.wait_load(5)
        if by_hand:
            _alter_back(injured, f"ALTER PUBLICATION {publication} {widen}")
        if is_down:
            injured.start()
        wait_until(lambda: _copied_anew(injured, before, lost), f"{lost} are copied anew", PATIENCE)
    what = f"{narrow}, {'down' if is_down else 'running'}"
    return f"{what}, set back by {'hand' if by_hand else 'the pipeline'}; copied anew"


def _alter_back(injured: IntoTrusted, statement: str) -> None:
    try:
        injured.pipeline.execute(statement)
    except psycopg.errors.DuplicateObject:
        """The pipeline was quicker."""


def _copy_ids(injured: IntoTrusted) -> dict[str, str]:
    return {table.strip('"'): state.copy_id for table, state in injured.copy_states().items()}


def _copied_anew(injured: IntoTrusted, before: dict[str, str], tables: list[str]) -> bool:
    injured.check_alive()
    now, phases = _copy_ids(injured), injured.phases()
    return all(now.get(it) != before.get(it) and phases.get(it) == "ready" for it in tables)


def _restore_target(injured: IntoTrusted, amount: float) -> str:
    """Commits that it had confirmed are gone, while the pipeline runs or is down."""
    image = image_of(injured.target)
    injured.wait_delivering()
    injured.wait_load(int(amount * 20))
    injured.wait_delivering()
    is_down = amount >= 0.5
    with injured.unjudged():
        if is_down:
            injured.kill()
        restore(injured.target, image)
        if is_down:
            injured.start()
        said = overcome(injured, "the destination went back")
    return f"while it {'was down' if is_down else 'ran'}; {said}"


TRUST_FAULTS: dict[str, Fault] = {
    "source fell silent": partial(_fall_silent, _source_network),
    "destination fell silent": partial(_fall_silent, _target_network),
    "source restored": _restore_source,
    "standby promoted": _promote,
    "publication narrowed": _narrow,
    "machine lost": lose_machine,
    "file torn": tear_file,
    "disk of the log full": fill_log_disk,
    "disk of the destination full": fill_target_disk,
    "clock jumped": jump_clock,
    "destination restored": _restore_target,
    **{kind: FAULTS[kind] for kind in ("driver killed", "capture killed", "failpoint")},
}

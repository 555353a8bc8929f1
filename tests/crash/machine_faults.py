"""What happens to the machine that a pipeline runs on: it is lost, its files are torn, its disks
are full, its clock jumps. ``amount``, from 0 to 1, is which way, and how long.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from tests.crash.into_trusted import SILENCE_SECONDS, IntoTrusted
from tests.crash.refusals import overcome
from tests.small_disk import SmallDisk

_LONGEST_SECONDS = 6.0
_JUMPS = (300, 86_400, -3_600, 0)
"""How many seconds the clock is ahead, one after another."""
_GARBLED_BYTES = 16


def lose_machine(injured: IntoTrusted, amount: float) -> str:
    """All processes are gone at once, and no server is told: their sessions live on. Another
    machine takes over at once, with the change log or without it.
    """
    for network in (injured.source_network, injured.target_network):
        network.swallow()
    injured.run.lose()
    for network in (injured.source_network, injured.target_network):
        network.accept()
    has_log = amount < 0.5
    if not has_log:
        shutil.rmtree(injured.pipeline.log.root.path)
    run = injured.start()
    said = overcome(injured, "nothing: it has to wait for the lease")
    took = "was ended" if "lock was held by" in run.output else "was gone by then"
    return f"{'with' if has_log else 'without'} its log; the lock's session {took}; {said}"


def tear_file(injured: IntoTrusted, amount: float) -> str:
    """A file that is cut off or garbled while nothing runs."""
    injured.kill()
    files = _files(injured)
    place, way = divmod(amount * 3 * len(files), 3)
    file = files[int(place)]
    what = _tear(file, int(way))
    with injured.unjudged():
        injured.start()
        said = overcome(injured, re.escape(file.name))
    return f"{file.name[:40]} {what}; {said}"


def _files(injured: IntoTrusted) -> list[Path]:
    """One of each kind that is there."""
    log = injured.pipeline.log
    segments = [str(name) for name in log.list().segments]
    found = [
        Path(log.readers.full(f"{injured.pipeline.name}.json")),
        *(Path(log.root.full(name)) for name in ("capture.json", "log.json", "tables.json")),
        *(Path(log.segments.full(name)) for name in segments[-1:]),
    ]
    return [path for path in found if path.exists()]


def _tear(file: Path, way: int) -> str:
    size = file.stat().st_size
    match way:
        case 0:
            os.truncate(file, 0)
            return "emptied"
        case 1:
            os.truncate(file, size // 2)
            return "cut off"
        case _:
            with file.open("r+b") as opened:
                opened.seek(max(0, size // 2 - _GARBLED_BYTES))
                opened.write(b"\xff" * min(size, _GARBLED_BYTES))
            return "garbled"


def fill_log_disk(injured: IntoTrusted, amount: float) -> str:
    return _fill(injured, injured.log_disk, amount)


def fill_target_disk(injured: IntoTrusted, amount: float) -> str:
    return _fill(injured, injured.target_disk, amount)


def _fill(injured: IntoTrusted, disk: SmallDisk, amount: float) -> str:
    """There is no room for a while, under load."""
    if disk.refused:
        return f"skipped: {disk.refused}"
    seconds = amount * _LONGEST_SECONDS
    disk.fill()
    try:
        time.sleep(1 + seconds)
        injured.wait_load(5)
    finally:
        disk.free()
    said = overcome(injured, "No space left on device")
    return f"{1 + seconds:.1f} s; {said}"


def jump_clock(injured: IntoTrusted, _amount: float) -> str:
    """The time of day goes on in leaps, and back, for all processes of the run."""
    injured.kill()
    clock = injured.start_with_clock()
    if clock is None:
        injured.start()
        return "skipped: there is no C compiler, and no apt-get to install one"
    injured.wait_delivering()
    for seconds in _JUMPS:
        clock.jump(seconds)
        # Whoever looked at the clock before has to meet the new time.
        time.sleep(SILENCE_SECONDS)
        injured.wait_delivering()
    return ", ".join(f"{seconds:+d} s" for seconds in _JUMPS)

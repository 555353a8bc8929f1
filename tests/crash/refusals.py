"""What a run says when it ends by itself, and the person who does what it says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.crash.into_trusted import IntoTrusted
from tests.crash.penstock_run import PenstockRun

_MOST = 3
_SHOWN = 180


@dataclass(frozen=True)
class Refusal:
    """Why a run ended, and what is to be done about it."""

    message: str
    remedy: str


def refusal_of(run: PenstockRun) -> Refusal:
    """What the run said in the end; fails unless it ended in order, with a message and a remedy."""
    run.wait_gone()
    assert run.exit_code == 1, run.output[-3000:]
    said = run.output.rpartition("Error: ")[2]
    message, _, remedy = said.partition("What to do: ")
    assert remedy, f"it ended without a remedy:\n{run.output[-3000:]}"
    assert "Traceback" not in said, said
    assert not message.startswith("Unexpected"), said
    return Refusal(" ".join(message.split()), " ".join(remedy.split()))


def _begin_anew(injured: IntoTrusted, _message: str) -> None:
    injured.destroy()


def _delete_log(injured: IntoTrusted, _message: str) -> None:
    shutil.rmtree(injured.pipeline.log.root.path)


def _delete_file(injured: IntoTrusted, message: str) -> None:
    named = re.search(r"(/\S+) is torn", message)
    assert named is not None, message
    Path(named[1]).unlink()


def _delete_both(injured: IntoTrusted, message: str) -> None:
    _delete_file(injured, message)
    name = f"{injured.pipeline.name}.json"
    for folder in (injured.pipeline.log.readers, injured.pipeline.log.readers.child("second")):
        Path(folder.full(name)).unlink(missing_ok=True)


def _nothing_more(_injured: IntoTrusted, _message: str) -> None:
    """The fault itself has passed by now."""


# By what the remedy says; the first that fits.
_REMEDIES: dict[str, Callable[[IntoTrusted, str], None]] = {
    "delete both: the pipeline writes them again": _delete_both,
    "delete the file: capture writes it again": _delete_file,
    "delete the change log folder": _delete_log,
    "`penstock destroy FILE`": _begin_anew,
    "free disk space": _nothing_more,
}


def follow(injured: IntoTrusted, refusal: Refusal) -> str:
    """Do what the remedy says, and start again; what to say of it."""
    for phrase, do in _REMEDIES.items():
        if phrase in refusal.remedy:
            do(injured, refusal.message)
            injured.start()
            return f"refused: {refusal.message[:_SHOWN]}…; remedy followed: {phrase}"
    raise AssertionError(f"nobody knows how to follow this remedy: {refusal}")


def overcome(injured: IntoTrusted, cause: str) -> str:
    """Wait until the pipeline delivers. Where it ends instead it has to name the ``cause``, a
    pattern, and its remedy is followed.
    """
    said: list[str] = []
    while not injured.delivers():
        said.append(follow(injured, expect_refused(injured, cause)))
        assert len(said) <= _MOST, said
    return "; ".join(said) or "went on by itself"


def expect_refused(injured: IntoTrusted, cause: str) -> Refusal:
    """Wait until the run has ended and named the ``cause``."""
    refusal = refusal_of(injured.run)
    assert re.search(cause, refusal.message), f"no word of {cause!r}: {refusal}"
    return refusal

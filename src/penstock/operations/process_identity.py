"""Which process it is: a number alone may be another process's by now."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SPACE = Path("/proc/self/ns/pid")
# Of /proc/<pid>/stat, behind the name in brackets: the state, and the start in clock ticks.
_STATE, _START = 0, 19


@dataclass(frozen=True)
class ProcessIdentity:
    """A process of one machine, since that was started. ``start``, ``boot`` and ``space`` are empty
    where the system does not tell. Containers of one machine each number their own processes:
    ``space`` says whose number it is.
    """

    pid: int
    host: str
    boot: str
    start: str
    space: str = ""

    @classmethod
    def of(cls, pid: int) -> Self:
        """The process that has this number now."""
        return cls(pid, socket.gethostname(), _boot(), _stat(pid)[_START], _space())

    @classmethod
    def own(cls) -> Self:
        return cls.of(os.getpid())

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises KeyError, TypeError or ValueError for anything but what ``to_json`` gave."""
        if not isinstance(value, dict):
            raise TypeError("not a JSON object")
        space = value.get("space", "")
        return cls(int(value["pid"]), value["host"], value["boot"], value["start"], space)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this machine and container. Its name counts only
        where the kernel tells nothing better: a machine may get another one.
        """
        if self.boot and self.space:
            return (self.boot, self.space) == (_boot(), _space())
        return self.host == socket.gethostname() and self.boot == _boot()

    @property
    def lives(self) -> bool:
        """Whether it is a process of this machine that has not ended."""
        if not self.is_here:
            return False
        stat = _stat(self.pid)
        if self.start:
            return stat[_START] == self.start and stat[_STATE] not in ("Z", "X")
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@cache
def _space() -> str:
    with suppress(OSError):
        return _SPACE.readlink().name
    return ""


@cache
def _boot() -> str:
    """The same for as long as we live. Who looks after many processes asks very often."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


def _stat(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [""] * (_START + 1)

"""When capture is to stop."""

from __future__ import annotations

import os
import select
import signal

from penstock.source.capture.link import Link


class Stop:
    """SIGTERM, SIGINT, or the end of the run that started capture."""

    def __init__(self, *, supervised: bool) -> None:
        self.link = Link(supervised=supervised)
        self._is_set = False
        self._signalled = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        self.link.start(self._set)

    @property
    def wake(self) -> int:
        """Readable once there is a reason to stop."""
        return self._wake_read

    def __call__(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> None:
        select.select([self.wake], [], [], seconds)

    def _set(self) -> None:
        self._is_set = True
        os.write(self._wake_write, b"x")

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._signalled:
            # A second one: at once, and as the signal would have ended us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._signalled = True
        self._set()

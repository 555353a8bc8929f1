"""Something that is done again and again beside the pipeline, and once more at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Repeated:
    """Calls ``act`` every so many seconds while it is entered. ``act`` must not raise."""

    def __init__(self, name: str, every: float, act: Callable[[], None]) -> None:
        self._every = every
        self._act = act
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._every):
            self._act()
        self._act()

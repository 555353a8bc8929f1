"""The web page beside the demo: a server in a thread, which finds the demo's pipeline by itself."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from penstock.demo.pipeline_thread import PipelineThread
from penstock.serve.options import ServeOptions
from penstock.serve.server import listen, make_parts, make_server


class DemoPage:
    """From ``start`` to ``stop``. It listens on loopback alone."""

    def __init__(self, file: Path, folder: Path, say: Callable[[str], None]) -> None:
        """Raises ConfigError where nothing can be listened on."""
        options = ServeOptions((file,), folder / "serve", port=0, starts=False)
        self._socket = listen(options)
        self._parts = make_parts(options, self._socket.getsockname()[1])
        self._server = make_server(options, self._parts)
        self._thread = threading.Thread(target=self._run, name="penstock-page", daemon=True)
        self._say = say

    def start(self) -> None:
        self._parts.service.start()
        self._thread.start()
        self._say(f"The page: {self._parts.url} (the address works once)")
        if sys.platform == "darwin" or os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
            webbrowser.open(self._parts.url)

    def follow(self, pipeline: PipelineThread, name: str) -> None:
        """Show what the pipeline logs among its events."""
        events = self._parts.service.events
        pipeline.on_note = lambda text: events.tell(name, "log", text)

    def stop(self) -> None:
        """Returns when nothing of it is left."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._parts.service.stop()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

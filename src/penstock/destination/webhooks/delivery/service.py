"""Deliveries and the API, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import logging
import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.backoff import Backoff
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.outbox import outbox_storage
from penstock.model.error_policy import Action, decide
from penstock.model.errors import DestinationError, PenstockError

if TYPE_CHECKING:
    from penstock.metrics.registry import Registry

_DRAIN_SECONDS = 5.0
# A name that cannot be looked up takes a thread for many seconds.
_THREADS = 64
_TURN_SECONDS = 0.1

_log = logging.getLogger(__name__)


class WebhookService:
    """Runs from ``start`` to ``stop``. For `penstock run` and `penstock webhooks serve`."""

    def __init__(
        self, options: WebhooksOptions, pipeline: str, registry: Registry | None = None
    ) -> None:
        """``registry`` is where deliveries are counted, if anybody looks."""
        self._options = options
        self._pipeline = pipeline
        self._registry = registry
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._woken: asyncio.Event | None = None
        self._error: PenstockError | None = None
        self.api_url = ""

    def start(self) -> None:
        """Returns when it delivers. Raises what kept it from that; it may be tried again."""
        _require_client()
        self._error = None
        self._ready.clear()
        self._thread = threading.Thread(target=self._main, name="penstock-webhooks", daemon=True)
        self._thread.start()
        self._ready.wait()
        self.check()

    def run(self, stopping: Callable[[], bool]) -> None:
        """Deliver until ``stopping()``. What is away when it starts is waited for."""
        pause = Backoff()
        while not stopping():
            try:
                self.start()
            except PenstockError as error:
                if decide(error) is not Action.RETRY:
                    raise
                _log.warning(error.message, extra={"event": "webhooks_waiting"})
                pause.wait(stopping)
                continue
            _log.info("delivering", extra={"event": "webhooks_delivering"})
            while not stopping() and not self.has_ended:
                time.sleep(_TURN_SECONDS)
            self.stop()
            self.check()
            return

    def check(self) -> None:
        """Raises what has ended it."""
        if self._error is not None:
            raise self._error

    @property
    def has_ended(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def wake(self) -> None:
        """Something was committed. Raises what has ended it: nobody would deliver."""
        self.check()
        if self._loop is not None and self._woken is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join()

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except PenstockError as error:
            self._error = error
        except Exception as error:
            _log.exception("webhooks: deliveries have ended", extra={"event": "webhooks_failed"})
            self._error = DestinationError(
                f"destination webhooks: deliveries have ended: {type(error).__name__}: {error}",
                remedy="start again; what is not delivered is in the outbox. This is a bug in "
                "Penstock: please report it",
            )
        finally:
            self._ready.set()

    async def _run(self) -> None:
        from penstock.destination.webhooks.api import Api
        from penstock.destination.webhooks.delivery.counts import DeliveryCounts
        from penstock.destination.webhooks.delivery.deliverer import Deliverer
        from penstock.destination.webhooks.delivery.request import Requests

        _allow_many_sockets()
        loop = self._loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_THREADS, "penstock-webhooks"))
        self._stopping = asyncio.Event()
        databases = [
            Database(self._options.url, self._pipeline, purpose) for purpose in ("deliver", "api")
        ]
        requests = Requests(self._options)
        api = Api(self._options, databases[1], requests)
        storage = outbox_storage(
            self._options.path, self._pipeline, self._options.revealed_path_options
        )
        counts = None if self._registry is None else DeliveryCounts(self._registry)
        deliverer = Deliverer(self._options, databases[0], storage, requests, counts)
        self._woken = deliverer.woken
        try:
            await asyncio.to_thread(databases[0].set_up)
            if self._options.api is not None:
                await api.start(self._options.api)
                self.api_url = api.url
                _log.info("webhooks: API on %s", api.url, extra={"event": "webhooks_api"})
            await deliverer.begin()
            self._ready.set()
            await deliverer.run(self._stopping)
            await deliverer.end(_DRAIN_SECONDS)
        finally:
            deliverer.close()
            await api.stop()
            await requests.close()
            for database in databases:
                database.close()


def _require_client() -> None:
    try:
        import aiohttp  # noqa: F401 (looked for)
    except ImportError:
        raise DestinationError(
            "destination webhooks: the package aiohttp is not installed",
            remedy="pip install 'penstock[webhooks]'",
        ) from None


def _allow_many_sockets() -> None:
    """Each subscription has some of its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

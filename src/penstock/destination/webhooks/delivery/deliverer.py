"""Takes events out of the outbox, and hands them to subscriptions."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from penstock.cadence import paced
from penstock.changelog.storage.contract import Storage
from penstock.destination.webhooks.database import Database
from penstock.destination.webhooks.delivery.counts import DeliveryCounts
from penstock.destination.webhooks.delivery.progress import DeliveryProgress, Saved, SegmentEntry
from penstock.destination.webhooks.delivery.request import Requests
from penstock.destination.webhooks.delivery.takers import Takers
from penstock.destination.webhooks.delivery.worker import DueEvent, Worker, in_order
from penstock.destination.webhooks.kept_secrets import KeptSecrets
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.outbox import (
    OutboxSegment,
    Rows,
    is_of,
    mark_of,
    read_segment,
)
from penstock.destination.webhooks.subscription import Kept, OutboxPlace
from penstock.destination.webhooks.subscriptions import Subscriptions
from penstock.failpoints import failpoint
from penstock.model.errors import (
    DestinationError,
    DestinationUnavailable,
    LogError,
    LogUnavailable,
    PenstockError,
)

_TURN_SECONDS = 0.1
_SAVE_SECONDS = paced(1.0)
_RETIRE_SECONDS = paced(10.0)
_AWAY_SECONDS = paced(2.0)
_CACHE_BYTES = 64 * 2**20

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Deliverer:
    """One at a time for a pipeline. Belongs to one event loop.

    Who has all that there is gets each new segment handed; who has not reads the outbox by itself,
    at its own pace. So nobody waits for anybody.
    """

    def __init__(
        self,
        options: WebhooksOptions,
        database: Database,
        storage: Storage,
        requests: Requests,
        counts: DeliveryCounts | None = None,
    ) -> None:
        self._options = options
        self._progress = DeliveryProgress(database)
        self._subscriptions = Subscriptions(database)
        self._storage = storage
        self._counts = counts
        self._send = requests.send if counts is None else counts.counted(requests.send)
        self._secrets = KeptSecrets(options.secret_key)
        # One thread: what is said to the database keeps its order.
        self._calls = ThreadPoolExecutor(1, "penstock-webhooks-database")
        self._newest = 0
        self._version = -1
        self._driver, self._outbox = 0, ""
        self._entries: defaultdict[str, list[SegmentEntry]] = defaultdict(list)
        self._workers: dict[str, Worker] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._takers = Takers([])
        self._saved: dict[str, tuple[OutboxPlace, str]] = {}
        self._cache: OrderedDict[int, OutboxSegment] = OrderedDict()
        self._loading: dict[int, asyncio.Task[OutboxSegment | None]] = {}
        self._retired: set[str] = set()
        """Files that nobody needs, and that are not removed yet."""
        self._refused: PenstockError | None = None
        """What the place of the outbox said, where it was met by a worker that reads by itself."""
        self.woken = asyncio.Event()

    async def begin(self) -> None:
        """Take over from whoever has delivered, and look whether the outbox is here. One that does
        not answer now, ``run`` waits for.
        """
        await self._call(self._progress.take_over)
        try:
            await self._look()
        except (DestinationUnavailable, LogUnavailable) as error:
            _log.warning(error.message, extra={"event": "webhooks_away"})

    async def run(self, stopping: asyncio.Event) -> None:
        """Until ``stopping``, after ``begin``. Raises Fenced where another one delivers, and what
        refuses the outbox: no subscription is at fault, and none moves.
        """
        loop = asyncio.get_running_loop()
        next_save = next_retire = loop.time()
        while not stopping.is_set():
            if self._refused is not None:
                raise self._refused
            try:
                await self._look()
                if loop.time() >= next_retire:
                    await self._save(everything=True)
                    await self._retire()
                    next_retire = loop.time() + _RETIRE_SECONDS
                    next_save = loop.time() + _SAVE_SECONDS
                elif loop.time() >= next_save:
                    await self._save()
                    await self._count()
                    next_save = loop.time() + _SAVE_SECONDS
            except (DestinationUnavailable, LogUnavailable) as error:
                _log.warning(error.message, extra={"event": "webhooks_away"})
                await _pause(stopping, _AWAY_SECONDS)
            self.woken.clear()
            await _pause(self.woken, _TURN_SECONDS)

    async def end(self, drain: float) -> None:
        """Deliver what is there to whoever takes it, for ``drain`` seconds at most; then save."""
        loop = asyncio.get_running_loop()
        until = loop.time() + drain
        try:
            await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await asyncio.gather(*(w.rest() for w in self._workers.values()))
            await asyncio.gather(*(self._let_go(name) for name in list(self._workers)))
            await self._save(everything=True)
        except (DestinationUnavailable, LogUnavailable) as error:
            # What was delivered since the last time comes again.
            _log.warning(error.message, extra={"event": "webhooks_away"})
        finally:
            self.close()

    def close(self) -> None:
        self._calls.shutdown(wait=False)

    # -- what is new ---------------------------------------------------------------------------

    async def _look(self) -> None:
        news = await self._call(self._progress.news, self._newest)
        if news.driver != self._driver:
            await self._expect_folder(news.driver, news.outbox)
            self._driver, self._outbox = news.driver, news.outbox
        if news.version != self._version:
            await self._renew()
            self._version = news.version
        for entry in news.segments:
            segment = None
            is_awaited = self._takers.awaits(entry.view)
            if is_awaited:
                segment = await self._load(entry)
            # No await from here on: nobody reads it by itself and gets it handed as well.
            self._entries[entry.view].append(entry)
            if segment is not None:
                self._hand_out(entry.view, segment)
            elif is_awaited:
                for worker in self._workers.values():
                    if worker.is_handed(entry.number) and worker.kept.wanted.view == entry.view:
                        _is_gone(worker, entry)
            self._newest = entry.number

    async def _expect_folder(self, driver: int, outbox: str) -> None:
        """Raises DestinationError where this is not the folder that the driver writes to: what is
        committed would be missing here, and pass for lost.
        """
        mark = mark_of(driver)
        if driver and not is_of(await asyncio.to_thread(self._storage.read_bytes, mark), outbox):
            news = await self._call(self._progress.news, self._newest)
            if news.driver != driver:
                # It came meanwhile, and has removed the mark of the one before it.
                await self._expect_folder(news.driver, news.outbox)
                return
            raise DestinationError(
                f"destination webhooks: the outbox of the pipeline is not in "
                f"{self._storage.path}: {mark}, as its driver wrote it there, is missing. "
                "Nothing is delivered, and nothing is given up",
                remedy="let destination.path name the folder that `penstock run` writes to (on "
                "another machine: mount it under this path), and start again; if it is that "
                "folder and somebody has emptied it, start `penstock run` again first",
            )

    def _hand_out(self, view: str, segment: OutboxSegment) -> None:
        found: dict[Worker, list[Rows]] = {}
        for kind, rows in segment.rows_of.items():
            for worker in self._takers.of(view, kind):
                if worker.ended is None and worker.is_handed(segment.number):
                    found.setdefault(worker, []).append(rows)
        for worker, some in found.items():
            worker.take(segment, in_order(some))
            if worker.is_behind:
                self._read(worker)

    async def _renew(self) -> None:
        """Workers for all subscriptions that are active, and for no other."""
        kept = {each.id: each for each in await self._call(self._subscriptions.active)}
        gone = [
            name
            for name, worker in self._workers.items()
            if name not in kept
            or worker.ended is not None
            or worker.kept.wanted != kept[name].wanted
        ]
        await asyncio.gather(*(self._let_go(name) for name in gone))
        await self._save(only=gone)
        for name in gone:
            del self._workers[name]
            self._saved.pop(name, None)
        if any(name in kept for name in gone):
            # Their places were saved just now.
            kept = {each.id: each for each in await self._call(self._subscriptions.active)}
        for name, each in kept.items():
            if name in self._workers:
                self._workers[name].renew(each)
            else:
                self._begin(each)
        self._takers = Takers(self._workers.values())

    def _begin(self, kept: Kept) -> None:
        async def keep_letter(event: DueEvent, why: str) -> None:
            await self._call(
                self._progress.keep_letter,
                *(kept.id, event.id, event.table, why, event.body.decode()),
            )

        worker = Worker(
            kept,
            self._options,
            lambda now: self._secrets.keys(now.secrets),
            self._send,
            keep_letter,
        )
        self._workers[kept.id] = worker
        self._read(worker)

    async def _let_go(self, name: str) -> None:
        reading = self._reading.pop(name, None)
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await self._workers[name].stop()

    # -- reading -------------------------------------------------------------------------------

    def _read(self, worker: Worker) -> None:
        """Let a worker that is behind read the outbox by itself."""
        name = worker.kept.id
        running = self._reading.get(name)
        if running is None or running.done():
            self._reading[name] = asyncio.get_running_loop().create_task(self._catch_up(worker))

    async def _catch_up(self, worker: Worker) -> None:
        while worker.ended is None:
            try:
                await self._read_on(worker)
                return
            except (DestinationUnavailable, LogUnavailable):
                await asyncio.sleep(_AWAY_SECONDS)
            except (DestinationError, LogError) as error:
                self._refused = error
                self.woken.set()
                return
            except Exception as error:
                worker.end("paused", f"the outbox cannot be read: {type(error).__name__}: {error}")

    async def _read_on(self, worker: Worker) -> None:
        view = worker.kept.wanted.view
        while worker.ended is None:
            await worker.room.wait()
            # Others get their turn, also where all is there already.
            await asyncio.sleep(0)
            entries = self._entries[view]
            at = bisect_left(entries, worker.read_at.segment, key=_number)
            if at == len(entries) or not worker.gets(entries[at].number):
                worker.is_behind = False
                return
            entry = entries[at]
            segment = await self._load(entry)
            if segment is None:
                _is_gone(worker, entry)
                return
            start = worker.read_at.row if entry.number == worker.read_at.segment else 0
            worker.take(segment, worker.rows(segment), start)

    async def _load(self, entry: SegmentEntry) -> OutboxSegment | None:
        """None where the file is gone for good. Raises DestinationError where the folder is."""
        found = self._cache.get(entry.number)
        if found is not None:
            self._cache.move_to_end(entry.number)
            return found
        loading = self._loading.get(entry.number)
        if loading is None:
            loading = asyncio.get_running_loop().create_task(self._loaded(entry))
            self._loading[entry.number] = loading
        return await asyncio.shield(loading)

    async def _loaded(self, entry: SegmentEntry) -> OutboxSegment | None:
        try:
            found = await asyncio.to_thread(read_segment, self._storage, entry.number, entry.file)
        except (DestinationUnavailable, LogUnavailable) as error:
            _log.warning(error.message, extra={"event": "webhooks_away"})
            raise
        finally:
            del self._loading[entry.number]
        if found is None:
            await self._expect_folder(self._driver, self._outbox)
        else:
            self._cache[entry.number] = found
            while sum(s.size for s in self._cache.values()) > _CACHE_BYTES and len(self._cache) > 1:
                self._cache.popitem(last=False)
        return found

    # -- how far it is -------------------------------------------------------------------------

    async def _save(self, *, everything: bool = False, only: list[str] | None = None) -> None:
        """What has changed. A position that moved past what was for others can wait."""
        saved = []
        for name in self._workers if only is None else only:
            worker = self._workers[name]
            place = worker.position(self._newest)
            if not worker.gets(place.segment):
                worker.end("disabled", worker.kept.ends_why)
            ended = worker.ended if worker.ended and worker.ended[0] else None
            moved = (place, worker.last_error) != self._saved.get(name)
            if ended or worker.delivered or (moved and (everything or worker.last_error)):
                saved.append(
                    Saved(
                        name,
                        worker.kept.generation,
                        place,
                        worker.delivered,
                        worker.failing_since,
                        worker.last_error,
                        ended,
                    )
                )
        await self._call(self._progress.save, saved)
        failpoint("webhooks.saved")
        for each in saved:
            self._saved[each.id] = each.place, each.last_error
            self._workers[each.id].delivered -= each.delivered
            if each.ended is not None:
                _log.warning(
                    "webhooks: subscription %s is %s: %s",
                    *(each.id, *each.ended),
                    extra={"event": f"webhook_{each.ended[0]}"},
                )

    async def _count(self) -> None:
        if self._counts is not None:
            states = await self._call(self._progress.states)
            self._counts.standing(states, self._workers.values(), self._newest)

    async def _retire(self) -> None:
        limits = self._options.backlog
        files, lapsed = await self._call(self._progress.retire, limits.max_bytes, limits.max_age)
        for name in lapsed:
            _log.warning(
                "webhooks: subscription %s is disabled: it was too far behind",
                *(name,),
                extra={"event": "webhook_disabled"},
            )
        if files:
            gone = set(files)
            for view, entries in self._entries.items():
                self._entries[view] = [entry for entry in entries if entry.file not in gone]
        # The index has forgotten them: what cannot be removed now is tried again, and if this
        # process dies before that, the next driver removes it.
        self._retired.update(files)
        if self._retired:
            await asyncio.to_thread(self._storage.delete, *sorted(self._retired))
            self._retired.clear()

    async def _call(self, function: Callable[_P, _T], *args: _P.args, **more: _P.kwargs) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._calls, lambda: function(*args, **more))


def _is_gone(worker: Worker, entry: SegmentEntry) -> None:
    worker.end("disabled", f"{entry.file} is gone from the outbox")


def _number(entry: SegmentEntry) -> int:
    return entry.number


async def _pause(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return

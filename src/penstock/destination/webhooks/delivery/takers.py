"""Who wants which events: found by name where a subscription names its tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from penstock.destination.webhooks.delivery.worker import Worker
from penstock.destination.webhooks.outbox import Kind


class Takers:
    """Of one set of workers: made anew where that changes.

    A thousand subscriptions to a table each are a thousand lookups and no million of comparisons.
    """

    def __init__(self, workers: Iterable[Worker]) -> None:
        self._of_view: defaultdict[str, list[Worker]] = defaultdict(list)
        self._by_name: defaultdict[tuple[str, str, str], list[Worker]] = defaultdict(list)
        self._by_pattern: defaultdict[str, list[Worker]] = defaultdict(list)
        self._found: dict[tuple[str, Kind], list[Worker]] = {}
        for worker in workers:
            view, names = worker.kept.wanted.view, worker.table_names
            self._of_view[view].append(worker)
            if names is None:
                self._by_pattern[view].append(worker)
            for schema, table in names or ():
                self._by_name[view, schema, table].append(worker)

    def of(self, view: str, kind: Kind) -> list[Worker]:
        """The workers that want events of this kind, encoded for this view."""
        found = self._found.get((view, kind))
        if found is None:
            found = self._found[view, kind] = [w for w in self._asked(view, kind) if w.wants(kind)]
        return found

    def awaits(self, view: str) -> bool:
        """Whether anybody is handed what is new of this view: the others read it when they can."""
        return any(not worker.is_behind for worker in self._of_view.get(view, ()))

    def _asked(self, view: str, kind: Kind) -> Iterable[Worker]:
        op, schema, table = kind
        if op == "message":
            return self._of_view.get(view, ())
        return [
            *self._by_name.get((view, schema, table), ()),
            *self._by_pattern.get(view, ()),
        ]

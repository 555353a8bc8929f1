"""All pipelines: state, lag, rate, and a line of the last minutes."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from penstock.cadence import paced
from penstock.serve.catalogue import PipelineFile
from penstock.serve.page.frame import heading, repeat
from penstock.serve.page.words import (
    HEALTH_WORDS,
    UNKNOWN,
    rate_text,
    seconds_text,
    size_text,
    spark_points,
)
from penstock.serve.service import Service

_REFRESH_SECONDS = paced(2.0)
_SPARK_MINUTES = 10
_SPARK_POINTS = 60

_COLUMNS: list[dict[str, Any]] = [
    {"name": "name", "label": "Pipeline", "field": "name", "align": "left", "sortable": True},
    {"name": "health", "label": "State", "field": "health", "align": "left", "sortable": True},
    {"name": "lag", "label": "Lag", "field": "lag_seconds", "align": "right", "sortable": True},
    {"name": "bytes", "label": "Behind", "field": "lag_bytes", "align": "right", "sortable": True},
    {"name": "rate", "label": "Rows", "field": "rate", "align": "right", "sortable": True},
    {"name": "spark", "label": "Last 10 min", "field": "spark", "align": "left"},
    {"name": "tables", "label": "Tables", "field": "tables_text", "align": "left"},
]

# Vue's templates: what stands in double braces, or is bound with a colon, is data and never HTML.
_BADGE = """
<span :class="'ps-badge ps-' + props.row.health">
  <q-icon :name="props.row.icon" aria-hidden="true"></q-icon>{{ props.row.word }}
</span>
"""
_SPARK = """
<svg class="ps-spark" viewBox="0 0 120 28" preserveAspectRatio="none" role="img"
     :aria-label="'Rows a second over the last ten minutes, now ' + props.row.rate_text">
  <polyline :points="props.row.spark"></polyline></svg>
"""
_LINK = (
    """<a class="ps-link ps-name" :href="'/pipelines/' + props.row.name">{{ props.row.name }}</a>"""
)
_CARD = f"""
<div class="col-12 q-pa-xs"><q-card class="ps-card q-pa-md">
  <div class="row items-center justify-between q-mb-sm">{_LINK}{_BADGE}</div>
  <div class="row justify-between"><span class="ps-soft">lag</span>
    <span>{{{{ props.row.lag_text }}}} · {{{{ props.row.bytes_text }}}}</span></div>
  <div class="row justify-between"><span class="ps-soft">rows</span>
    <span>{{{{ props.row.rate_text }}}}</span></div>
  <div class="row justify-between"><span class="ps-soft">tables</span>
    <span>{{{{ props.row.tables_text }}}}</span></div>
  <div class="ps-soft ps-name" v-if="props.row.reason">{{{{ props.row.reason }}}}</div>
  {_SPARK}
</q-card></div>
"""


class OverviewRows:
    """The rows, made anew once in a while for all who look."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._until = 0.0
        self._rows: list[dict[str, Any]] = []

    def get(self) -> list[dict[str, Any]]:
        if time.monotonic() >= self._until:
            self._rows = [_row(self._service, file) for file in self._service.catalogue.all()]
            self._until = time.monotonic() + _REFRESH_SECONDS / 2
        return self._rows


def show_overview(kept: OverviewRows) -> None:
    """Refreshes by itself."""
    with ui.row().classes("w-full items-center justify-between"):
        heading("Pipelines", 1)
        search = ui.input("Search").props('outlined dense clearable aria-label="Search pipelines"')
    table = ui.table(columns=_COLUMNS, rows=[], row_key="name", pagination=0)
    table.classes("ps-table w-full").props(
        'flat hide-pagination :grid="Quasar.Screen.lt.md" :rows-per-page-options="[0]"'
    )
    table.add_slot("body-cell-name", f'<q-td :props="props">{_LINK}</q-td>')
    table.add_slot(
        "body-cell-health",
        f'<q-td :props="props">{_BADGE}<div class="ps-soft ps-name" style="max-width: 22rem" '
        'v-if="props.row.reason">{{ props.row.reason }}</div></q-td>',
    )
    for column in ("lag", "bytes", "rate"):
        table.add_slot(
            f"body-cell-{column}", f'<q-td :props="props">{{{{ props.row.{column}_text }}}}</q-td>'
        )
    table.add_slot("body-cell-spark", f'<q-td :props="props">{_SPARK}</q-td>')
    table.add_slot("item", _CARD)
    table.add_slot("no-data", '<div class="q-pa-md">No pipeline is served here.</div>')
    table.bind_filter_from(search, "value")

    def refresh() -> None:
        rows = kept.get()
        if rows != table.rows:
            table.rows = rows

    refresh()
    repeat(_REFRESH_SECONDS, refresh)


def _row(service: Service, file: PipelineFile) -> dict[str, Any]:
    view = service.overview(file)
    series = service.sampler.series(file.name)
    points = series.points(time.time() - 60 * _SPARK_MINUTES, _SPARK_POINTS)
    rates = [p.values["delivered_per_second"] + p.values["copied_per_second"] for p in points]
    rate = None
    if view.delivered_per_second is not None:
        rate = view.delivered_per_second + (view.copied_per_second or 0.0)
    icon, word = HEALTH_WORDS[view.health]
    total, ready = sum(view.tables.values()), view.tables.get("ready", 0)
    errored = view.tables.get("errored", 0)
    return {
        "name": file.name,
        "health": view.health,
        "icon": icon,
        "word": word,
        "reason": view.reasons[0][:200] if view.reasons else "",
        "lag_seconds": view.lag_seconds,
        "lag_text": seconds_text(view.lag_seconds),
        "lag_bytes": view.lag_bytes,
        "bytes_text": size_text(view.lag_bytes),
        "rate": rate,
        "rate_text": rate_text(rate),
        "spark": spark_points(rates),
        "tables_text": _tables_text(total, ready, errored),
    }


def _tables_text(total: int, ready: int, errored: int) -> str:
    if not total:
        return UNKNOWN
    return f"{ready} of {total} ready" + (f", {errored} errored" if errored else "")

"""Rates, lags and batch times over the last minutes or hours."""

from __future__ import annotations

import time
from typing import Any

from nicegui import ui

from penstock.cadence import paced
from penstock.serve.catalogue import PipelineFile
from penstock.serve.observe.series import Point
from penstock.serve.page.acting import Acting
from penstock.serve.page.frame import repeat

_REFRESH_SECONDS = paced(4.0)
_MOST_POINTS = 240
_GREY = "#7d8893"
_SPANS = {15: "15 min", 60: "1 h", 360: "6 h", 1440: "24 h"}
# A colour, and a form of line: two lines are told apart without the one or the other.
_LINES = (("#2a8fc7", "solid"), ("#d17a00", "dashed"), ("#5d9b3c", "dotted"))

_CHARTS: dict[str, tuple[str, dict[str, str]]] = {
    "Rows a second": (
        "/s",
        {
            "captured": "received_per_second",
            "delivered": "delivered_per_second",
            "copied": "copied_per_second",
        },
    ),
    "Lag": ("s", {"seconds behind": "lag_seconds"}),
    "Bytes": (
        "MB",
        {"behind": "lag_bytes", "kept by the source": "unconfirmed_bytes", "log": "log_bytes"},
    ),
    "Time of a batch": ("s", {"batch": "batch_seconds", "its commit": "commit_seconds"}),
}


async def show_charts(person: Acting, file: PipelineFile) -> None:
    """Refreshes by itself."""
    series = person.service.sampler.series(file.name, file.destination)
    with ui.row().classes("items-center gap-2"):
        span = ui.toggle(_SPANS, value=15).props('no-caps flat aria-label="Span of time"')
        empty = ui.label("There are no figures yet: they come while the pipeline runs.")
        empty.classes("ps-soft")
    charts = {}
    with (
        ui.element("div")
        .classes("w-full grid gap-3")
        .style("grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr))")
    ):
        for title, (unit, lines) in _CHARTS.items():
            with ui.card().classes("ps-card q-pa-sm w-full"):
                ui.label(title).classes("font-semibold").props('role=heading aria-level="3"')
                chart = ui.echart(_options(unit, list(lines))).classes("w-full h-52")
                charts[title] = chart.props(f'role=img aria-label="{title}"')

    def refresh() -> None:
        points = series.points(time.time() - 60 * int(span.value), _MOST_POINTS)
        empty.set_visibility(not points)
        for title, (unit, lines) in _CHARTS.items():
            for shown, key in zip(charts[title].options["series"], lines.values(), strict=True):
                shown["data"] = _data(points, key, unit)
            charts[title].update()

    span.on_value_change(refresh)
    refresh()
    repeat(_REFRESH_SECONDS, refresh)


def _data(points: list[Point], key: str, unit: str) -> list[list[float]]:
    scale = 1e6 if unit == "MB" else 1.0
    return [[round(p.at * 1000), round(p.values[key] / scale, 3)] for p in points]


def _options(unit: str, names: list[str]) -> dict[str, Any]:
    return {
        "animation": False,
        "textStyle": {"color": _GREY},
        "grid": {"left": 52, "right": 12, "top": 30, "bottom": 24},
        "legend": {"top": 0, "textStyle": {"color": _GREY}},
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time", "axisLabel": {"color": _GREY, "hideOverlap": True}},
        "yAxis": {
            "type": "value",
            "min": 0,
            "name": unit,
            "nameTextStyle": {"color": _GREY},
            "axisLabel": {"color": _GREY},
            "splitLine": {"lineStyle": {"color": _GREY, "opacity": 0.25}},
        },
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                "lineStyle": {"width": 2, "type": form, "color": colour},
                "itemStyle": {"color": colour},
                "data": [],
            }
            for name, (colour, form) in zip(names, _LINES, strict=False)
        ],
    }

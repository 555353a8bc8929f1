"""What the demo shows, in a terminal and elsewhere."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from penstock.demo.progress import DemoProgress, TableProgress
from penstock.demo.target_reader import Invariant
from penstock.demo.view import LineView, LiveView, Phase, make_view
from penstock.model.lsn import Frontier

PROGRESS = DemoProgress(
    (TableProgress("orders", "following", 1234, 56.7), TableProgress("carts", "waiting", 0, 0.0)),
    Frontier(0x1A, 0x2B),
    2048,
    0.75,
    Invariant(1500, 20),
)


def test_lines_come_at_each_phase_and_every_few_seconds() -> None:
    out = io.StringIO()
    view = make_view(Console(file=out, width=40))
    assert isinstance(view, LineView)
    with view:
        view.show(0.0, Phase("starting Spark", "0 s"), None)
        view.show(1.0, Phase("starting Spark", "1 s"), None)
        view.show(1.5, Phase("live", "0 of 30 s"), PROGRESS)
        view.show(2.5, Phase("live", "1 of 30 s"), PROGRESS)
        view.show(4.5, Phase("live", "3 of 30 s"), PROGRESS)
        view.say("capture ended")
    told = (
        "1,234 rows at the destination, 57 rows/s, lag 2.0 KiB / 0.8 s, at 0/2B, invariant never"
        " broken in 1,500 looks at 20 different sums (orders 1,234, carts 0 (waiting))"
    )
    assert out.getvalue().splitlines() == [
        "starting Spark: 0 s",
        f"live: 0 of 30 s · {told}",
        f"live: 3 of 30 s · {told}",
        "capture ended",
    ]


def drawn(progress: DemoProgress) -> str:
    out = io.StringIO()
    view = make_view(Console(file=out, width=100, force_terminal=True))
    assert isinstance(view, LiveView)
    with view:
        view.show(0.0, Phase("live", "3 of 30 s"), progress)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def test_the_live_view_is_a_table() -> None:
    text = drawn(PROGRESS)
    (orders,) = {line for line in text.splitlines() if "│ orders" in line}
    assert [cell.strip() for cell in orders.split("│")[1:-1]] == [
        "orders", "following", "1,234", "57",
    ]  # fmt: skip
    (total,) = {line for line in text.splitlines() if "all tables" in line}
    assert "1,234" in total
    assert "lag 2.0 KiB / 0.8 s, everything up to 0/2B is delivered" in text
    assert "never broken in 1,500 looks" in text
    assert "live: 3 of 30 s" in text


def test_a_broken_invariant_is_shown() -> None:
    broken = Invariant(1500, 20, ("at 0/1A the sums were orders 1, payments 2",))
    text = drawn(replace(PROGRESS, invariant=broken))
    assert "BROKEN: at 0/1A the sums were" in text
    assert "never" not in text

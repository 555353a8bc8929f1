"""One seed of chaos over a pipeline into RabbitMQ, which dies, blocks and is cut off."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.into_rabbitmq import IntoRabbitMq
from tests.crash.queue_seed import PROCESS_FAULTS, run_queue_seed
from tests.rabbitmq_server import RabbitServer

_LONGEST_SECONDS = 8.0


def _kill_server(injured: IntoRabbitMq, amount: float) -> str:
    injured.rabbit.kill()
    return _away(injured, amount)


def _restart_server(injured: IntoRabbitMq, amount: float) -> str:
    injured.rabbit.stop()
    return _away(injured, amount)


def _away(injured: IntoRabbitMq, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    time.sleep(seconds)
    injured.rabbit.start()
    return f"away for {seconds:.1f} s"


def _cut(injured: IntoRabbitMq, _amount: float) -> str:
    return f"{injured.rabbit.proxy.cut()} connections"


def _refuse(injured: IntoRabbitMq, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    injured.rabbit.proxy.refuse()
    time.sleep(seconds)
    injured.rabbit.proxy.accept()
    return f"for {seconds:.1f} s"


def _silence(injured: IntoRabbitMq, amount: float) -> str:
    seconds = amount * _LONGEST_SECONDS
    injured.rabbit.proxy.silence(seconds)
    return f"for {seconds:.1f} s"


def _block(injured: IntoRabbitMq, amount: float) -> str:
    """It is short of memory, and stops reading from whoever publishes."""
    seconds = amount * _LONGEST_SECONDS
    injured.rabbit.control("set_vm_memory_high_watermark", "0")
    time.sleep(seconds)
    injured.rabbit.control("set_vm_memory_high_watermark", "absolute", "1GB")
    return f"for {seconds:.1f} s"


FAULTS: dict[str, Callable[[IntoRabbitMq, float], str]] = {
    "server killed": _kill_server,
    "server restarted": _restart_server,
    "connections cut": _cut,
    "connections refused": _refuse,
    "connections silent": _silence,
    "publishers blocked": _block,
    **PROCESS_FAULTS,
}


def run_into(
    report: SeedReport, count: int, server: EmbeddedPostgres, folder: Path, say: Say = print
) -> None:
    with (
        RabbitServer() as rabbit,
        IntoRabbitMq(server, rabbit, folder, int(report.seed)) as injured,
    ):
        run_queue_seed(report, count, injured, FAULTS, say)

"""An error that is ours reaches a person as one message; traces are for `--debug`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from penstock.destination.files.committed_files import list_files
from tests.fix_pipeline import PipelineUnderTest, wait_until

TRACES = ("Traceback", "py4j", "Py4J", "org.apache.spark", "PENSTOCK-ERROR")


@pytest.fixture
def shop(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    out = str(pipeline.folder / "out")
    pipeline.configure(destination={"type": "files", "path": out, "format": "ndjson"})
    return pipeline


def command(shop: PipelineUnderTest, *before: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *before, "run", str(shop.file)]


@pytest.mark.slow
def test_what_fails_on_an_executor_is_one_message(shop: PipelineUnderTest) -> None:
    shop.subscribe()
    shop.execute("INSERT INTO items VALUES (1, 'a')")
    shop.capture_all()
    (segment, *_) = sorted((Path(shop.log.root.path) / "segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)

    quiet = subprocess.run(command(shop), capture_output=True, text=True, check=False)
    said = quiet.stdout + quiet.stderr
    assert quiet.returncode == 1, said
    assert not [trace for trace in TRACES if trace in said], said
    assert said.count("is torn, truncated or altered") == 1
    *_, error, remedy = quiet.stderr.splitlines()
    assert error.startswith("Error: segment ")
    assert remedy.startswith("What to do: restore the file from a backup")

    loud = subprocess.run(command(shop, "--debug"), capture_output=True, text=True, check=False)
    assert loud.returncode == 1
    assert "Traceback" in loud.stderr
    assert "org.apache.spark" in loud.stderr


@contextmanager
def streaming(shop: PipelineUnderTest) -> Iterator[subprocess.Popen[str]]:
    """`penstock run` at a moment when its workers have written something."""
    process = subprocess.Popen(
        command(shop),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: (
                process.poll() is not None
                or (shop.log.capture_report() or {}).get("state") == "streaming"
            ),
            "capture streams",
            timeout=120,
        )
        shop.execute("INSERT INTO items VALUES (1, 'a')")
        wait_until(
            lambda: (
                process.poll() is not None
                or list_files(shop.folder / "out", shop.name, "public.items")
            ),
            "the change is delivered",
            timeout=120,
        )
        assert process.poll() is None
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _has_jvm(pid: int) -> bool:
    try:
        return any("java" in child.name() for child in psutil.Process(pid).children(True))
    except psutil.NoSuchProcess:
        return False


def to_the_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGTERM)


def to_each_process(process: subprocess.Popen[str]) -> None:
    """As systemd stops a service: the processes of its control group, one by one."""
    for member in [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]:
        with suppress(psutil.NoSuchProcess):  # one may end because another did
            member.terminate()


ONE_WAY = pytest.mark.parametrize(
    "stop", [pytest.param(to_the_group, marks=pytest.mark.release), to_each_process]
)


@pytest.mark.slow
@ONE_WAY
def test_a_signal_for_all_processes_while_they_start(
    shop: PipelineUnderTest, stop: Callable[[subprocess.Popen[str]], None]
) -> None:
    process = subprocess.Popen(
        command(shop),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: _has_jvm(process.pid), "Spark starts")
        stop(process)
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    assert "stopped" in err
    assert not [trace for trace in (*TRACES, "Error") if trace in out + err], err


@pytest.mark.slow
@ONE_WAY
def test_a_signal_for_all_processes_stops_in_order(
    shop: PipelineUnderTest, stop: Callable[[subprocess.Popen[str]], None]
) -> None:
    with streaming(shop) as process:
        family = psutil.Process(process.pid).children(recursive=True)
        stop(process)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "stopped; the destination holds" in err
    assert not [trace for trace in TRACES if trace in out + err], err
    _, alive = psutil.wait_procs(family, timeout=120)
    assert not alive

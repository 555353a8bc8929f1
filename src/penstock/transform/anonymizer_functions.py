"""What the extension ``anon`` of a database can do for a rule, and whether that stays the same.

The driver asks about a call once a run. What it hears goes to the executors, which ask again in
every new session and try known values beside every batch: a function that gives something else
than at the start changes no row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import SourceUnavailable
from penstock.transform.anonymizer_session import (
    RefusedCallError,
    Session,
    kept_session,
    own_session,
)
from penstock.transform.transformers.contract import UnfitError, ValueRefusedError

VALUE: Final = "{value}"
Argument = str | int | float | bool | None

# Marked by nobody, so volatile for Postgres, though they only pass on to a function of pg_catalog
# (sql/anon.sql of versions 2.x). age and now are not among them: they depend on the clock.
STEADY: Final = frozenset(
    {
        *("concat", "date_add", "date_part", "date_subtract", "date_trunc", "left", "length"),
        *("lower", "make_date", "make_time", "md5", "regexp_replace", "replace", "right"),
        *("substr", "ternary", "to_char", "to_date", "to_number", "to_timestamp", "upper"),
    }
)
# Marked as immutable or stable, though what they give depends on tables or roles.
UNSTEADY: Final = frozenset({"column_exists", "hasmask", "k_anonymity", "notice_if_not_init"})
_NO_VALUES = frozenset({"void", "trigger", "event_trigger", "record", "internal"})

_EXTENSION = sql.SQL(
    "SELECT e.oid, e.extversion, n.oid, n.nspname FROM pg_catalog.pg_extension e"
    " JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace"
    " WHERE e.extname OPERATOR(pg_catalog.=) 'anon'"
)
_FUNCTIONS = sql.SQL(
    "SELECT p.prokind::text, p.proretset, p.provolatile::text,"
    " pg_catalog.format_type(p.prorettype, NULL), p.pronargs - p.pronargdefaults, p.pronargs,"
    " EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = p.oid AND d.refobjid = {extension}"
    "  AND d.classid = 'pg_catalog.pg_proc'::regclass"
    "  AND d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.deptype = 'e')"
    " FROM pg_catalog.pg_proc p WHERE p.pronamespace = {schema} AND p.proname = {name}"
)
_DEFINITIONS = sql.SQL(
    "SELECT pg_catalog.md5(pg_catalog.string_agg(pg_catalog.pg_get_functiondef(p.oid), ''"
    ' ORDER BY p.oid::regprocedure::text COLLATE "C"))'
    " FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_depend d ON d.objid = p.oid"
    " WHERE d.refobjid = {extension} AND d.classid = 'pg_catalog.pg_proc'::regclass"
    " AND d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.deptype = 'e'"
    " AND p.prokind <> 'a'"
)
_TABLES = sql.SQL(
    "SELECT n.nspname, c.relname, pg_catalog.has_table_privilege(c.oid, 'SELECT')"
    " AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " JOIN pg_catalog.pg_depend d ON d.objid = c.oid"
    " WHERE d.refobjid = {extension} AND d.classid = 'pg_catalog.pg_class'::regclass"
    " AND d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.deptype = 'e'"
    " AND c.relkind = 'r' ORDER BY 1, 2"
)
_CONTENT = sql.SQL(
    "SELECT count(*), sum(pg_catalog.hashtextextended(t::text, 0)::numeric)::text FROM {} t"
)

_WORDS = (
    *("anna@example.com", "Bob Builder", "+49 30 123456", "42", "2001-02-03", "Hauptstr. 5"),
    *("DE89370400440532013000", "x"),
)
_NUMBERS = ("0", "1", "42", "-7", "31999")
_PROBES: Final[dict[str, Sequence[str]]] = {
    "text": _WORDS,
    "integer": _NUMBERS,
    "numeric": (*_NUMBERS, "0.5"),
    "float": (*_NUMBERS, "0.5"),
    "boolean": ("t", "f"),
    "date": ("2001-02-03", "1970-01-01", "1985-12-31"),
    "time": ("04:05:06", "00:00:00"),
    "timestamp": ("2001-02-03 04:05:06", "1970-01-01 00:00:00"),
    "uuid": ("00000000-0000-0000-0000-000000000001", "5baa61e4-c9b9-43f3-8682-250b6cf8331b"),
    "ip": ("192.0.2.1", "2001:db8::1"),
    "json": ('{"a": 1}', "[]"),
    "bytea": ("\\x", "\\x00ff"),
    "point": ("(0,0)", "(1,2)"),
}
FAMILIES: Final = frozenset(_PROBES)


@dataclass(frozen=True, eq=False)
class MaskingCall:
    """A function with its arguments, and the type of the column: ``kind`` as Postgres spells it,
    and its ``family``.
    """

    function: str
    arguments: tuple[Argument, ...]
    kind: str
    family: str
    random: bool = False

    # Arguments that Python takes for equal (1, 1.0 and true) may mean another function.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, MaskingCall) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def takes_value(self) -> bool:
        return VALUE in self.arguments

    @property
    def constants(self) -> list[Argument]:
        return [each for each in self.arguments if each != VALUE]


@dataclass(frozen=True)
class Known:
    """What the extension of a database makes of a call. ``mark`` is another one where it may give
    something else; empty of what draws. ``probes`` are values, and what became of them.
    """

    schema: str
    mark: str
    probes: tuple[tuple[str, str | None], ...] = ()


class AnonymizerFunctions:
    """The functions of one database. Can be pickled, with what is known of them."""

    def __init__(self, url: ConnectionUrl | None) -> None:
        self._url = url
        self._known: dict[MaskingCall, Known] = {}

    def known(self, call: MaskingCall) -> Known:
        """What the database says of a call, the first time that it is asked.

        Raises UnfitError where there is no such function, or where it does not suit, and
        SourceUnavailable.
        """
        if call not in self._known:
            with own_session(self._required_url()) as session:
                self._known[call] = ask(session, call)
        return self._known[call]

    def applied(self, call: MaskingCall, values: Sequence[str]) -> list[str | None]:
        """What the function makes of values: one statement.

        Raises ValueRefusedError, SourceUnavailable, and UnfitError where the function is another
        one than at the start.
        """
        known, url = self.known(call), self._required_url()
        with kept_session(url) as session:
            was_kept = bool(session.checked)
            try:
                return _applied(session, call, known, values)
            except SourceUnavailable:
                if not (was_kept and session.is_broken):
                    raise
            except OtherFunctionError:
                if not was_kept:
                    raise
                session.close()
        # It may have been cut since, or have settings that are others by now: a new one tells.
        with kept_session(url) as session:
            return _applied(session, call, known, values)

    def _required_url(self) -> ConnectionUrl:
        if self._url is None:
            raise UnfitError("nobody said which database has the functions (transform.anonymizer)")
        return self._url


class OtherFunctionError(UnfitError):
    """The function gives something else than when the pipeline was started."""

    def __init__(self, call: MaskingCall) -> None:
        super().__init__(
            f"anon.{call.function} gives other values than when the pipeline was started (another "
            "salt, version, dictionary or server): after a new start the table is copied anew"
        )


def _applied(
    session: Session, call: MaskingCall, known: Known, values: Sequence[str]
) -> list[str | None]:
    if (call, known.mark) not in session.checked:
        if ask(session, call).mark != known.mark:
            raise OtherFunctionError(call)
        session.checked.add((call, known.mark))
    found = _called(session, call, known.schema, [*values, *(value for value, _ in known.probes)])
    if found[len(values) :] != [made for _, made in known.probes]:
        raise OtherFunctionError(call)
    return found[: len(values)]


def _called(
    session: Session, call: MaskingCall, schema: str, values: Sequence[str]
) -> list[str | None]:
    """One value for each; random functions without the value are only told how many."""
    given: Any = list(values) if call.takes_value else len(values)
    return session.texts(call.function, statement(schema, call), [*call.constants, given])


def statement(schema: str, call: MaskingCall) -> sql.Composed:
    """The query that calls the function for many values, in their order."""
    kind = sql.SQL(call.kind)
    value = sql.SQL("CAST(given.value AS {})").format(kind)
    arguments = [value if each == VALUE else sql.Placeholder() for each in call.arguments]
    rows = (
        "pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS given (value, place)"
        if call.takes_value
        else "pg_catalog.generate_series(1, %s::bigint) AS given (place)"
    )
    return sql.SQL("SELECT CAST({}({}) AS {}) FROM {} ORDER BY given.place").format(
        sql.Identifier(schema, call.function),
        sql.SQL(", ").join(arguments),
        kind,
        sql.SQL(rows),
    )


def ask(session: Session, call: MaskingCall) -> Known:
    """What the database says of a call. Raises UnfitError and SourceUnavailable."""
    found = session.rows(_EXTENSION)
    if not found:
        raise UnfitError(
            "the database has no extension anon (PostgreSQL Anonymizer): install it, run CREATE "
            "EXTENSION anon, and SELECT anon.init()"
        )
    ((extension, version, namespace, schema),) = found
    volatility = _volatility(session, call, extension, namespace, version)
    _expect_callable(session, call, schema)
    probes = _probed(session, call, schema)
    _expect_values(call, [made for _, made in probes])
    if call.random:
        return Known(schema, "")
    names = {"extension": sql.Literal(extension)}
    state: list[Any] = [version, session.rows(_DEFINITIONS.format(**names))]
    if volatility == "s":
        state.append(_dictionaries(session, extension))
    state.append(probes)
    mark = hashlib.sha256(json.dumps(state, default=str).encode()).hexdigest()[:32]
    kept = tuple((value, made) for value, made in probes if not isinstance(made, _Refused))
    return Known(schema, mark, kept if call.takes_value else ())


def _volatility(
    session: Session, call: MaskingCall, extension: int, namespace: int, version: str
) -> str:
    """The worst of all functions that the call can mean. Raises UnfitError."""
    query = _FUNCTIONS.format(
        extension=sql.Literal(extension),
        schema=sql.Literal(namespace),
        name=sql.Literal(call.function),
    )
    found = session.rows(query)
    name, count = f"anon.{call.function}", len(call.arguments)
    if not any(is_member for *_, is_member in found):
        raise UnfitError(f"the extension anon (version {version}) has no function {name}")
    if not all(is_member for *_, is_member in found):
        raise UnfitError(
            f"beside the extension's {name} there is one of that name which is not the "
            "extension's: it could be called in its place"
        )
    meant = [each for each in found if each[4] <= count <= each[5]]
    if not meant:
        raise UnfitError(f"{name} does not take {count} arguments")
    for kind, is_set, _, gives, *_rest in meant:
        if kind != "f" or is_set or gives in _NO_VALUES:
            raise UnfitError(f"{name} does not give one value for one value")
    volatilities = {each[2] for each in meant}
    is_drawn = ("v" in volatilities and call.function not in STEADY) or call.function in UNSTEADY
    if is_drawn and not call.random:
        raise UnfitError(
            f"{name} need not give the same value again (it draws, or hangs on more than the "
            "value), so a row that is copied and the same row streamed would differ: say `random: "
            "true` if that may be"
        )
    return "s" if "s" in volatilities else "i"


_REASONS = {
    "42883": "does not take such arguments",
    "42725": "is there several times for such arguments",
    "42846": "does not take or give what can be cast to the column's type",
    "42804": "does not take or give what can be cast to the column's type",
    "42501": "may not be called by the role (or something that it uses)",
}


def _expect_callable(session: Session, call: MaskingCall, schema: str) -> None:
    """Raise UnfitError where the server does not even take the statement, for no value at all."""
    try:
        _called(session, call, schema, [])
    except RefusedCallError as error:
        raise _explained(call, error) from None
    except ValueRefusedError as error:
        raise UnfitError(f"an argument is wrong: {error.why}") from None


def _explained(call: MaskingCall, error: RefusedCallError) -> UnfitError:
    why = _REASONS.get(error.sqlstate, "is refused")
    return UnfitError(f"anon.{call.function} {why} ({call.kind}; SQLSTATE {error.sqlstate})")


def _expect_values(call: MaskingCall, made: Sequence[str | None]) -> None:
    """Raise UnfitError where no probe gave anything."""
    taken = [text for text in made if not isinstance(text, _Refused)]
    if not taken:
        raise UnfitError(
            f"{made[0]}, and each of the others that were tried: what it gives may be no "
            f"{call.kind}, and nobody could tell whether it stays the same"
        )
    if all(text is None for text in taken):
        raise UnfitError(
            f"anon.{call.function} gives null for every value that was tried: its dictionaries may "
            "not be loaded (SELECT anon.init()), or an argument is wrong"
        )


class _Refused(str):
    """Why a probe was refused."""

    __slots__ = ()


def _probed(session: Session, call: MaskingCall, schema: str) -> list[tuple[str, str | None]]:
    """Known values, and what becomes of each. Raises UnfitError and SourceUnavailable."""
    found: list[tuple[str, str | None]] = []
    for value in _PROBES[call.family] if call.takes_value else [""]:
        try:
            found.append((value, _called(session, call, schema, [value])[0]))
        except RefusedCallError as error:
            raise _explained(call, error) from None
        except ValueRefusedError as error:
            found.append((value, _Refused(error.why)))
    return found


def _dictionaries(session: Session, extension: int) -> list[Any]:
    """What tells the extension's tables from others; of those that may not be read their names."""
    found: list[Any] = []
    for schema, name, is_readable in session.rows(_TABLES.format(extension=sql.Literal(extension))):
        table = sql.Identifier(schema, name)
        content = session.rows(_CONTENT.format(table)) if is_readable else None
        found.append([schema, name, content])
    return found

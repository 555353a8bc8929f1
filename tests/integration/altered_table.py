"""A table with one of everything, and the statements that change it."""

from __future__ import annotations

SETUP = """
CREATE SCHEMA moved;
CREATE TYPE mood AS ENUM ('sad', 'calm');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN price AS numeric(10, 2) CONSTRAINT positive CHECK (VALUE >= 0);
CREATE TYPE span AS RANGE (subtype = int4, multirange_type_name = spans);
CREATE TABLE t (
    id int PRIMARY KEY,
    a int CONSTRAINT a_positive CHECK (a > 0),
    b text DEFAULT 'none',
    c varchar(10) DEFAULT 'x',
    m mood DEFAULT 'sad',
    p pair,
    d price,
    r span,
    n int NOT NULL,
    g int GENERATED ALWAYS AS (n + 1) STORED,
    u text NOT NULL CONSTRAINT u_one UNIQUE,
    s serial,
    i bigint GENERATED ALWAYS AS IDENTITY
);
CREATE INDEX by_b ON t (lower(b), a) WHERE m = 'sad'::mood;
CREATE UNIQUE INDEX n_one ON t (n);
CREATE INDEX by_g ON t (g);
INSERT INTO t (id, a, b, c, m, p, d, r, n, u) VALUES
    (1, 11, 'Blue', '1', 'sad', '(1,one)', 1.5, '[1,2)', 1, 'x'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, 'y'),
    (3, 33, 'Red', '3', 'calm', '(,)', 0, 'empty', 3, 'z');
"""

CASES: dict[str, str | tuple[str, ...]] = {
    "rename table": 'ALTER TABLE t RENAME TO "New t"',
    "set schema": "ALTER TABLE t SET SCHEMA moved",
    "rename and back": ("ALTER TABLE t RENAME TO x", "ALTER TABLE x RENAME TO t"),
    "add column": "ALTER TABLE t ADD COLUMN k int",
    "add with constant": "ALTER TABLE t ADD COLUMN k int NOT NULL DEFAULT 7",
    "add with text": "ALTER TABLE t ADD COLUMN k text DEFAULT E'it''s \"50%\", \\\\{}'",
    "add with null text": "ALTER TABLE t ADD COLUMN k text DEFAULT 'NULL'",
    "add with empty text": "ALTER TABLE t ADD COLUMN k text NOT NULL DEFAULT ''",
    "add with array": "ALTER TABLE t ADD COLUMN k int[] DEFAULT '{1,2,NULL}'",
    "add with bytes": "ALTER TABLE t ADD COLUMN k bytea DEFAULT '\\x00ff'",
    "add with enum": "ALTER TABLE t ADD COLUMN k mood[] DEFAULT '{calm}'",
    "add with composite": "ALTER TABLE t ADD COLUMN k pair DEFAULT '(1,\"a,b\")'",
    "add with stable default": "ALTER TABLE t ADD COLUMN k timestamptz NOT NULL DEFAULT now()",
    "add then default": "ALTER TABLE t ADD COLUMN k int, ALTER COLUMN k SET DEFAULT 7",
    "add with volatile default": "ALTER TABLE t ADD COLUMN k float NOT NULL DEFAULT random()",
    "add serial": "ALTER TABLE t ADD COLUMN k smallserial",
    "add identity": "ALTER TABLE t ADD COLUMN k int GENERATED ALWAYS AS IDENTITY",
    "add generated": "ALTER TABLE t ADD COLUMN k int GENERATED ALWAYS AS (a * 2) STORED",
    "add two": "ALTER TABLE t ADD k varchar(5) COLLATE \"C\" DEFAULT 'q', ADD l numeric(5, 1)[]",
    "add with new type": (
        "CREATE TYPE moved.\"New\" AS ENUM ('a', 'b')",
        "ALTER TABLE t ADD COLUMN k moved.\"New\" DEFAULT 'b'",
    ),
    "add with new domain": (
        "CREATE DOMAIN low AS int DEFAULT 3 CHECK (VALUE < 9)",
        "ALTER TABLE t ADD COLUMN k low",
    ),
    "drop column": "ALTER TABLE t DROP COLUMN a",
    "drop generated with its base": "ALTER TABLE t DROP COLUMN n CASCADE",
    "drop several": "ALTER TABLE t DROP COLUMN c, DROP COLUMN g, DROP COLUMN s, DROP COLUMN i",
    "drop and add": "ALTER TABLE t DROP COLUMN a, ADD COLUMN a text DEFAULT 'new'",
    "drop key column": "ALTER TABLE t DROP COLUMN id",
    "rename column": 'ALTER TABLE t RENAME COLUMN b TO "Be"',
    "rename base of generated": "ALTER TABLE t RENAME COLUMN n TO number",
    "rename key": "ALTER TABLE t RENAME COLUMN id TO key",
    "int to bigint": "ALTER TABLE t ALTER COLUMN a TYPE bigint",
    "text to varchar": "ALTER TABLE t ALTER COLUMN u TYPE varchar(9)",
    "varchar wider": "ALTER TABLE t ALTER COLUMN c TYPE varchar(20)",
    "varchar to text": "ALTER TABLE t ALTER COLUMN c TYPE text",
    "text to int": (
        "ALTER TABLE t ALTER COLUMN c DROP DEFAULT",
        "ALTER TABLE t ALTER COLUMN c TYPE int USING c::int",
    ),
    "text to length": (
        "DROP INDEX by_b",
        "ALTER TABLE t ALTER b DROP DEFAULT, ALTER b TYPE int USING length(b)",
    ),
    "not null to new type": "ALTER TABLE t ALTER COLUMN u TYPE date USING '2020-01-01'::date + n",
    "key to new type": "ALTER TABLE t ALTER id TYPE uuid USING lpad(id::text, 32, '0')::uuid",
    "enum to text": ("DROP INDEX by_b", "ALTER TABLE t ALTER m DROP DEFAULT, ALTER m TYPE text"),
    "enum to new enum": (
        "DROP INDEX by_b",
        "ALTER TABLE t ALTER m DROP DEFAULT",
        "ALTER TYPE mood RENAME TO mood_old",
        "CREATE TYPE mood AS ENUM ('calm', 'sad', 'wild')",
        "ALTER TABLE t ALTER m TYPE mood USING m::text::mood",
        "DROP TYPE mood_old",
    ),
    "domain to numeric": "ALTER TABLE t ALTER COLUMN d TYPE numeric(12, 2)",
    "collation": 'ALTER TABLE t ALTER COLUMN c TYPE varchar(10) COLLATE "C"',
    "set not null": ("UPDATE t SET a = 5", "ALTER TABLE t ALTER COLUMN a SET NOT NULL"),
    "drop not null": "ALTER TABLE t ALTER COLUMN u DROP NOT NULL",
    "set default": "ALTER TABLE t ALTER COLUMN a SET DEFAULT 5 + 1",
    "drop default": "ALTER TABLE t ALTER COLUMN c DROP DEFAULT",
    "change default": "ALTER TABLE t ALTER COLUMN m SET DEFAULT 'calm'",
    "add identity to column": "ALTER TABLE t ALTER n ADD GENERATED ALWAYS AS IDENTITY",
    "drop identity": "ALTER TABLE t ALTER COLUMN i DROP IDENTITY",
    "identity by default": "ALTER TABLE t ALTER COLUMN i SET GENERATED BY DEFAULT",
    "serial to identity": (
        "ALTER TABLE t ALTER COLUMN s DROP DEFAULT",
        "DROP SEQUENCE t_s_seq",
        "ALTER TABLE t ALTER COLUMN s ADD GENERATED BY DEFAULT AS IDENTITY",
    ),
    "own sequence": (
        "CREATE SEQUENCE q OWNED BY t.n",
        "ALTER TABLE t ALTER COLUMN n SET DEFAULT nextval('q')",
    ),
    "rename sequence": 'ALTER SEQUENCE t_s_seq RENAME TO "S"',
    "serial to bigint": "ALTER TABLE t ALTER COLUMN s TYPE bigint",
    "drop expression": "ALTER TABLE t ALTER COLUMN g DROP EXPRESSION",
    "set expression": "ALTER TABLE t ALTER COLUMN g SET EXPRESSION AS (n * 10)",
    "drop key": "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "other key": "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n, u)",
    "identity full": "ALTER TABLE t REPLICA IDENTITY FULL",
    "identity index": "ALTER TABLE t REPLICA IDENTITY USING INDEX n_one",
    "identity index and back": (
        "ALTER TABLE t REPLICA IDENTITY USING INDEX n_one",
        "ALTER TABLE t REPLICA IDENTITY DEFAULT",
    ),
    "add index": "CREATE INDEX added ON t USING hash (u)",
    "drop index": "DROP INDEX by_b",
    "rename index": 'ALTER INDEX by_b RENAME TO "By b"',
    "swap indexes": (
        "ALTER INDEX by_b RENAME TO x",
        "ALTER INDEX n_one RENAME TO by_b",
        "ALTER INDEX x RENAME TO n_one",
    ),
    "index parameters": "ALTER INDEX by_g SET (fillfactor = 70)",
    "constraint from index": "ALTER TABLE t ADD CONSTRAINT n_key UNIQUE USING INDEX n_one",
    "add check": "ALTER TABLE t ADD CONSTRAINT added CHECK (n < 100)",
    "add loose check": "ALTER TABLE t ADD CONSTRAINT added CHECK (n < 2) NOT VALID",
    "validate check": (
        "ALTER TABLE t ADD CONSTRAINT added CHECK (n < 100) NOT VALID",
        "ALTER TABLE t VALIDATE CONSTRAINT added",
    ),
    "rename check": 'ALTER TABLE t RENAME CONSTRAINT a_positive TO "A > 0"',
    "drop check": "ALTER TABLE t DROP CONSTRAINT a_positive",
    "drop unique": "ALTER TABLE t DROP CONSTRAINT u_one",
    "add deferrable": "ALTER TABLE t ADD CONSTRAINT later UNIQUE (c) DEFERRABLE",
    "exclude": "ALTER TABLE t ADD CONSTRAINT apart EXCLUDE USING gist (r WITH &&)",
    "add value": "ALTER TYPE mood ADD VALUE 'wild'",
    "add value before": "ALTER TYPE mood ADD VALUE 'it''s' BEFORE 'sad'",
    "add value after": "ALTER TYPE mood ADD VALUE 'so so' AFTER 'sad'",
    "rename value": "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
    "rename type": 'ALTER TYPE mood RENAME TO "Mood"',
    "move type": "ALTER TYPE mood SET SCHEMA moved",
    "add attribute": "ALTER TYPE pair ADD ATTRIBUTE z date",
    "drop attribute": "ALTER TYPE pair DROP ATTRIBUTE y",
    "rename attribute": 'ALTER TYPE pair RENAME ATTRIBUTE x TO "X"',
    "domain default": "ALTER DOMAIN price SET DEFAULT 5",
    "domain constraint": 'ALTER DOMAIN price ADD CONSTRAINT "Low" CHECK (VALUE < 100)',
    "domain without": "ALTER DOMAIN price DROP CONSTRAINT positive",
    "domain not null": ("UPDATE t SET d = 1", "ALTER DOMAIN price SET NOT NULL"),
    "rename domain": "ALTER DOMAIN price RENAME TO cost",
    "rename range": "ALTER TYPE span RENAME TO span2",
    # Several statements that arrive as one change.
    "swap columns": (
        "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME n TO a; ALTER TABLE t RENAME x TO n"
    ),
    "chain of names": (
        "ALTER TABLE t DROP b; ALTER TABLE t RENAME c TO b; ALTER TABLE t RENAME u TO c;"
        "ALTER TABLE t ADD u int DEFAULT 4"
    ),
    "rename and move": "ALTER TABLE t RENAME TO y; ALTER TABLE y SET SCHEMA moved",
    "key passes on": (
        "ALTER TABLE t DROP id; ALTER TABLE t RENAME i TO id; ALTER TABLE t ADD PRIMARY KEY (id)"
    ),
    "values at once": (
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'; ALTER TYPE mood ADD VALUE 'x' BEFORE 'calm';"
        "ALTER TYPE mood ADD VALUE 'y' AFTER 'x'; ALTER TYPE mood RENAME TO mood2"
    ),
    "rename multirange": "ALTER TYPE spans RENAME TO spans2",
}

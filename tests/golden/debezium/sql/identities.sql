-- The same changes under each replica identity.
CREATE TABLE by_default (id integer PRIMARY KEY, code text NOT NULL, note text, amount numeric(8,2) NOT NULL, born date NOT NULL, at timestamptz NOT NULL, flag boolean NOT NULL, tags text[] NOT NULL, data bytea NOT NULL, ratio double precision NOT NULL, doc jsonb NOT NULL, key uuid NOT NULL, seen timestamp NOT NULL, clock time NOT NULL, span interval NOT NULL);
CREATE TABLE in_full (id integer PRIMARY KEY, code text NOT NULL, note text);
ALTER TABLE in_full REPLICA IDENTITY FULL;
CREATE TABLE by_index (id integer PRIMARY KEY, code text NOT NULL, note text);
CREATE UNIQUE INDEX by_index_code ON by_index (code);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code;
CREATE TABLE index_alone (code text NOT NULL, note text);
CREATE UNIQUE INDEX index_alone_code ON index_alone (code);
ALTER TABLE index_alone REPLICA IDENTITY USING INDEX index_alone_code;
CREATE TABLE of_nothing (id integer PRIMARY KEY, note text);
CREATE TABLE keyless (id integer, note text);
CREATE TABLE keyless_in_full (id integer, note text);
ALTER TABLE keyless_in_full REPLICA IDENTITY FULL;

-- streamed
INSERT INTO by_default VALUES (1, 'a', 'x', 1.5, '2026-01-15', '2026-01-15 12:00+00', true, '{a}', '\x00', 0.5, '{}', '0b6f1d5e-2f5b-4d09-9d51-3a9e3a3d7f10', '2026-01-15 12:00', '12:00', '1 hour');
UPDATE by_default SET note = 'y' WHERE id = 1;
UPDATE by_default SET id = 2 WHERE id = 1;
DELETE FROM by_default WHERE id = 2;
INSERT INTO in_full VALUES (1, 'a', 'x');
UPDATE in_full SET note = 'y' WHERE id = 1;
UPDATE in_full SET id = 2, note = NULL WHERE id = 1;
DELETE FROM in_full WHERE id = 2;
INSERT INTO by_index VALUES (1, 'a', 'x');
UPDATE by_index SET note = 'y' WHERE id = 1;
UPDATE by_index SET code = 'b' WHERE id = 1;
UPDATE by_index SET id = 2 WHERE id = 1;
UPDATE by_index SET id = 3, code = 'c' WHERE id = 2;
DELETE FROM by_index WHERE id = 3;
INSERT INTO index_alone VALUES ('a', 'x');
UPDATE index_alone SET note = 'y';
UPDATE index_alone SET code = 'b';
DELETE FROM index_alone;
INSERT INTO of_nothing VALUES (1, 'x');
INSERT INTO keyless VALUES (1, 'x');
INSERT INTO keyless_in_full VALUES (1, 'x');
UPDATE keyless_in_full SET note = 'y';
DELETE FROM keyless_in_full;

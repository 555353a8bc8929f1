CREATE TABLE items (id integer PRIMARY KEY);

-- streamed
BEGIN;
INSERT INTO items VALUES (1);
SELECT pg_logical_emit_message(true, 'audit', 'hello "wörld"');
INSERT INTO items VALUES (2);
COMMIT;
SELECT pg_logical_emit_message(false, 'metrics', '\x00ff'::bytea);
SELECT pg_logical_emit_message(true, '', '');

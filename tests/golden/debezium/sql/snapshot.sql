-- Rows that are there before the stream, and one that comes after them.
CREATE TABLE items (id integer PRIMARY KEY, name text, price numeric(8,2));
CREATE TABLE keyless (note text);
INSERT INTO items VALUES (1, 'first', 1.50), (2, NULL, NULL), (3, 'third', -2.25);
INSERT INTO keyless VALUES ('alone');

-- streamed
INSERT INTO items VALUES (4, 'streamed', 0);

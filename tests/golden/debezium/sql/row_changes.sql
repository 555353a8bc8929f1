-- Inserts, updates and deletes of a plain table, and what becomes of a key that changes.
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    email text NOT NULL,
    visits integer NOT NULL,
    balance numeric(10,2),
    note varchar(40),
    active boolean NOT NULL,
    updated timestamptz
);
CREATE TABLE order_lines (
    order_id integer,
    "line No" smallint,
    product uuid NOT NULL,
    PRIMARY KEY ("line No", order_id)
);

-- streamed
INSERT INTO customers VALUES (1, 'ann@example.org', 3, 10.50, 'first', true, '2026-01-15 12:34:56.789+00');
INSERT INTO customers VALUES (2, 'bob "the\builder"@example.org', 0, NULL, NULL, false, NULL);
UPDATE customers SET visits = visits + 1, balance = -0.01 WHERE id = 1;
UPDATE customers SET id = 3 WHERE id = 2;
DELETE FROM customers WHERE id = 1;
INSERT INTO order_lines VALUES (7, 1, '0b6f1d5e-2f5b-4d09-9d51-3a9e3a3d7f10');
UPDATE order_lines SET "line No" = 2 WHERE order_id = 7;
DELETE FROM order_lines WHERE order_id = 7;
BEGIN;
INSERT INTO customers VALUES (4, 'one', 1, 1, NULL, true, NULL);
UPDATE customers SET email = 'two' WHERE id = 4;
DELETE FROM customers WHERE id = 4;
COMMIT;

CREATE TABLE orders (id integer PRIMARY KEY, note text);
CREATE TABLE lines (id integer PRIMARY KEY, order_id integer);

-- streamed
BEGIN;
INSERT INTO orders VALUES (1, 'a');
INSERT INTO lines VALUES (1, 1), (2, 1);
UPDATE orders SET note = 'b' WHERE id = 1;
UPDATE lines SET id = 3 WHERE id = 2;
COMMIT;
DELETE FROM lines WHERE id = 1;

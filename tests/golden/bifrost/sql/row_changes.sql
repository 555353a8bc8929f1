-- Inserts, updates and deletes under the default replica identity and under FULL.
CREATE TABLE customers (id serial PRIMARY KEY, first_name text, last_name text);
CREATE TABLE products (id serial PRIMARY KEY, sku integer, name text);
ALTER TABLE products REPLICA IDENTITY FULL;

-- streamed
INSERT INTO customers (first_name, last_name) VALUES ('Hello', 'World');
INSERT INTO customers (first_name, last_name) VALUES (NULL, 'it''s "new"');
UPDATE customers SET last_name = 'Friends' WHERE first_name = 'Hello';
UPDATE customers SET id = 7 WHERE id = 2;
DELETE FROM customers WHERE id = 7;
INSERT INTO products (name) VALUES ('widget 1');
UPDATE products SET sku = 42;
UPDATE products SET sku = NULL;
UPDATE products SET name = 'null';
UPDATE products SET name = NULL;
UPDATE products SET name = 'back';
DELETE FROM products;
BEGIN;
INSERT INTO customers VALUES (20, 'a', 'b');
DELETE FROM customers WHERE id = 20;
COMMIT;

-- One table, and two at a time.
CREATE TABLE customers (id integer PRIMARY KEY);
CREATE TABLE orders (id integer PRIMARY KEY);

-- streamed
INSERT INTO customers VALUES (1);
TRUNCATE customers;
TRUNCATE customers, orders;

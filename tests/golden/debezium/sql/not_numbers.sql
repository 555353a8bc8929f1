-- Values of numeric that no decimal holds. With decimal.handling.mode precise the engine fails here.
CREATE TABLE not_numbers (id integer PRIMARY KEY, price numeric(10,2), free numeric, needed numeric(6,2) NOT NULL);

-- streamed
INSERT INTO not_numbers VALUES (1, 'NaN', 'NaN', 1);
INSERT INTO not_numbers VALUES (2, NULL, 'Infinity', 1), (3, NULL, '-Infinity', 'NaN');

-- Everything that decimal.handling.mode touches.
CREATE TABLE numbers (
    id integer PRIMARY KEY,
    price numeric(10,2),
    wide numeric(38,10),
    huge numeric(60,5),
    whole numeric(12,0),
    free numeric,
    cash money,
    prices numeric(10,2)[],
    frees numeric[],
    needed numeric(6,2) NOT NULL,
    needed_free numeric NOT NULL
);
CREATE DOMAIN euros AS numeric(12,2);
CREATE TABLE domain_numbers (id integer PRIMARY KEY, paid euros);
CREATE TABLE rounded (id integer PRIMARY KEY, hundreds numeric(5,-2));
CREATE TABLE keyed_by_numeric (id numeric(10,2) PRIMARY KEY, note text);

-- streamed
INSERT INTO numbers VALUES (1, 0, 0, 0, 0, 0, 0, '{}', '{}', 0, 0);
INSERT INTO numbers VALUES (2, 99999999.99, 1234567890123456789012345678.0123456789, 1234567890123456789012345678901234567890123456789012345.12345, 123456789012, 123456789012345678901234567890.123456789, 92233720368547758.07, '{1.50,NULL,-0.01}', '{1.5,NULL,-0.001,100}', 1, 1.10);
INSERT INTO numbers VALUES (3, -99999999.99, -0.0000000001, -0.00001, -1, -0.000, -92233720368547758.08, '{{1,2},{3,4}}', '{{1,2},{3,4}}', -1, 1e30);
INSERT INTO numbers VALUES (4, -1.28, 1.27, 1.28, 127, 1e-20, 1.28, NULL, NULL, 2.55, 2.56);
INSERT INTO numbers VALUES (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.5, 0.5);
INSERT INTO numbers VALUES (6, -327.68, 327.67, 327.68, 128, -32768, -1.29, NULL, NULL, 0.5, 0.5);
INSERT INTO domain_numbers VALUES (1, 12.34), (2, NULL);
INSERT INTO keyed_by_numeric VALUES (1.25, 'a');
INSERT INTO rounded VALUES (1, 1234500);
DELETE FROM numbers WHERE id = 1;

-- How types are called, and which values stand without quotes.
CREATE TYPE mood AS ENUM ('sad', 'a "good" one');
CREATE SCHEMA other;
CREATE TYPE other."Shade" AS ENUM ('dark');
CREATE DOMAIN price AS numeric(10,2);
CREATE TYPE pair AS (a integer, b text);
CREATE TABLE kinds (
    id bigint PRIMARY KEY,
    a smallint, b integer, c real, d double precision, e numeric(12,3), f oid, g boolean,
    h varchar(10), i char(4), j "char", k name, l bytea, m date, n time(3), o timetz,
    p timestamp, q timestamptz(3), r interval, s uuid, t json, u jsonb, v inet, w money,
    x integer[], y text[], z varchar(5)[], aa mood, ab other."Shade", ac price, ad pair,
    ae int4range, af tsvector, ag point, ah mood[], ai xid8, aj timestamptz[], ak bit(3), al xml
);

-- streamed
INSERT INTO kinds VALUES (1, -2, 3, 1.5, 'NaN', 12345.678, 4294967295, true,
    'var', 'ch', 'c', 'named', '\xdeadbeef', '2026-02-03', '04:05:06.789', '04:05:06+02',
    '2026-02-03 04:05:06.5', '2026-02-03 04:05:06.789+00', '1 day 02:00', '0b6f1d5e-2f5b-4d09-9d51-3a9e3a3d7f10',
    '{"a": 1}', '{"b": [true, null]}', '10.0.0.1', '12.50',
    '{1,NULL,3}', '{a,"b c"}', '{q}', 'a "good" one', 'dark', 9.5, '(1,"x y")',
    '[1,5)', 'a fat cat', '(1,2)', '{sad}', '7', '{2026-02-03 04:05:06+00}', NULL, NULL);
INSERT INTO kinds (id, g) VALUES (2, false);
INSERT INTO kinds (id, ak) VALUES (3, B'101');

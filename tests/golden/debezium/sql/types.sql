-- Every common type with odd values.
CREATE TYPE mood AS ENUM ('calm', 'it''s "odd"', '');
CREATE TYPE pair AS (a integer, b text);
CREATE DOMAIN short_text AS varchar(10);
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE DOMAIN stamped AS timestamp(3);
CREATE TABLE types (
    id integer PRIMARY KEY,
    small smallint,
    number integer,
    big bigint,
    single real,
    ratio double precision,
    flag boolean,
    label text,
    code varchar(40),
    fixed char(6),
    one_char "char",
    ident name,
    data bytea,
    doc json,
    docb jsonb,
    path jsonpath,
    key uuid,
    feels mood,
    address inet,
    network cidr,
    mac macaddr,
    mac8 macaddr8,
    int_span int4range,
    big_span int8range,
    num_span numrange,
    time_span tsrange,
    zone_span tstzrange,
    day_span daterange,
    spans int4multirange,
    spot point,
    ring circle,
    area box,
    one_bit bit,
    two_bits bit(2),
    ten_bits bit(10),
    many_bits bit varying(20),
    any_bits bit varying,
    vector tsvector,
    query tsquery,
    object oid,
    place pg_lsn,
    pairing pair,
    word short_text,
    plus positive,
    stamp stamped,
    numbers integer[],
    bigs bigint[],
    smalls smallint[],
    words text[],
    codes varchar(8)[],
    flags boolean[],
    singles real[],
    ratios double precision[],
    docs jsonb[],
    keys uuid[],
    moods mood[],
    addresses inet[],
    objects oid[],
    short_texts short_text[],
    pairs pair[]
);

-- streamed
INSERT INTO types (id) VALUES (1);
INSERT INTO types VALUES (2, 0, 0, 0, 0, 0, false, '', '', '', '', '', '\x', 'null', 'null', '$', '00000000-0000-0000-0000-000000000000', '', '0.0.0.0/0', '0.0.0.0/0', '00:00:00:00:00:00', '00:00:00:00:00:00:00:00', 'empty', 'empty', 'empty', 'empty', 'empty', 'empty', '{}', '(0,0)', '<(0,0),0>', '(0,0),(0,0)', B'0', B'00', B'0000000000', B'', B'', '', '', 0, '0/0', ROW(NULL, NULL), '', 1, '2026-01-15', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
INSERT INTO types VALUES (3, -32768, -2147483648, -9223372036854775808, -3.4028235e38, -1.7976931348623157e308, true, E'tab\t newline\n return\r backslash\\ bell\x07 quote\' "double" /slash', '😀 ﷽ é', 'é', 'x', 'a name', '\x00ff5c27', '{"b":1,  "a": [1, {}],
 "b":2}', '{"b": 1, "a": [1, {"c": "é"}]}', '$."a"[*]', '0b6f1d5e-2f5b-4d09-9d51-3a9e3a3d7f10', 'it''s "odd"', '10.1.2.3/24', '10.1.2.0/24', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '[1,5)', '[-5,)', '[1.10,2.2]', '[2026-01-15 12:00,2026-01-16)', '[2026-01-15 12:00+02,2026-01-16 00:00+00)', '[2026-01-15,2026-01-17)', '{[1,3),[5,9)}', '(1.5,-2)', '<(1.5,-2),3>', '(2,2),(1,1)', B'1', B'10', B'1010000001', B'10100000011', B'1', 'a:1A ''it''''s'':2B,3', '''a'' & !''b''', 4294967295, 'FFFFFFFF/FFFFFFFF', ROW(1, 'x "y"'), 'word', 5, '2026-01-15 12:34:56.789', '{1,NULL,-3}', '{1,NULL,-9223372036854775808}', '{1,NULL}', ARRAY['a', NULL, 'b "c", {d}', ''], '{abc,NULL}', '{t,f,NULL}', '{1.5,NULL}', '{0.1,NULL,1e300}', ARRAY['{"a": 1}'::jsonb, NULL], '{0b6f1d5e-2f5b-4d09-9d51-3a9e3a3d7f10,NULL}', ARRAY['calm'::mood, NULL, 'it''s "odd"'], '{10.0.0.1,NULL}', '{1,NULL}', '{ab,NULL}', ARRAY[ROW(1, 'x')::pair]);
INSERT INTO types (id, single, ratio, address, spot) VALUES (4, 'NaN', 'NaN', '::1', '(1e300,-0)'), (5, 'Infinity', 'Infinity', '10.0.0.1', '(0.1,0.2)'), (6, '-Infinity', '-Infinity', '2001:db8::/32', '(1,2)'), (7, 0.1, 4.9406564584124654e-324, NULL, NULL), (8, 1.17549435e-38, 1e23, NULL, NULL), (9, 16777216, 123456789012345680, NULL, NULL), (10, '-0', '-0', NULL, NULL);
INSERT INTO types (id, numbers, words) VALUES (11, '{{1,2},{3,4}}', '{{a,b},{c,NULL}}');
INSERT INTO types (id, numbers) VALUES (12, '[0:1]={1,2}');

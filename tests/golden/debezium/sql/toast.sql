-- Values that are stored apart and not sent again where an update leaves them alone.
CREATE TABLE documents (
    id integer PRIMARY KEY,
    version integer NOT NULL,
    body text,
    required text NOT NULL,
    name varchar(20000),
    data bytea,
    doc json,
    docb jsonb,
    words text[],
    numbers integer[],
    big_numbers bigint[],
    keys uuid[],
    days date[],
    amount numeric,
    amounts numeric[],
    bits bit varying,
    vector tsvector,
    flags boolean[],
    ratios double precision[],
    moments timestamptz[],
    smalls smallint[],
    codes varchar(8)[],
    docs jsonb[]
);
ALTER TABLE documents ALTER body SET STORAGE EXTERNAL, ALTER required SET STORAGE EXTERNAL, ALTER name SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL, ALTER doc SET STORAGE EXTERNAL, ALTER docb SET STORAGE EXTERNAL, ALTER words SET STORAGE EXTERNAL, ALTER numbers SET STORAGE EXTERNAL, ALTER big_numbers SET STORAGE EXTERNAL, ALTER keys SET STORAGE EXTERNAL, ALTER days SET STORAGE EXTERNAL, ALTER amount SET STORAGE EXTERNAL, ALTER amounts SET STORAGE EXTERNAL, ALTER bits SET STORAGE EXTERNAL, ALTER vector SET STORAGE EXTERNAL, ALTER flags SET STORAGE EXTERNAL, ALTER ratios SET STORAGE EXTERNAL, ALTER moments SET STORAGE EXTERNAL, ALTER smalls SET STORAGE EXTERNAL, ALTER codes SET STORAGE EXTERNAL, ALTER docs SET STORAGE EXTERNAL;
CREATE TABLE documents_in_full (id integer PRIMARY KEY, version integer NOT NULL, body text);
ALTER TABLE documents_in_full REPLICA IDENTITY FULL;
ALTER TABLE documents_in_full ALTER body SET STORAGE EXTERNAL;
INSERT INTO documents VALUES (1, 1, repeat('a', 3000), repeat('b', 3000), repeat('c', 3000), decode(repeat('00ff', 1500), 'hex'), to_json(repeat('d', 3000)), to_jsonb(repeat('e', 3000)), array_fill('word'::text, ARRAY[600]), array_fill(1, ARRAY[1000]), array_fill(1::bigint, ARRAY[1000]), array_fill('0b6f1d5e-2f5b-4d09-9d51-3a9e3a3d7f10'::uuid, ARRAY[300]), array_fill('2026-01-15'::date, ARRAY[1000]), repeat('1', 8000)::numeric, array_fill(1.5::numeric, ARRAY[600]), repeat('1', 24000)::bit varying, (SELECT string_agg('w' || n, ' ')::tsvector FROM generate_series(1, 600) AS n), array_fill(true, ARRAY[3000]), array_fill(1.5::double precision, ARRAY[600]), array_fill('2026-01-15 12:00+00'::timestamptz, ARRAY[600]), array_fill(1::smallint, ARRAY[2000]), array_fill('abc'::varchar(8), ARRAY[600]), array_fill('{}'::jsonb, ARRAY[600]));
INSERT INTO documents_in_full VALUES (1, 1, repeat('a', 3000));

-- streamed
UPDATE documents SET version = 2;
UPDATE documents SET id = 2;
UPDATE documents_in_full SET version = 2;

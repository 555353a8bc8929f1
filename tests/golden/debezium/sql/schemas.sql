-- One row of every type whose schema depends on a setting.
CREATE TABLE schemas (
    id integer PRIMARY KEY,
    day date NOT NULL,
    clock time,
    clock0 time(0),
    clock_zone timetz,
    made timestamp,
    made0 timestamp(0),
    seen timestamptz,
    span interval,
    price numeric(10,2),
    free numeric,
    cash money,
    data bytea,
    days date[],
    clocks time[],
    mades timestamp[],
    seens timestamptz[],
    clock_zones timetz[],
    prices numeric(10,2)[],
    frees numeric[],
    parts bytea[]
);

-- streamed
INSERT INTO schemas VALUES (1, '2026-01-15', '12:34:56.789012', '12:34:56', '12:34:56+02', '2026-01-15 12:34:56.789012', '2026-01-15 12:34:56', '2026-01-15 12:34:56.789012+00', '1 day', 1.5, 1.5, 1.5, '\x00ff', '{2026-01-15}', '{12:34:56}', '{2026-01-15 12:34:56}', '{2026-01-15 12:34:56+00}', '{12:34:56+02}', '{1.5}', '{1.5}', ARRAY['\x00ff'::bytea]);

-- Everything that time.precision.mode touches.
CREATE TABLE times (
    id integer PRIMARY KEY,
    day date,
    clock time,
    clock0 time(0),
    clock3 time(3),
    clock_zone timetz,
    made timestamp,
    made0 timestamp(0),
    made3 timestamp(3),
    made4 timestamp(4),
    seen timestamptz,
    seen0 timestamptz(0),
    seen3 timestamptz(3),
    days date[],
    clocks time[],
    mades timestamp[],
    seens timestamptz[]
);

-- streamed
INSERT INTO times VALUES (1, '2026-01-15', '12:34:56.789012', '12:34:56', '12:34:56.789', '12:34:56.789012+02', '2026-01-15 12:34:56.789012', '2026-01-15 12:34:56', '2026-01-15 12:34:56.789', '2026-01-15 12:34:56.7891', '2026-01-15 12:34:56.789012+02', '2026-01-15 12:34:56-05', '2026-01-15 12:34:56.7+00', '{2026-01-15,NULL}', '{12:34:56.789012,NULL}', '{2026-01-15 12:34:56.789012,NULL}', '{2026-01-15 12:34:56.789012+02,NULL}');
INSERT INTO times VALUES (2, '1969-12-31', '00:00:00', '00:00:00', '00:00:00.001', '00:00:00+15:59', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.9999', '1969-12-31 23:59:59.999999+00', '1969-12-31 23:59:59+00', '1969-12-31 23:59:59.999+00', '{}', '{}', '{}', '{}');
INSERT INTO times VALUES (3, '0001-01-01', '23:59:59.999999', '23:59:59', '23:59:59.999', '23:59:59.999999-15:59', '0001-01-01 00:00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00+00', '0001-01-01 00:00:00+00', '0001-01-01 00:00:00.1+00', NULL, NULL, NULL, NULL);
INSERT INTO times (id) VALUES (4);
INSERT INTO times (id, day, made, seen) VALUES (5, '9999-12-31', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00');
INSERT INTO times (id, day, made, made3, seen) VALUES (6, '10000-01-01', '10000-01-01 00:00:00', '10000-01-01 00:00:00', '10000-01-01 00:00:00.5+00');
INSERT INTO times (id, day) VALUES (7, '0044-03-15 BC');
INSERT INTO times (id, made, made3) VALUES (8, '0044-03-15 12:00:00 BC', '0044-03-15 12:00:00 BC');
INSERT INTO times (id, seen) VALUES (9, '0044-03-15 12:00:00+00 BC');
INSERT INTO times (id, day) VALUES (10, 'infinity'), (11, '-infinity');
INSERT INTO times (id, made) VALUES (12, 'infinity'), (13, '-infinity');
INSERT INTO times (id, made3) VALUES (14, 'infinity'), (15, '-infinity');
INSERT INTO times (id, seen) VALUES (16, 'infinity'), (17, '-infinity');
INSERT INTO times (id, clock, clock0, clock3) VALUES (18, '24:00:00', '24:00:00', '24:00:00');
INSERT INTO times (id, clock_zone) VALUES (19, '24:00:00+00');
INSERT INTO times (id, clock_zone) VALUES (20, '12:34:56+02:30');
INSERT INTO times (id, seen) VALUES (21, '2026-01-15 12:34:00+00'), (22, '2026-01-15 12:34:56.10+00'), (23, '1582-10-10 00:00:00+00'), (24, '2026-01-15 00:00:00.000001+00');
INSERT INTO times (id, made, day) VALUES (25, '1582-10-10 00:00:00', '1582-10-10'), (26, '1500-03-01 00:00:00', '1500-03-01');
INSERT INTO times (id, clock_zone) VALUES (27, '12:34:00+00'), (28, '12:34:56.5+00');
INSERT INTO times (id, made) VALUES (29, '294276-12-31 23:59:59.999999');
INSERT INTO times (id, seen) VALUES (30, '294276-12-31 23:59:59.999999+00');
INSERT INTO times (id, day) VALUES (31, '5874897-12-31'), (32, '4713-01-01 BC');

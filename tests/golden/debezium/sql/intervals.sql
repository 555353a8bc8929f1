CREATE TABLE intervals (id integer PRIMARY KEY, span interval, needed interval NOT NULL, short interval second(2), spans interval[]);

-- streamed
INSERT INTO intervals VALUES (1, '0', '1 second', '1.25', '{1 day,NULL}');
INSERT INTO intervals VALUES (2, '1 year 2 months 3 days 4 hours 5 minutes 6.789012 seconds', '1 month', '-59.99', '{}');
INSERT INTO intervals VALUES (3, '-1 year -2 months -3 days -4 hours -5 minutes -6.789012 seconds', '1 day', NULL, NULL);
INSERT INTO intervals VALUES (4, '-1 month 1 day -00:00:00.000001', '1 year -1 day', NULL, NULL);
INSERT INTO intervals VALUES (5, NULL, '100 hours', NULL, NULL);
INSERT INTO intervals VALUES (6, '1000 years 11 months', '-0.5 seconds', NULL, NULL);
INSERT INTO intervals VALUES (7, '14 months', '1 month 00:00:01', NULL, NULL);

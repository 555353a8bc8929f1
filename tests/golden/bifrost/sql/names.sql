-- Names that SQL has to quote, and texts that JSON has to escape.
CREATE TABLE "Order Lines" (
    "Id" integer PRIMARY KEY, "user" text, "a ""b""" text, plain_1 text, "end" text, "time" text,
    é text, "2nd" text, type text, "values" text
);

-- streamed
INSERT INTO "Order Lines" VALUES (1, E'tab\there\nline', 'back\slash', '<a & b>', '"', E'\u0001', 'ü', '', '😀', 'x');
UPDATE "Order Lines" SET "user" = 'x';
DELETE FROM "Order Lines";

-- A TOASTed column that updates leave alone, under both replica identities.
CREATE TABLE plain (id integer PRIMARY KEY, n integer, body text);
CREATE TABLE whole (id integer PRIMARY KEY, n integer, body text);
ALTER TABLE plain ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE whole ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;

-- streamed
INSERT INTO plain VALUES (1, 1, repeat('x', 2500));
UPDATE plain SET n = 2;
UPDATE plain SET body = 'unchanged-toast-datum';
INSERT INTO whole VALUES (1, 1, repeat('y', 2500));
UPDATE whole SET n = 2;
UPDATE whole SET body = 'short';

CREATE TABLE blobs (id integer PRIMARY KEY, data bytea, needed bytea NOT NULL, parts bytea[]);

-- streamed
INSERT INTO blobs VALUES (1, '\x', '\x00', '{}');
INSERT INTO blobs VALUES (2, '\x00ff', '\xfbff', NULL);
INSERT INTO blobs VALUES (3, '\x0123456789abcdef', 'text', NULL);
INSERT INTO blobs VALUES (4, NULL, '\xfbeffe', NULL);
INSERT INTO blobs VALUES (5, NULL, '\x01', ARRAY['\x00ff'::bytea, NULL, '\xfb']);
DELETE FROM blobs WHERE id = 1;

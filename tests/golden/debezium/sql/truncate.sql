CREATE TABLE parents (id integer PRIMARY KEY);
CREATE TABLE children (id integer PRIMARY KEY, parent integer REFERENCES parents);
CREATE TABLE loose (note text);

-- streamed
INSERT INTO parents VALUES (1);
TRUNCATE loose;
TRUNCATE parents CASCADE;
INSERT INTO loose VALUES ('after');

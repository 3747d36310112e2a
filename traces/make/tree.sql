PRAGMA cache_size = -60000;
PRAGMA temp_store = MEMORY;
CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 640000)
INSERT INTO t SELECT i, (i * 2654435761) % 4294967296, printf('row %d of %x', i, (i * 40503) % 65536) FROM n;
COMMIT;
CREATE INDEX t_a ON t (a);
CREATE INDEX t_b ON t (b, a);
SELECT count(*), sum(x) FROM (SELECT a % 1000 AS g, sum(id) AS x FROM t GROUP BY g ORDER BY x);
SELECT count(*) FROM t AS l JOIN t AS r ON l.a = r.a AND l.id <> r.id;

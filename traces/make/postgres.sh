#!/bin/sh
# Starts PostgreSQL, fills a table and reads it, and stops it again: postgres.sh BIN DATA, where initdb has made DATA.
set -e
bin=$1 data=$2
"$bin/postgres" -D "$data" -k "$data" -c listen_addresses= 2>"$data/log" &
until "$bin/pg_isready" -q -h "$data" -U app; do sleep 0.2; done
"$bin/psql" -q -h "$data" -U app -d postgres >"$data/answers" <<SQL
create table t (id bigint primary key, word text, value double precision);
insert into t select i, md5(i::text), sqrt(i) from generate_series(1, 100000) i;
checkpoint;
select count(*), sum(value) from t;
select count(*) from t where word like 'a%';
drop table t;
SQL
kill -INT $!
wait $!

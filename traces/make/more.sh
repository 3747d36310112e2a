#!/bin/sh
# Makes more recordings of real programs, each from inputs that scripts print: all, or those that are named.
# Needs root, and beside what make.sh needs: rustc, sqlite3, node, javac, redis-server, xz, perl, awk, make. Those that are made by
# name alone need one each of g++, awk, bzip2, chromium, cmake, go, node, valgrind, zstd.
#
#   traces/make/more.sh FOLDER [NAME...]
set -eu
folder=$(realpath "${1:?usage: more.sh FOLDER [NAME...]}")
shift
here=$(cd "$(dirname "$0")" && pwd)
foliant=${FOLIANT:-}
if [ -z "$foliant" ]; then
    cargo build --release --manifest-path "$here/../../Cargo.toml"
    foliant=$(realpath "$here/../../target/release/foliant")
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/* "$work"
cd "$work"
export LC_ALL=C
record() {
    name=$1
    shift
    "$foliant" record -q -o "$name.trace" "$@"
    mv "$name.trace" "$folder/$name.trace"
    ls -l "$folder/$name.trace"
}

one() {
    case $1 in
    rustc) /usr/bin/python3 crate.py >crate.rs
        record rustc -- "$(rustup which rustc 2>/dev/null || command -v rustc)" --edition 2021 --crate-type lib -O -C codegen-units=4 crate.rs ;;
    sqlite) record sqlite -- sh -c 'exec sqlite3 tree.db <tree.sql' ;;
    node) record node -- node heap.js ;;
    java) javac -d . Heap.java
        record java -- java -Xmx192m -XX:+UseG1GC Heap ;;
    redis) record redis --only "$(basename "$(realpath "$(command -v redis-server)")")" -- sh load.sh ;;
    xz) /usr/bin/python3 history.py 2>&1 | head -c 24000000 >stream || true
        record xz -- xz -6 -T2 --block-size=8MiB stream ;;
    hash) gcc -O2 -o hash hash.c
        record hash -- ./hash ;;
    stack) gcc -O1 -fno-optimize-sibling-calls -pthread -o stack stack.c
        record stack -- ./stack ;;
    make) for n in 1 2 3 4 5 6; do /usr/bin/python3 workload_c.py | sed "s/state = seed/&/; s/uint64_t all(/uint64_t all$n(/" >u$n.c; done
        printf 'all: u1.o u2.o u3.o u4.o u5.o u6.o\n\tar rc u.a $^\n%%.o: %%.c\n\tgcc -O1 -g -c $< -o $@\n' >Makefile
        record make -- make -s -j2 ;;
    repack) git init -q --bare repo.git
        /usr/bin/python3 history.py | git -C repo.git fast-import --quiet
        record repack -- git -C repo.git -c pack.threads=2 repack -q -a -d -f --depth=30 --window=20 ;;
    perl) record perl -- perl words.pl ;;
    forks) record forks -- sh forks.sh ;;
    pool) record pool -- /usr/bin/python3 -I fork.py ;;
    gxx) record gxx -- g++ -O2 -std=c++17 -c regex.cpp -o regex.o ;;
    awk) record awk -- awk -f table.awk ;;
    zip) record zip -- sh -c 'tar c /usr/share/doc | gzip -c >/dev/null' ;;
    bz2) record bz2 -- sh -c 'tar c /usr/lib/python3 | bzip2 -9 >/dev/null' ;;
    json) record json -- /usr/bin/python3 values.py ;;
    chrome) record chrome -- chromium --headless --no-sandbox --disable-gpu --screenshot="$work/page.png" data:text/html,hello ;;
    find) record find -- sh -c 'find /usr -type f | sort | md5sum' ;;
    gorun) go build -o table table.go
        record gorun -- ./table ;;
    cmake) record cmake -- cmake --system-information ;;
    zstd) record zstd -- sh -c 'exec zstd -12 -T2 -c "$0" >/dev/null' "$foliant" ;;
    vg) record vg -- valgrind --tool=none /bin/ls /usr ;;
    npm) record npm -- node table.js ;;
    *) echo "no recording $1: rustc sqlite node java redis xz hash stack make repack perl forks pool" >&2
        echo "nor one of: gxx awk zip bz2 json chrome find gorun cmake zstd vg npm" >&2; exit 2 ;;
    esac
}

[ $# -gt 0 ] || set -- rustc sqlite node java redis xz hash stack make repack perl forks pool
for name; do one "$name"; done

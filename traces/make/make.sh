#!/bin/sh
# Makes the four recordings anew. Needs root (for the processor's own word on reads and writes), gcc,
# git, python3, and a bare clone of a real repository:
#
#   git clone --bare https://github.com/BurntSushi/ripgrep ripgrep.git
#   traces/make/make.sh ripgrep.git
set -eu
repo=$(realpath "${1:?usage: make.sh REPOSITORY}")
here=$(cd "$(dirname "$0")" && pwd)
cargo build --release -p foliant-trace --example record --manifest-path "$here/../../Cargo.toml"
record=$(realpath "$here/../../target/release/examples/record")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
ln -s "$repo" ripgrep.git
/usr/bin/python3 "$here/workload_c.py" > workload.c
cp "$here/workload.py" .
/usr/bin/python3 -c '
state = 7
for _ in range(1200000):
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    print(state >> 40, "line", state >> 50)' > lines.txt
"$record" "$here/../cc.trace" gcc -O2 -c workload.c -o workload.o
"$record" "$here/../git.trace" git -C ripgrep.git log --stat ignore-0.4.33 > log.txt
"$record" "$here/../python.trace" /usr/bin/python3 -I workload.py > python.txt
"$record" "$here/../sort.trace" sort --parallel=2 -S 64M lines.txt -o sorted.txt

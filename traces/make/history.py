"""Prints a history for `git fast-import`: COMMITS commits over 400 files of words; the same each time."""

import sys

COMMITS = 1500
state = 12345


def pick(n):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % n


words = ["".join(chr(97 + pick(26)) for _ in range(3 + pick(8))) for _ in range(3000)]
line = lambda: " ".join(words[pick(3000)] for _ in range(4 + pick(10)))
files = [[line() for _ in range(30 + pick(400))] for _ in range(400)]
out = sys.stdout.buffer
for c in range(COMMITS):
    out.write(b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata 3\nfoo\n" % (1700000000 + c * 3600))
    for f in range(400) if c == 0 else {pick(400) for _ in range(1 + pick(8))}:
        for _ in range(1 + pick(20)):
            files[f][pick(len(files[f]))] = line()
        text = "\n".join(files[f]).encode()
        out.write(b"M 100644 inline d%d/f%d.txt\ndata %d\n%s\n" % (f % 20, f, len(text), text))

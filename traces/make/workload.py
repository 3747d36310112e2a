"""Builds dicts, lists, strings and sets, sorts and groups them, and throws most of them away again."""

import json
import re
from collections import defaultdict

state = 1


def pick(n):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % n


words = ["".join(chr(97 + pick(26)) for _ in range(3 + pick(8))) for _ in range(40000)]
text = " ".join(words[pick(len(words))] for _ in range(400000))
index = defaultdict(list)
for position, match in enumerate(re.finditer(r"\w+", text)):
    index[match.group()].append(position)
common = sorted(index.items(), key=lambda item: (-len(item[1]), item[0]))
rows = [{"id": i, "word": w, "at": at[:5], "share": len(at) / 400000} for i, (w, at) in enumerate(common)]
copied = json.loads(json.dumps(rows))
assert copied == rows
for _ in range(3):
    table = [[pick(1000) for _ in range(60)] for _ in range(800)]
    flat = sorted(n for row in table for n in row)
    seen = {(a, b) for a, b in zip(flat, flat[7:])}
print(len(index), len(seen), common[0])

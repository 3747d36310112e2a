"""A parent fills large arrays; eight children, four at a time, work on what they inherit and send sums back."""

from array import array
from multiprocessing import get_context

data = None


def work(part):
    piece = data[part :: 8]
    for i in range(0, len(data), 512 * 3):  # every third page of what both have: copied
        data[i] = part
    squares = array("q", (x * x % 1009 for x in piece[::4]))
    return sum(squares), len({x % 65536 for x in piece[::8]})


def main():
    global data
    data = array("q", range(6_000_000))
    other = array("d", bytes(8 * 2_000_000))
    for i in range(0, len(other), 97):
        other[i] = i / 3
    with get_context("fork").Pool(4, maxtasksperchild=1) as pool:
        print(pool.map(work, range(8), chunksize=1), sum(other))
    data = data[::-1]
    print(len(data), data[0])


main()

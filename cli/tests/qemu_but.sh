#!/bin/sh
# QEMU with other words, for the tests of `foliant boot`: those of QEMU_BUT at the end, where the last one counts, and the device at which the
# kernel gives its verdict at port QEMU_EXIT.
for word; do
    shift
    case "$word" in isa-debug-exit,*) word="isa-debug-exit,iobase=${QEMU_EXIT:-0xf4},iosize=4" ;; esac
    set -- "$@" "$word"
done
exec qemu-system-x86_64 "$@" $QEMU_BUT

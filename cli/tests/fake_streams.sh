#!/bin/sh
# Stands in for a QEMU whose guest runs a program: says its words, ends with code 3 where its
# module is an archive, and keeps its input where a file beside the kernel's words is for it.
said=$*
for word; do
    case "$before" in -initrd) archive=$word ;; esac
    case "$word" in file:*) words=${word#file:} ;; esac
    before=$word
done
printf 'told: %s\n\377' "$said"
printf 'an error\376' >&2
kept=/dev/null
[ -e "$words.input" ] && kept=$words.input
cat >"$kept"
code=9
[ "$(head -c 6 "$archive")" = 070701 ] && code=3
printf '%s\r\n' 'booting' 'missing call 425 io_uring_setup' '{"faults":1}' "ended exit=$code" >"$words"
exit 33

# Many short programs, pipes and substitutions, as a configure script has them.
i=0
while [ $i -lt 120 ]; do
    name=$(printf 'item %d' $i | tr 'a-z ' 'A-Z_')
    n=$(expr $i \* 7 % 13)
    printf '%s %s\n' "$name" "$n" | sed 's/ITEM/item/' | awk '{ s += $2 } END { print $1, s }'
    (test -d "/nowhere/$name" || echo "$name is not there") | grep -c not >/dev/null
    i=$((i + 1))
done | sort -k2n | uniq -c | tail -3

# Strings under keys at random.
BEGIN {
    srand(1)
    for (i = 0; i < 400000; i++) {
        k = int(rand() * 300000)
        a[k "x"] = a[k "x"] "y"
    }
    n = 0
    for (k in a) n += length(a[k])
    print n
}

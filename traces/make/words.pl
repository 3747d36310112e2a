# Counts words, keeps them in hashes of hashes, forks four times and goes on in both.
use strict;
my ($state, %seen, @kids) = (7);
sub pick { $state = ($state * 1103515245 + 12345) % 2**31; return int($state / 65536) % $_[0] }
for my $i (1 .. 250000) {
    my $word = join '', map { chr(97 + pick(26)) } 1 .. 2 + pick(4);
    $seen{ substr $word, 0, 2 }{$word} .= chr(97 + $i % 26);
}
for my $kid (1 .. 4) {
    my $pid = fork // die;
    if (!$pid) {
        my @order = sort { length $seen{$b} <=> length $seen{$a} } keys %seen;
        my $sum = 0;
        for my $head (@order) { next if pick(4) == 0; $sum += length for values %{ $seen{$head} }; $seen{$head}{x} = $sum }
        print "$kid $sum\n";
        exit 0;
    }
    $seen{"p$kid"}{$_} = $_ x 3 for 1 .. 20000;
}
1 while wait > 0;
print scalar(keys %seen), "\n";

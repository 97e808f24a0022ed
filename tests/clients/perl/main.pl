# Ordinary use of Perl's Redis.pm against two regions: pipeline, transaction, publish/subscribe, lock, blocking pop.
#
#   perl main.pl PORT OTHER_PORT

use strict;
use warnings;
use Redis;

sub same {
    my ($what, $found, $expected) = @_;
    $found = 'nothing' unless defined $found;
    die "$what: expected $expected, found $found\n" if $found ne $expected;
}

my ($port, $other) = @ARGV;
my ($here, $there, $listener) =
    map { Redis->new(server => "127.0.0.1:$_", read_timeout => 20, name => 'perl') } $port, $other, $other;
$here->flushdb;
same('name', $here->client_getname, 'perl');

my @piped;
$here->set("perl:$_", $_, 'EX', 60, sub { push @piped, $_[0] }) for 0 .. 99;
$here->wait_all_responses;
same('piped', scalar(@piped), 100);
same('piped', $there->get('perl:99'), 99);

$here->hset('perl:hash', a => 1, b => 2);
my %fields = $there->hgetall('perl:hash');
same('hash', join(' ', map { "$_=$fields{$_}" } sort keys %fields), 'a=1 b=2');

$here->multi;
$here->set('perl:tx', 1);
$here->incr('perl:tx');
same('transaction', join(' ', $here->exec), 'OK 2');
$here->watch('perl:tx');
$there->set('perl:tx', 10);
$here->multi;
$here->set('perl:tx', 3);
$here->exec;
same('a transaction that comes too late', $here->get('perl:tx'), 10);

my @heard;
$listener->subscribe('perl:news', sub { push @heard, $_[0] });
$there->publish('perl:news', 'hello');
$listener->wait_for_messages(20) until @heard;
same('message', $heard[0], 'hello');

my $release = qq{if redis.call("get",KEYS[1]) == ARGV[1] then
    return redis.call("del",KEYS[1])
else
    return 0
end};
same('lock', $here->set('perl:lock', 'me', 'NX', 'PX', 60_000), 'OK');
same('lock of another', $there->set('perl:lock', 'you', 'NX', 'PX', 60_000), 'nothing');
same('release of another', $there->eval($release, 1, 'perl:lock', 'you'), 0);
same('release', $here->eval($release, 1, 'perl:lock', 'me'), 1);

$there->rpush('perl:list', 'pushed');
same('popped', join(' ', $here->blpop('perl:list', 20)), 'perl:list pushed');
eval { $here->incr('perl:hash') };
die "an error that is none: $@" unless $@ =~ /WRONGTYPE/;
same('info', $here->info->{redis_mode}, 'standalone');
print "ok\n";

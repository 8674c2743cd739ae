# Net::Stomp, a client of STOMP 1.0, against the broker; run by tests/interop/test_programs.py.
#
#     perl stomp.pl PORT
use strict;
use warnings;
use Net::Stomp;

my ($port) = @ARGV;
my $failover = [{ hostname => '127.0.0.1', port => 1 }, { hostname => '127.0.0.1', port => $port }];

sub same {
    my ($found, $wanted, $what) = @_;
    $found = defined $found ? $found : '(nothing)';
    die "$what: '$found' is not '$wanted'\n" unless $found eq $wanted;
}

sub connected {
    my %greeting = @_;
    my $stomp = Net::Stomp->new({ hosts => $failover, connect_delay => 0, timeout => 20, receipt_timeout => 20 });
    same($stomp->connect({ login => 'me', passcode => 'x', %greeting })->command, 'CONNECTED', 'a greeting');
    return $stomp;
}

sub body { my ($stomp) = @_; my $frame = $stomp->receive_frame; return $frame && $frame->body }

sub ok { print "ok $_[0]\n" }

my $sending = connected();
same($sending->send_with_receipt({ destination => '/queue/perl.q', body => 'one', persistent => 'true', colour => 'blue' }), 1, 'a receipt');
same($sending->send_transactional({ destination => '/queue/perl.q', body => 'two', persistent => 'true' }), 1, 'a transaction');
my $taking = connected();
$taking->subscribe({ destination => '/queue/perl.q', ack => 'client', 'activemq.prefetchSize' => 1 });
my $frame = $taking->receive_frame;
same(join(',', $frame->body, $frame->headers->{colour}, $frame->headers->{redelivered}), 'one,blue,false', 'a message');
same($taking->can_read({ timeout => 0.2 }) ? 1 : 0, 0, 'one at a time');
$taking->disconnect;
$taking = connected();
$taking->subscribe({ destination => '/queue/perl.q', ack => 'client', 'activemq.prefetchSize' => 1 });
for my $wanted (qw(one two)) {
    $frame = $taking->receive_frame;
    same($frame->body, $wanted, 'what was not acknowledged, and the next');
    $taking->ack({ frame => $frame });
}
$taking->unsubscribe({ destination => '/queue/perl.q' });
ok('receipts, transactions, one at a time');

my $large = join('', map { chr } 0 .. 255) x 8192;
$taking->subscribe({ destination => '/queue/perl.large' });
$sending->send({ destination => '/queue/perl.large', body => $large, bytes_message => 1 });
same(body($taking) eq $large ? 1 : 0, 1, 'a large body with zeros');
ok('bytes');

$taking->subscribe({ destination => '/queue/perl.red', selector => "colour = 'red'", id => 'red' });
$sending->send({ destination => '/queue/perl.red', body => $_, colour => $_ }) for qw(blue red);
same(body($taking), 'red', 'a selector');
ok('a selector');

my %durable = (destination => '/topic/perl.t', 'activemq.subscriptionName' => 'mine');
my $away = connected('client-id' => 'perl');
$away->subscribe({ %durable, receipt => 'r' });
same($away->receive_frame->headers->{'receipt-id'}, 'r', 'a durable subscription');
$away->disconnect;
same($sending->send_with_receipt({ destination => '/topic/perl.t', body => 'while away', persistent => 'true' }), 1, 'a receipt');
$away = connected('client-id' => 'perl');
$away->subscribe({%durable});
same(body($away), 'while away', 'what came while away');
$away->unsubscribe({%durable});
ok('a durable subscription');

$sending->send({ destination => '/queue/perl.ask', body => '6 * 7', 'reply-to' => '/temp-queue/answers' });
$taking->subscribe({ destination => '/queue/perl.ask', id => 'ask' });
$frame = $taking->receive_frame;
$taking->send({ destination => $frame->headers->{'reply-to'}, body => '42' });
same(body($sending), '42', 'an answer');
ok('a request and its reply');

<?php
// PHP's own client of STOMP (the extension `stomp`) against the broker; run by tests/interop/test_programs.py.
//
//     php stomp.php PORT

$port = $argv[1];

function same($found, $wanted, $what)
{
    if ($found !== $wanted) {
        fwrite(STDERR, "$what: " . var_export($found, true) . ' is not ' . var_export($wanted, true) . "\n");
        exit(1);
    }
}

// What ACK needs: in 1.2 the id that the message has for it.
function which($frame, $more = [])
{
    return $more + (isset($frame->headers['ack']) ? ['id' => $frame->headers['ack']] : []);
}

foreach (['1.0', '1.1', '1.2'] as $version) {
    $greeting = $version === '1.0' ? [] : ['accept-version' => $version, 'host' => 'localhost'];
    $stomp = new Stomp("tcp://127.0.0.1:$port", 'me', 'x', $greeting);
    $stomp->setReadTimeout(20);
    $queue = "/queue/php.$version";

    same($stomp->send($queue, 'grüße', ['persistent' => 'true', 'receipt' => 'r1']), true, 'a receipt');
    same($stomp->subscribe($queue, ['ack' => 'client', 'id' => 's1']), true, 'a subscription');
    $frame = $stomp->readFrame();
    same($frame->body, 'grüße', 'a body');
    same($stomp->ack($frame, which($frame)), true, 'an acknowledgement');

    // Message and receipt may come as one piece: the client reads a byte behind each frame.
    $stomp->begin('t1');
    $stomp->send($queue, 'in', ['transaction' => 't1']);
    same($stomp->commit('t1', ['receipt' => 'c1']), true, 'a commit');
    $frame = $stomp->readFrame();
    same($frame->body, 'in', 'what was committed');
    $stomp->begin('t2');
    $stomp->ack($frame, which($frame, ['transaction' => 't2']));
    $stomp->abort('t2');
    $frame = $stomp->readFrame();
    same([$frame->body, $frame->headers['redelivered']], ['in', 'true'], 'what was given back');
    $stomp->ack($frame, which($frame));

    for ($number = 0; $number < 100; $number++) {
        $stomp->send($queue, "$number");
    }
    for ($number = 0; $number < 100; $number++) {
        $frame = $stomp->readFrame();
        same($frame->body, "$number", 'one of many in a row');
    }
    same($stomp->ack($frame, which($frame, ['receipt' => 'a1'])), true, 'all of them acknowledged');

    $large = str_repeat("a\0b", 1 << 18);
    $stomp->send($queue, $large, ['content-length' => strlen($large)]);
    $frame = $stomp->readFrame();
    same($frame->body === $large, true, 'a large body with zeros');
    $stomp->ack($frame, which($frame));

    same($stomp->send($queue, 'x', ['priority' => 'high', 'receipt' => 'e1']), false, 'a refusal');
    same(strpos($stomp->error(), 'invalid priority'), 0, 'its reason');
    unset($stomp);
    echo "ok $version\n";
}

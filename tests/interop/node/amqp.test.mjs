// What rhea can do with a broker, run by tests/interop/test_programs.py with BROKER_PORT.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import rhea from 'rhea';

const port = Number(process.env.BROKER_PORT);

function scenario(name, run) {
  test(name, { timeout: 30_000 }, async ({ signal }) => {
    const container = rhea.create_container({ id: `rhea ${name}` });
    const connection = container.connect({ host: '127.0.0.1', port, reconnect: false, username: 'me', password: 'x' });
    signal.addEventListener('abort', () => connection.close()); // what stays open would keep the process
    await once(container, 'connection_open');
    await run(connection, `rhea.${name.replaceAll(' ', '.')}`, container);
    connection.close();
    await once(container, 'connection_close');
  });
}

// A producer; `put` resolves with the outcome of one message: its name, and the error of a rejected one.
async function producer(connection, address, options = {}) {
  const sender = connection.open_sender({ target: { address }, ...options });
  const waiting = new Map();
  sender.on('settled', ({ delivery }) => {
    const { constructor, error } = delivery.remote_state;
    waiting.get(delivery)({ outcome: constructor.composite_type, error });
  });
  await once(sender, 'sendable');
  return {
    sender,
    put: (message) => new Promise((resolve) => waiting.set(sender.send(message), resolve)),
  };
}

// A consumer; `next` resolves with a context: message, delivery.
function consumer(connection, address, { source = {}, ...options } = {}) {
  const receiver = connection.open_receiver({
    source: { address, ...source },
    credit_window: 10,
    autoaccept: false,
    ...options,
  });
  const here = [];
  const waiting = [];
  receiver.on('message', (context) => (waiting.length ? waiting.shift()(context) : here.push(context)));
  return {
    receiver,
    here,
    next: () => (here.length ? Promise.resolve(here.shift()) : new Promise((resolve) => waiting.push(resolve))),
  };
}

scenario('in order', async (connection, q) => {
  const { next } = consumer(connection, `queue://${q}`);
  const { put } = await producer(connection, `queue://${q}`);
  const sending = [];
  for (let n = 0; n < 200; n++) sending.push(put({ durable: true, message_id: n, body: { n, at: new Date(n) } }));
  for (let n = 0; n < 200; n++) {
    const { message, delivery } = await next();
    assert.equal(message.message_id, n);
    assert.deepEqual(message.body.at, new Date(n));
    delivery.accept();
  }
  for (const { outcome } of await Promise.all(sending)) assert.equal(outcome, 'accepted');
});

scenario('outcomes', async (connection, q) => {
  const { put } = await producer(connection, `queue://${q}`);
  const { next } = consumer(connection, `queue://${q}`);
  await put({ body: 'x', durable: true });
  const first = await next();
  assert.equal(first.message.delivery_count ?? 0, 0);
  first.delivery.release();
  const again = await next();
  assert.equal(again.message.delivery_count ?? 0, 0);
  again.delivery.modified({ delivery_failed: true, message_annotations: { 'x-opt-note': 'tried' } });
  const last = await next();
  assert.equal(last.message.delivery_count, 1);
  assert.equal(last.message.message_annotations['x-opt-note'], 'tried');
  last.delivery.reject({ condition: 'app:bad', description: 'cannot read it', info: { field: 'price' } });
  const filter = rhea.filter.selector(`"m.x-opt-ORIG-ADDRESS" = '${q}'`);
  const { message, delivery } = await consumer(connection, 'queue://DLQ', { source: { filter } }).next();
  assert.equal(message.message_annotations['x-opt-DL-REASON'], 'rejected');
  assert.match(message.message_annotations['x-opt-DL-TEXT'], /app:bad: cannot read it/);
  delivery.accept();
});

scenario('drain', async (connection, q) => {
  const { put } = await producer(connection, `queue://${q}`);
  await put({ body: 'only' });
  const { receiver, next } = consumer(connection, `queue://${q}`, { credit_window: 0 });
  await once(receiver, 'receiver_open');
  const drained = once(receiver, 'receiver_drained'); // it may come with the message
  receiver.drain_credit();
  receiver.add_credit(10);
  const { delivery } = await next();
  await drained;
  assert.equal(receiver.credit, 0);
  delivery.accept();
});

scenario('a durable subscription', async (connection, q) => {
  const source = { durable: 2, expiry_policy: 'never', capabilities: ['topic'] };
  const { put } = await producer(connection, `topic://${q}`);
  const away = consumer(connection, `topic://${q}`, { name: 'news', source });
  await once(away.receiver, 'receiver_open');
  away.receiver.detach();
  await once(away.receiver, 'receiver_close'); // rhea's name for any end
  await put({ body: 'while away', durable: true });
  const back = consumer(connection, `topic://${q}`, { name: 'news', source });
  const { message, delivery } = await back.next();
  assert.equal(message.body, 'while away');
  delivery.accept();
  back.receiver.close();
  await once(back.receiver, 'receiver_close');
});

scenario('a dynamic node', async (connection, q) => {
  const requests = consumer(connection, `queue://${q}`);
  const replies = consumer(connection, undefined, { source: { dynamic: true } });
  await once(replies.receiver, 'receiver_open');
  const { put } = await producer(connection, `queue://${q}`);
  await put({ body: '6 * 7', reply_to: replies.receiver.source.address, correlation_id: 'c' });
  const { message } = await requests.next();
  const anybody = await producer(connection, undefined);
  await anybody.put({ to: message.reply_to, body: '42', correlation_id: message.correlation_id });
  const answer = await replies.next();
  assert.deepEqual([answer.message.body, answer.message.correlation_id], ['42', 'c']);
});

scenario('a large message', async (connection, q) => {
  const content = Buffer.alloc(5 << 20, 'some text');
  const { put } = await producer(connection, `queue://${q}`);
  const { outcome } = await put({ body: rhea.message.data_section(content) });
  assert.equal(outcome, 'accepted');
  const { message, delivery } = await consumer(connection, `queue://${q}`).next();
  assert.ok(message.body.content.equals(content));
  delivery.accept();
});

scenario('a browser', async (connection, q) => {
  const { put } = await producer(connection, `queue://${q}`);
  await put({ body: 'stays' });
  const seen = await consumer(connection, `queue://${q}`, { source: { distribution_mode: 'copy' } }).next();
  const taken = await consumer(connection, `queue://${q}`).next();
  assert.deepEqual([seen.message.body, taken.message.body], ['stays', 'stays']);
  taken.delivery.accept();
});

scenario('errors', async (connection, q) => {
  const filter = rhea.filter.selector('a = =');
  const { receiver } = consumer(connection, `queue://${q}`, { source: { filter } });
  const [{ receiver: refused }] = await once(receiver, 'receiver_error');
  assert.equal(refused.error.condition, 'amqp:invalid-field');
  const { put } = await producer(connection, `queue://small.${q}`);
  for (let n = 0; n < 10; n++) assert.equal((await put({ body: n })).outcome, 'accepted');
  const { outcome, error } = await put({ body: 10 });
  assert.equal(outcome, 'rejected');
  assert.equal(error.condition, 'amqp:resource-limit-exceeded');
});

// The core suite of tests/interop/test_stomp_py.py with two clients of Node.js.  BROKER_PORT: where the broker listens.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clients } from './clients.mjs';

const port = Number(process.env.BROKER_PORT);
const durable = { persistent: 'true' };
const individual = 'client-individual';

for (const [name, kind] of Object.entries(clients)) {
  for (const version of kind.versions) {
    let used = 0;

    // One scenario with a connection of its own and a destination that nobody else uses.
    const scenario = (title, run, needs = '1.0') => {
      if (needs === null) return;
      const skip = version < needs && `not in STOMP ${version} as ${name} speaks it`;
      test(`${name} ${version}: ${title}`, { skip, timeout: 30_000 }, async () => {
        const connection = await kind.connect(port, version);
        try {
          await run(connection, `node.${name}.${version.replace('.', '-')}.${++used}`);
        } finally {
          await connection.drop();
        }
      });
    };

    const other = async (run, headers = {}) => {
      const connection = await kind.connect(port, version, headers);
      try {
        await run(connection);
      } finally {
        await connection.drop();
      }
    };

    scenario('a message comes as it was sent', async (connection, q) => {
      assert.equal(connection.version, version);
      await connection.put(`/queue/${q}`, 'grüße', { ...durable, colour: 'blue', 'content-type': 'text/plain' });
      const next = await connection.subscribe(`/queue/${q}`);
      const { headers, body } = await next();
      assert.equal(body.toString(), 'grüße');
      assert.equal(headers.destination, `/queue/${q}`);
      assert.equal(headers.colour, 'blue');
      assert.equal(headers['content-type'], 'text/plain');
      assert.equal(headers.redelivered, 'false');
    });

    scenario('values that need escapes', async (connection, q) => {
      const next = await connection.subscribe(`/queue/${q}`);
      await connection.put(`/queue/${q}`, 'x', { odd: 'a:b\\x\nd' });
      assert.equal((await next()).headers.odd, 'a:b\\x\nd');
    }, kind.escapes);

    scenario('zeros and large bodies', async (connection, q) => {
      const next = await connection.subscribe(`/queue/${q}`);
      for (const body of [Buffer.alloc(1000), Buffer.alloc(1 << 20, 'abc\0')]) {
        await connection.put(`/queue/${q}`, body, durable);
        assert.ok((await next()).body.equals(body));
      }
    });

    scenario('a topic copies', async (connection, q) => {
      const one = await connection.subscribe(`/topic/${q}`);
      await other(async (second) => {
        const two = await second.subscribe(`/topic/${q}`);
        await second.put('/queue/node.sync', 'the subscriptions are known');
        await connection.put(`/topic/${q}`, 'news');
        assert.equal((await one()).body.toString(), 'news');
        assert.equal((await two()).body.toString(), 'news');
      });
    });

    scenario('a selector', async (connection, q) => {
      const next = await connection.subscribe(`/queue/${q}`, 'auto', { selector: "colour = 'red'" });
      await connection.put(`/queue/${q}`, '1', { colour: 'blue' });
      await connection.put(`/queue/${q}`, '2', { colour: 'red' });
      assert.equal((await next()).body.toString(), '2');
    });

    scenario('priorities', async (connection, q) => {
      await connection.put(`/queue/${q}`, 'low', { ...durable, priority: '1' });
      await connection.put(`/queue/${q}`, 'high', { ...durable, priority: '8' });
      const next = await connection.subscribe(`/queue/${q}`);
      assert.deepEqual([(await next()).body.toString(), (await next()).body.toString()], ['high', 'low']);
    });

    scenario('an acknowledged message is gone, another comes back', async (connection, q) => {
      await connection.put(`/queue/${q}`, 'done', durable);
      await connection.put(`/queue/${q}`, 'open', durable);
      const next = await connection.subscribe(`/queue/${q}`, individual);
      await connection.ack(await next());
      await next();
      await connection.drop();
      await other(async (later) => {
        const again = await later.subscribe(`/queue/${q}`, individual);
        const message = await again();
        assert.equal(message.body.toString(), 'open');
        assert.equal(message.headers.redelivered, 'true');
        await later.ack(message);
      });
    });

    scenario('poison dies with its reason', async (connection, q) => {
      await connection.put(`/queue/poison.${q}`, 'bad', durable);
      const next = await connection.subscribe(`/queue/poison.${q}`, individual);
      for (let attempt = 1; attempt <= 3; attempt++) {
        const message = await next();
        assert.equal(message.headers.redelivered, String(attempt > 1));
        await connection.nack(message, { reason: 'no such customer' });
      }
      const dead = await connection.subscribe('/queue/dead.poison', individual, {
        selector: `_AMQ_ORIG_QUEUE = 'poison.${q}'`,
      });
      const message = await dead();
      assert.equal(message.headers._AMQ_DL_REASON, 'max-deliveries');
      assert.equal(message.headers._AMQ_DL_ATTEMPTS, '3');
      assert.match(message.headers._AMQ_DL_TEXT, /no such customer/);
      await connection.ack(message);
    }, '1.1');

    scenario('a refused message dies at once', async (connection, q) => {
      await connection.put(`/queue/poison.${q}`, 'bad', durable);
      const next = await connection.subscribe(`/queue/poison.${q}`, individual);
      await connection.nack(await next(), { requeue: 'false', reason: 'schema 12' });
      const dead = await connection.subscribe('/queue/dead.poison', individual, {
        selector: `_AMQ_ORIG_QUEUE = 'poison.${q}'`,
      });
      const message = await dead();
      assert.equal(message.headers._AMQ_DL_REASON, 'rejected');
      await connection.ack(message);
    }, '1.1');

    scenario('an expired message is kept', async (connection, q) => {
      await connection.put(`/queue/brief.${q}`, 'old', { ...durable, expires: String(Date.now() + 50) });
      const late = await connection.subscribe('/queue/late', individual, {
        selector: `_AMQ_ORIG_QUEUE = 'brief.${q}'`,
      });
      const message = await late();
      assert.equal(message.headers._AMQ_DL_REASON, 'expired');
      await connection.ack(message);
    });

    scenario('a scheduled message comes when due', async (connection, q) => {
      const next = await connection.subscribe(`/queue/${q}`);
      const begun = Date.now();
      await connection.put(`/queue/${q}`, 'later', { ...durable, AMQ_SCHEDULED_DELAY: '200' });
      await next();
      assert.ok(Date.now() - begun >= 198);
    });

    scenario('a transaction is all or nothing', async (connection, q) => {
      const next = await connection.subscribe(`/queue/${q}`);
      const aborted = connection.transaction();
      await aborted.put(`/queue/${q}`, 'never', durable);
      await aborted.abort();
      const committed = connection.transaction();
      await committed.put(`/queue/${q}`, 'one', durable);
      await committed.put(`/queue/${q}`, 'two', durable);
      await committed.commit();
      assert.deepEqual([(await next()).body.toString(), (await next()).body.toString()], ['one', 'two']);
    });

    scenario('request and reply', async (connection, q) => {
      const requests = await connection.subscribe(`/queue/${q}`);
      const replies = await connection.subscribe(`/queue/${q}.replies`);
      await connection.put(`/queue/${q}`, '6 * 7', { 'reply-to': `/queue/${q}.replies`, 'correlation-id': 'c-1' });
      const { headers } = await requests();
      await connection.put(headers['reply-to'], '42', { 'correlation-id': headers['correlation-id'] });
      assert.equal((await replies()).headers['correlation-id'], 'c-1');
    });

    scenario('a reply comes to a destination of its own', async (connection, q) => {
      const requests = await connection.subscribe(`/queue/${q}`);
      const replies = await connection.subscribe('/temp-queue/answers');
      await connection.put(`/queue/${q}`, '6 * 7', { 'reply-to': '/temp-queue/answers' });
      const { headers } = await requests();
      await other(async (service) => {
        await service.put(headers['reply-to'], '42');
      });
      assert.equal((await replies()).body.toString(), '42');
    });

    scenario('a browser takes nothing', async (connection, q) => {
      await connection.put(`/queue/${q}`, 'x', durable);
      await other(async (reader) => {
        const shown = await reader.subscribe(`/queue/${q}`, 'auto', { browser: 'true' });
        assert.equal((await shown()).body.toString(), 'x');
        assert.equal((await shown()).headers.browser, 'end');
      });
      const next = await connection.subscribe(`/queue/${q}`);
      assert.equal((await next()).body.toString(), 'x');
    });

    scenario('a durable subscription collects', async (connection, q) => {
      const who = { 'client-id': q };
      const subscription = { 'durable-subscription-name': 'news' };
      await other(async (reader) => {
        await reader.subscribe(`/topic/${q}`, individual, subscription);
        await reader.put('/queue/node.sync', 'the subscription is known');
        await reader.leave();
      }, who);
      await connection.put(`/topic/${q}`, 'while you were away', durable);
      await other(async (reader) => {
        const next = await reader.subscribe(`/topic/${q}`, individual, subscription);
        const message = await next();
        assert.equal(message.body.toString(), 'while you were away');
        await reader.ack(message);
      }, who);
    });

    scenario('an error says what was wrong', async (connection, q) => {
      connection.put(`/queue/${q}`, 'x', { priority: '99' }).catch(() => {});
      assert.match((await connection.failure()).message, /priority/);
    }, kind.errors);

    test(`${name} ${version}: heart-beats keep both sides alive`, { skip: version < '1.2', timeout: 30_000 }, async () => {
      const connection = await kind.connect(port, version, {}, 500);
      const next = await connection.subscribe(`/queue/node.${name}.${version.replace('.', '-')}.beats`);
      await connection.put(`/queue/node.${name}.${version.replace('.', '-')}.beats`, 'x', { AMQ_SCHEDULED_DELAY: '1700' });
      assert.equal((await next()).body.toString(), 'x');
      await connection.leave();
    });
  }
}

// MQTT.js against the broker, in each version that it speaks.  MQTT_PORT: where the broker listens for MQTT.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import mqtt from 'mqtt';

const port = Number(process.env.MQTT_PORT);
const versions = { '3.1': 3, '3.1.1': 4, 5: 5 };

// A client with what arrives for it in a queue.
const connect = async (clientId, protocolVersion, more = {}) => {
  const protocolId = protocolVersion === 3 ? 'MQIsdp' : 'MQTT';
  const options = { port, host: '127.0.0.1', clientId, protocolVersion, protocolId, reconnectPeriod: 0, ...more };
  const messages = [];
  const waiting = [];
  const client = mqtt.connect(options);
  client.on('message', (topic, payload, packet) => {
    const message = { topic, payload, text: payload.toString(), ...packet };
    const next = waiting.shift();
    if (next) next(message);
    else messages.push(message);
  });
  const connack = await new Promise((resolve, reject) => {
    client.once('connect', resolve);
    client.once('error', reject);
  });
  const take = () => (messages.length ? Promise.resolve(messages.shift()) : new Promise((done) => waiting.push(done)));
  return { client, connack, take, takeAll: async (count) => {
    const found = [];
    while (found.length < count) found.push(await take());
    return found;
  } };
};

for (const [name, version] of Object.entries(versions)) {
  const scenario = (title, run, least = 3) => {
    const skip = version < least && `not in MQTT ${name}`;
    test(`MQTT ${name}: ${title}`, { skip, timeout: 30_000 }, () => run(`node-${version}-${title.split(' ')[0]}`));
  };

  scenario('every QoS', async (id) => {
    const { client, takeAll } = await connect(id, version);
    await client.subscribeAsync(`${id}/+`, { qos: 2 });
    for (let number = 0; number < 30; number++) {
      await client.publishAsync(`${id}/a`, `grüße ${number}`, { qos: number % 3 });
    }
    const found = await takeAll(30);
    for (const qos of [0, 1, 2]) {
      const texts = found.filter((message) => message.qos === qos).map((message) => message.text);
      assert.deepEqual(texts, [...Array(10).keys()].map((at) => `grüße ${3 * at + qos}`));
    }
    await client.endAsync();
  });

  scenario('large payloads', async (id) => {
    const { client, take } = await connect(id, version);
    await client.subscribeAsync(id, { qos: 1 });
    for (const payload of [Buffer.alloc(0), Buffer.alloc(1000), Buffer.alloc(3 << 20, 'abc\0')]) {
      await client.publishAsync(id, payload, { qos: 1 });
      assert.ok((await take()).payload.equals(payload));
    }
    await client.endAsync();
  });

  scenario('sessions stay', async (id) => {
    const kept = { clean: false, ...(version === 5 && { properties: { sessionExpiryInterval: 600 } }) };
    const first = await connect(id, version, kept);
    await first.client.subscribeAsync(id, { qos: 2 });
    await first.client.endAsync();
    const other = await connect(`${id}-2`, version);
    for (const qos of [1, 2]) await other.client.publishAsync(id, `${qos}`, { qos });
    const again = await connect(id, version, kept);
    assert.equal(again.connack.sessionPresent, version > 3);
    assert.deepEqual((await again.takeAll(2)).map((message) => message.text), ['1', '2']);
    await again.client.endAsync();
    await (await connect(id, version)).client.endAsync();
    await other.client.endAsync();
  });

  scenario('retained messages and wills', async (id) => {
    const will = { topic: id, payload: Buffer.from('dead'), qos: 1, retain: true };
    const mortal = await connect(id, version, { will });
    await mortal.client.publishAsync(id, 'alive', { qos: 1, retain: true });
    const { client, take } = await connect(`${id}-2`, version);
    await client.subscribeAsync(id, { qos: 1 });
    const first = await take();
    assert.deepEqual([first.text, first.retain], ['alive', true]);
    mortal.client.stream.destroy();
    assert.equal((await take()).text, 'dead');
    await client.publishAsync(id, '', { retain: true });
    await client.endAsync();
  });

  scenario('properties', async (id) => {
    const { client, take } = await connect(id, version, { properties: { topicAliasMaximum: 10 } });
    await client.subscribeAsync(id, { qos: 1, properties: { subscriptionIdentifier: 17 } });
    const properties = {
      contentType: 'text/plain',
      responseTopic: 'answers',
      correlationData: Buffer.from([0, 255]),
      payloadFormatIndicator: true,
      userProperties: { colour: ['blue', 'red'], shelf: '3' },
    };
    for (let number = 0; number < 3; number++) {
      await client.publishAsync(id, 'x', { qos: 1, properties });
      const found = (await take()).properties;
      assert.equal(found.contentType, 'text/plain');
      assert.equal(found.responseTopic, 'answers');
      assert.deepEqual([...found.correlationData], [0, 255]);
      assert.equal(found.payloadFormatIndicator, true);
      assert.deepEqual({ ...found.userProperties }, properties.userProperties);
      assert.equal(found.subscriptionIdentifier, 17);
    }
    await client.endAsync();
  }, 5);

  scenario('shared subscriptions', async (id) => {
    const members = [await connect(`${id}-1`, version), await connect(`${id}-2`, version)];
    const found = new Set();
    const all = new Promise((resolve) => {
      for (const { client } of members) {
        client.on('message', (_, payload) => {
          assert.ok(!found.has(`${payload}`), `${payload} came twice`);
          found.add(`${payload}`);
          if (found.size === 50) resolve();
        });
      }
    });
    for (const { client } of members) await client.subscribeAsync(`$share/${id}/${id}/#`, { qos: 1 });
    const { client } = await connect(id, version);
    for (let number = 0; number < 50; number++) await client.publishAsync(`${id}/a`, `${number}`, { qos: 1 });
    await all;
    for (const each of [client, ...members.map((member) => member.client)]) await each.endAsync();
  }, 5);
}

// Clients of Node.js over TLS, by WebSocket and on a port that several protocols share.  PORTS: the acceptors' ports as
// JSON; NODE_EXTRA_CA_CERTS: the authority; bob's password is `secret`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Client, Versions } from '@stomp/stompjs';
import mqtt from 'mqtt';
import rhea from 'rhea';
import stompit from 'stompit';
import { WebSocket } from 'ws';

const ports = JSON.parse(process.env.PORTS);
const login = { username: 'bob', password: 'secret' };
const once = (emitter, name) => new Promise((resolve) => emitter.once(name, resolve));

const byMqtt = async (url, topic) => {
  const client = mqtt.connect(url, { ...login, reconnectPeriod: 0 });
  await Promise.race([once(client, 'connect'), once(client, 'error').then((error) => Promise.reject(error))]);
  const got = once(client, 'message');
  await client.subscribeAsync(topic, { qos: 1 });
  await client.publishAsync(topic, 'hello', { qos: 1 });
  await got;
  await client.endAsync();
};

const byAmqp = async (options, queue) => {
  const container = rhea.create_container();
  const connection = container.connect({ ...login, reconnect: false, ...options(container) });
  const got = once(container, 'message');
  connection.open_receiver(queue);
  const sender = connection.open_sender(queue);
  await once(sender, 'sendable');
  sender.send({ body: 'hello' });
  assert.equal((await got).message.body, 'hello');
  connection.close();
  await once(connection, 'connection_close');
};

test('MQTT.js by wss', () => byMqtt(`wss://localhost:${ports.mqttweb}/mqtt`, 'wss/t'));
test('MQTT.js by TLS on the shared port', () => byMqtt(`mqtts://localhost:${ports.shared}`, 'shared/t'));

test('rhea by wss', () =>
  byAmqp((container) => {
    const connect = container.websocket_connect(WebSocket);
    return { connection_details: connect(`wss://localhost:${ports.amqpweb}/`, 'amqp') };
  }, 'queue://node.wss'));

test('rhea by TLS on the shared port', () =>
  byAmqp(() => ({ transport: 'tls', host: 'localhost', port: ports.shared }), 'queue://node.tls'));

test('stompjs by wss', async () => {
  const names = new Versions(['1.2']).protocolVersions();
  const got = await new Promise((resolve, reject) => {
    const client = new Client({
      webSocketFactory: () => new WebSocket(`wss://localhost:${ports.stompweb}/`, names),
      connectHeaders: { login: 'bob', passcode: 'secret' },
      reconnectDelay: 0,
      onStompError: (frame) => reject(new Error(frame.headers.message)),
      onConnect: () => {
        client.subscribe('/queue/stomp.wss', async (message) => {
          await client.deactivate();
          resolve(message.body);
        });
        client.publish({ destination: '/queue/stomp.wss', body: 'hello' });
      },
    });
    client.activate();
  });
  assert.equal(got, 'hello');
});

test('stompit by TLS on the shared port', async () => {
  const connectHeaders = { host: 'h', 'accept-version': '1.2', login: 'bob', passcode: 'secret' };
  const client = await new Promise((resolve, reject) =>
    stompit.connect({ host: 'localhost', port: ports.shared, ssl: true, connectHeaders }, (error, connected) =>
      error ? reject(error) : resolve(connected),
    ),
  );
  const receipt = new Promise((resolve) => client.send({ destination: 'stompit' }, { onReceipt: resolve }).end('hello'));
  await receipt;
  await new Promise((resolve) => client.disconnect(resolve));
});

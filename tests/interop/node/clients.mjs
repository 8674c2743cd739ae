// STOMP clients of Node.js behind one small interface, so that one suite drives all: over TCP, or with BROKER_WEB set
// over WebSocket.
//
//   connect(port, version, headers) -> connection      put(destination, body, headers): resolves with the RECEIPT
//   subscribe(destination, ack, headers) -> next()     a message: {headers, body: Buffer}
//   ack / nack(message, headers)                       resolve with the RECEIPT
//   transaction() -> {put, commit, abort}              leave(): DISCONNECT;  drop(): no word;  failure: the ERROR frame

import { Client, Versions } from '@stomp/stompjs';
import { TCPWrapper } from '@stomp/tcp-wrapper';
import stompit from 'stompit';
import { WebSocket } from 'ws';

// Values that arrive before or after somebody waits for them.
class Inbox {
  #values = [];
  #waiting = [];

  push(value) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(value);
    else this.#values.push(value);
  }

  next() {
    if (this.#values.length) return Promise.resolve(this.#values.shift());
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

class StompJs {
  static versions = ['1.0', '1.1', '1.2'];
  static escapes = '1.2'; // it escapes no header of 1.1
  static errors = '1.0';
  #receipts = 0;
  #failed = new Inbox();

  static wire(port) {
    return new TCPWrapper('127.0.0.1', port);
  }

  static connect(port, version, headers = {}, beat = 0) {
    const connection = new this();
    return new Promise((resolve, reject) => {
      connection.client = new Client({
        webSocketFactory: () => this.wire(port, version),
        stompVersions: new Versions([version]),
        connectHeaders: headers,
        reconnectDelay: 0,
        heartbeatIncoming: beat,
        heartbeatOutgoing: beat,
        onConnect: () => resolve(connection),
        onStompError: (frame) => {
          connection.#failed.push(frame.headers);
          reject(new Error(frame.headers.message));
        },
      });
      connection.client.activate();
    });
  }

  get version() {
    return this.client.connectedVersion;
  }

  failure() {
    return this.#failed.next();
  }

  #receipt() {
    const receipt = `r-${++this.#receipts}`;
    return [receipt, new Promise((resolve) => this.client.watchForReceipt(receipt, resolve))];
  }

  put(destination, body, headers = {}) {
    const [receipt, confirmed] = this.#receipt();
    const content = typeof body === 'string' ? { body } : { binaryBody: new Uint8Array(body) };
    this.client.publish({ destination, headers: { ...headers, receipt }, ...content });
    return confirmed;
  }

  async subscribe(destination, ack = 'auto', headers = {}) {
    const [receipt, confirmed] = this.#receipt();
    const inbox = new Inbox();
    const push = (message) => inbox.push({ headers: message.headers, body: Buffer.from(message.binaryBody), message });
    this.client.subscribe(destination, push, { ...headers, ack, receipt });
    await confirmed;
    return () => inbox.next();
  }

  ack({ message }, headers = {}) {
    const [receipt, confirmed] = this.#receipt();
    message.ack({ ...headers, receipt });
    return confirmed;
  }

  nack({ message }, headers = {}) {
    const [receipt, confirmed] = this.#receipt();
    message.nack({ ...headers, receipt });
    return confirmed;
  }

  transaction() {
    const { id, commit, abort } = this.client.begin();
    return { id, commit, abort, put: (to, body, headers) => this.put(to, body, { ...headers, transaction: id }) };
  }

  leave() {
    return this.client.deactivate();
  }

  drop() {
    return this.client.deactivate({ force: true });
  }
}

// As in a browser: its messages are text unless a body is bytes.
class StompJsWeb extends StompJs {
  static wire(port, version) {
    return new WebSocket(`ws://127.0.0.1:${port}/`, new Versions([version]).protocolVersions());
  }
}

class Stompit {
  static versions = ['1.0', '1.1', '1.2'];
  static escapes = '1.1';
  static errors = '1.0';
  #failed = new Inbox();

  static connect(port, version, headers = {}, beat = 0) {
    const connectHeaders = { host: 'h', 'accept-version': version, 'heart-beat': `${beat},${beat}`, ...headers };
    return new Promise((resolve, reject) => {
      stompit.connect({ host: '127.0.0.1', port, connectHeaders }, (error, client) => {
        if (error) {
          reject(error);
          return;
        }
        const connection = new Stompit();
        connection.client = client;
        client.getTransportSocket().on('error', () => {}); // told once more, by its socket
        client.on('error', (failed) => connection.#failed.push({ message: failed.message }));
        resolve(connection);
      });
    });
  }

  get version() {
    return this.client.headers.version ?? '1.0';
  }

  failure() {
    return this.#failed.next();
  }

  #send(make, body) {
    return new Promise((resolve, reject) => make({ onReceipt: resolve }).on('error', reject).end(body));
  }

  put(destination, body, headers = {}) {
    const content = Buffer.from(body);
    const length = { 'content-length': content.length };
    return this.#send((options) => this.client.send({ ...headers, ...length, destination }, options), content);
  }

  async subscribe(destination, ack = 'auto', headers = {}) {
    const inbox = new Inbox();
    this.client.subscribe({ ...headers, destination, ack }, (error, message) => {
      if (error) return;
      const parts = [];
      message.on('data', (part) => parts.push(part));
      message.on('end', () => inbox.push({ headers: message.headers, body: Buffer.concat(parts), message }));
    });
    return () => inbox.next();
  }

  ack({ message }, headers = {}) {
    return new Promise((resolve) => this.client.ack(message, headers, { onReceipt: resolve }));
  }

  nack({ message }, headers = {}) {
    return new Promise((resolve) => this.client.nack(message, headers, { onReceipt: resolve }));
  }

  transaction() {
    const transaction = this.client.begin();
    const end = (how) => () => new Promise((resolve) => transaction[how]({ onReceipt: resolve }));
    const put = (to, body, headers) => this.put(to, body, { ...headers, transaction: transaction.id });
    return { id: transaction.id, put, commit: end('commit'), abort: end('abort') };
  }

  leave() {
    return new Promise((resolve) => this.client.disconnect(resolve));
  }

  drop() {
    this.client.destroy();
    return Promise.resolve();
  }
}

export const clients = process.env.BROKER_WEB ? { stompjsweb: StompJsWeb } : { stompjs: StompJs, stompit: Stompit };

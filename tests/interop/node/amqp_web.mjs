// rhea over a WebSocket: sends messages and takes them back. Arguments: the port.

import rhea from 'rhea';
import { WebSocket } from 'ws';

const COUNT = 20;
const container = rhea.create_container();
const url = `ws://127.0.0.1:${process.argv[2]}/`;
const connection = container.connect({ connection_details: container.websocket_connect(WebSocket)(url, 'amqp'), reconnect: false });
let sent = 0;
let accepted = 0;
let received = 0;

connection.open_receiver('queue://rhea.web');
connection.open_sender('queue://rhea.web').on('sendable', ({ sender }) => {
  while (sent < COUNT && sender.sendable()) sender.send({ body: ++sent, durable: true });
});
container.on('accepted', () => ++accepted && finish());
container.on('message', ({ message }) => {
  if (message.body !== ++received) throw new Error(`${message.body} is not ${received}`);
  finish();
});
container.on('connection_error', ({ connection: { error } }) => {
  throw error;
});

function finish() {
  if (accepted !== COUNT || received !== COUNT) return;
  console.log('sent', sent, 'accepted', accepted, 'received', received);
  connection.close();
}

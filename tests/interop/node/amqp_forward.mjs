// Takes messages from queues and sends what they say on: every value is decoded to rhea's, and encoded from it.
//
// Arguments: the port, a selector for all queues, routes "FROM>TO,TO". A route ends with the case "end".

import rhea from 'rhea';

const [port, selector, ...routes] = process.argv.slice(2);

// rhea unwraps bodies to JavaScript's values, whose types AMQP cannot tell apart; here they keep their own.
const decode = rhea.message.decode;
rhea.message.decode = (buffer) => {
  const message = decode(buffer);
  const reader = new rhea.types.Reader(buffer);
  while (reader.remaining()) {
    const section = reader.read();
    if (Number(section.descriptor.value) === 0x77) message.typed = writable(section.value);
  }
  return message;
};

// rhea reads the items of an array with their type, and writes them without.
function writable(values) {
  for (const value of values.filter(({ value }) => Array.isArray(value))) {
    if (value.array_constructor) value.value = value.value.map((item) => item.value);
    else writable(value.value);
  }
  return values;
}

const container = rhea.create_container();
const connection = container.connect({ host: '127.0.0.1', port: Number(port), reconnect: false });
let open = routes.length;

container.on('connection_error', ({ connection: { error } }) => fail(error));
container.on('disconnected', ({ error }) => error && fail(error));
container.on('rejected', ({ delivery }) => fail(delivery.remote_state.error));

function fail(error) {
  console.error(error);
  process.exit(1);
}

for (const route of routes) {
  const [from, to] = route.split('>');
  const senders = to.split(',').map((address) => connection.open_sender(address));
  const filter = rhea.filter.selector(selector);
  connection.open_receiver({ source: { address: from, filter }, credit_window: 100 }).on('message', ({ message }) => {
    const { case: name, kind } = message.application_properties;
    for (const sender of senders) sender.send({ body: message.typed, application_properties: { case: name, kind } });
    if (name === 'end' && --open === 0) connection.close();
  });
}

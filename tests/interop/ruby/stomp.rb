# The gem `stomp` against the broker; run by tests/interop/test_programs.py.
#
#     ruby stomp.rb PORT
require 'stomp'
require 'timeout'

PORT = Integer(ARGV.fetch(0))

def same(found, wanted)
  raise "#{found.inspect} is not #{wanted.inspect}" unless found == wanted
end

def greeting(version, more = {})
  version == '1.0' ? more : { 'accept-version' => version, 'host' => 'localhost' }.merge(more)
end

def options(version, more = {})
  host = { login: 'me', passcode: 'x', host: '127.0.0.1', port: PORT }
  { hosts: [host], connect_headers: greeting(version, more), reliable: false }
end

def connected(version, more = {})
  connection = Stomp::Connection.new(options(version, more))
  same(connection.protocol, version)
  yield connection
  connection.disconnect('receipt' => 'bye')
  same(connection.disconnect_receipt.headers['receipt-id'], 'bye')
end

# What ACK and NACK have to say of a message, version by version.
def settle(connection, verb, message, more = {})
  headers = message.headers
  more = { 'subscription' => headers['subscription'] }.merge(more) if connection.protocol == '1.1'
  connection.public_send(verb, connection.protocol == '1.2' ? headers['ack'] : headers['message-id'], more)
end

SCENARIOS = {
  'a message comes as it was sent' => lambda do |version, queue|
    connected(version) do |connection|
      connection.publish(queue, 'grüße', 'persistent' => 'true', 'colour' => 'blue', 'receipt' => 'r1')
      same(connection.receive.headers['receipt-id'], 'r1')
      connection.subscribe(queue, 'id' => 's1', 'ack' => 'client')
      message = connection.receive
      same([message.body.dup.force_encoding('UTF-8'), message.headers['colour']], %w[grüße blue])
      settle(connection, :ack, message, 'receipt' => 'r2')
      same(connection.receive.headers['receipt-id'], 'r2')
    end
  end,
  'escapes, zeros and large bodies' => lambda do |version, queue|
    connected(version) do |connection|
      connection.subscribe(queue, 'id' => 's1')
      odd = { '1.0' => 'a\\b', '1.1' => "a:b\\x\nd", '1.2' => "a:b\\x\nd\re" }[version]
      [+"\0abc\0".b, ((0..255).map(&:chr).join.b * 8192), +''].each do |body|
        connection.publish(queue, body, 'odd' => odd)
        message = connection.receive
        same(message.body.to_s.b == body, true)
        same(message.headers['odd'], odd)
      end
    end
  end,
  'transactions' => lambda do |version, queue|
    connected(version) do |connection|
      connection.subscribe(queue, 'id' => 's1', 'ack' => 'client')
      %w[abort commit].each do |verb|
        connection.begin(verb)
        connection.publish(queue, verb, 'transaction' => verb)
        connection.public_send(verb, verb)
      end
      message = connection.receive
      same(message.body, 'commit')
      connection.begin('t3')
      settle(connection, :ack, message, 'transaction' => 't3')
      connection.abort('t3')
      message = connection.receive
      same([message.body, message.headers['redelivered']], %w[commit true])
      settle(connection, :ack, message)
    end
  end,
  'a poison message dies with its reason' => lambda do |version, queue|
    next if version == '1.0'

    connected(version) do |connection|
      poison = queue.sub('/queue/', '/queue/poison.')
      connection.subscribe(poison, 'id' => 's1', 'ack' => 'client-individual')
      connection.publish(poison, 'bad', 'persistent' => 'true')
      3.times { settle(connection, :nack, connection.receive, 'reason' => 'no such customer') }
      selector = "_AMQ_ORIG_QUEUE = '#{poison.delete_prefix('/queue/')}'"
      connection.subscribe('/queue/dead.poison', 'id' => 'd', 'selector' => selector)
      same(connection.receive.headers['_AMQ_DL_REASON'], 'max-deliveries')
    end
  end,
  'a durable subscription' => lambda do |version, queue|
    topic = queue.sub('queue', 'topic')
    name = { 'id' => 'd1', 'durable-subscription-name' => 'mine' }
    client = { 'client-id' => "ruby-#{version}" }
    connected(version, client) { |connection| connection.subscribe(topic, name) }
    connected(version) { |connection| connection.publish(topic, 'news', 'persistent' => 'true') }
    connected(version, client) do |connection|
      connection.subscribe(topic, name)
      same(connection.receive.body, 'news')
      connection.unsubscribe(topic, name)
    end
  end,
  'requests and replies, selectors and browsers with threads' => lambda do |version, queue|
    client = Stomp::Client.new(options(version))
    got = Queue.new
    client.subscribe('/temp-queue/answers', 'id' => 'a') { |message| got << message }
    client.subscribe("#{queue}.asked", 'id' => 'b') do |message|
      client.publish(message.headers['reply-to'], "re: #{message.body}")
    end
    client.publish("#{queue}.asked", 'it', 'reply-to' => '/temp-queue/answers')
    same(got.pop.body, 're: it')
    client.subscribe("#{queue}.some", 'id' => 'c', 'selector' => "colour = 'red'") { |message| got << message }
    %w[blue red].each { |colour| client.publish("#{queue}.some", colour, 'colour' => colour) }
    same(got.pop.body, 'red')
    client.subscribe("#{queue}.some", 'id' => 'd', 'browser' => 'true') { |message| got << message }
    same([got.pop.body, got.pop.headers['browser']], %w[blue end])
    client.close
  end,
}.freeze

%w[1.0 1.1 1.2].each do |version|
  SCENARIOS.each_with_index do |(name, run), number|
    Timeout.timeout(20) { run.call(version, "/queue/ruby.#{version.tr('.', '-')}.#{number}") }
    puts "ok #{version} #{name}"
  end
end

import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryMode;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.DistributionMode;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.SenderOptions;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.StreamDelivery;
import org.apache.qpid.protonj2.client.StreamReceiver;
import org.apache.qpid.protonj2.client.StreamReceiverOptions;
import org.apache.qpid.protonj2.client.StreamSender;
import org.apache.qpid.protonj2.client.StreamSenderMessage;
import org.apache.qpid.protonj2.client.StreamSenderOptions;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;
import org.apache.qpid.protonj2.client.exceptions.ClientResourceRemotelyClosedException;
import org.apache.qpid.protonj2.types.UnsignedLong;

/** What the client of Qpid ProtonJ2 can do with a broker: one line "ok NAME" for each scenario.  Argument: the port. */
final class ProtonJ2 {
    /** How long something that has to come may take, and how long nothing comes where nothing may, in milliseconds. */
    static final long PATIENCE = 10_000;
    static final long SILENCE = 200;

    private static final UnsignedLong SELECTOR = UnsignedLong.valueOf(0x0000468C00000004L);

    private final Connection connection;

    private ProtonJ2(Connection connection) {
        this.connection = connection;
    }

    interface Scenario {
        void run(String name) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Client client = Client.create(new ClientOptions().id("protonj2"));
        ConnectionOptions options = new ConnectionOptions().user("me").password("x");
        try (Connection connection = client.connect("127.0.0.1", Integer.parseInt(arguments[0]), options)) {
            new ProtonJ2(connection).run();
        }
        client.close();
    }

    private void run() throws Exception {
        scenario("a message comes as it was sent", this::asSent);
        scenario("outcomes", this::outcomes);
        scenario("a transaction", this::transaction);
        scenario("a stream", this::stream);
        scenario("a stream that is given up", this::aborted);
        scenario("a request and its reply", this::requestReply);
        scenario("a durable subscription", this::durable);
        scenario("a shared subscription", this::shared);
        scenario("a selector", this::selector);
        scenario("credit by hand", this::credit);
        scenario("a browser", this::browser);
        scenario("settled at once", this::settled);
        scenario("what is refused", this::refused);
    }

    private static void scenario(String name, Scenario scenario) throws Exception {
        scenario.run("protonj2." + name.replace(' ', '.'));
        System.out.println("ok " + name);
    }

    private static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }

    private static Delivery some(Receiver receiver) throws ClientException {
        Delivery delivery = receiver.receive(PATIENCE, TimeUnit.MILLISECONDS);
        if (delivery == null) {
            throw new AssertionError("nothing came");
        }
        return delivery;
    }

    private static Object body(Receiver receiver) throws ClientException {
        return some(receiver).message().body();
    }

    private static void nothing(Receiver receiver) throws ClientException {
        same(receiver.receive(SILENCE, TimeUnit.MILLISECONDS), null);
    }

    private static ReceiverOptions byHand() {
        return new ReceiverOptions().autoAccept(false).autoSettle(false);
    }

    private static ReceiverOptions of(ReceiverOptions options, String... capabilities) {
        options.sourceOptions().capabilities(capabilities);
        return options;
    }

    private static SenderOptions toQueue() {
        SenderOptions options = new SenderOptions();
        options.targetOptions().capabilities("queue");
        return options;
    }

    private void send(String name, SenderOptions options, Object... bodies) throws ClientException {
        try (Sender sender = connection.openSender(name, options)) {
            for (Object each : bodies) {
                sender.send(Message.create(each).durable(true)).awaitAccepted(PATIENCE, TimeUnit.MILLISECONDS);
            }
        }
    }

    private Receiver fromQueue(String name, ReceiverOptions options) throws ClientException {
        return connection.openReceiver(name, of(options, "queue"));
    }

    private void asSent(String name) throws ClientException {
        try (Sender sender = connection.openSender(name, toQueue());
                Receiver receiver = fromQueue(name, new ReceiverOptions())) {
            Message<Map<String, Object>> message = Message.create(Map.of("n", 5, "list", List.of(1L, "two")));
            message.durable(true).priority((byte) 7).messageId(UnsignedLong.valueOf(9)).subject("s").replyTo("there");
            message.groupId("g").property("p", 1.5).annotation("x-opt-mine", "a").footer("f", "foot");
            sender.send(message, Map.of("x-opt-on-the-way", "d")).awaitAccepted();
            Message<Map<String, Object>> found = some(receiver).message();
            same(found.body(), Map.of("n", 5, "list", List.of(1L, "two")));
            same(List.of(found.durable(), found.priority(), found.messageId()), List.of(true, (byte) 7, UnsignedLong.valueOf(9)));
            same(List.of(found.subject(), found.replyTo(), found.groupId()), List.of("s", "there", "g"));
            same(List.of(found.property("p"), found.annotation("x-opt-mine"), found.footer("f")), List.of(1.5, "a", "foot"));
        }
    }

    private void outcomes(String name) throws Exception {
        send(name, toQueue(), "bad");
        try (Receiver receiver = fromQueue(name, byHand())) {
            Delivery delivery = some(receiver);
            same(delivery.message().deliveryCount(), 0L);
            delivery.release();
            delivery = some(receiver);
            same(delivery.message().deliveryCount(), 0L);
            delivery.modified(true, false);
            delivery = some(receiver);
            same(delivery.message().deliveryCount(), 1L);
            delivery.reject("test:no", "not this one");
            nothing(receiver);
        }
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().addFilter("dead", SELECTOR, "\"m.x-opt-ORIG-ADDRESS\" = '" + name + "'");
        try (Receiver dead = fromQueue("DLQ", options)) {
            same(body(dead), "bad");
        }
    }

    private void transaction(String name) throws ClientException {
        send(name + ".in", toQueue(), "work");
        Session session = connection.openSession();
        Receiver in = session.openReceiver(name + ".in", of(byHand(), "queue"));
        Sender out = session.openSender(name + ".out", toQueue());
        session.beginTransaction();
        Delivery delivery = some(in);
        out.send(Message.create("never"));
        delivery.accept();
        session.rollbackTransaction();
        session.beginTransaction();
        out.send(Message.create("done"));
        out.send(Message.create("done too"));
        session.commitTransaction();
        session.close();
        try (Receiver found = fromQueue(name + ".out", new ReceiverOptions()); Receiver again = fromQueue(name + ".in", new ReceiverOptions())) {
            same(List.of(body(found), body(found)), List.of("done", "done too"));
            nothing(found);
            same(body(again), "work");
        }
    }

    private void stream(String name) throws Exception {
        byte[] content = new byte[5 << 20];
        new Random(1).nextBytes(content);
        StreamSenderOptions toQueue = new StreamSenderOptions();
        toQueue.targetOptions().capabilities("queue");
        StreamReceiverOptions fromQueue = new StreamReceiverOptions().autoAccept(false);
        fromQueue.sourceOptions().capabilities("queue");
        try (StreamSender sender = connection.openStreamSender(name, toQueue);
                StreamReceiver receiver = connection.openStreamReceiver(name, fromQueue)) {
            StreamSenderMessage message = sender.beginMessage();
            message.durable(true).property("p", "v");
            try (OutputStream body = message.body()) {
                body.write(content);
            }
            message.tracker().settlementFuture().get(PATIENCE, TimeUnit.MILLISECONDS);
            StreamDelivery delivery = receiver.receive(PATIENCE, TimeUnit.MILLISECONDS);
            same(delivery.message().property("p"), "v");
            try (InputStream body = delivery.message().body()) {
                same(Arrays.equals(body.readAllBytes(), content), true);
            }
            delivery.accept();
        }
    }

    private void aborted(String name) throws ClientException, java.io.IOException {
        send(name, toQueue(), "before");
        StreamSenderOptions toQueue = new StreamSenderOptions();
        toQueue.targetOptions().capabilities("queue");
        try (StreamSender sender = connection.openStreamSender(name, toQueue); Receiver receiver = fromQueue(name, new ReceiverOptions())) {
            StreamSenderMessage message = sender.beginMessage();
            OutputStream body = message.body();
            body.write(new byte[1 << 20]);
            body.flush();
            message.abort();
            sender.send(Message.create("behind"));
            same(List.of(body(receiver), body(receiver)), List.of("before", "behind"));
            nothing(receiver);
        }
    }

    private void requestReply(String name) throws ClientException {
        try (Sender anybody = connection.openAnonymousSender();
                Receiver server = fromQueue(name, new ReceiverOptions());
                Receiver client = connection.openDynamicReceiver()) {
            anybody.send(Message.create("6 * 7").to(name).replyTo(client.address()).correlationId("c"));
            Message<String> request = some(server).message();
            anybody.send(Message.create("42").to(request.replyTo()).correlationId(request.correlationId()));
            Message<String> reply = some(client).message();
            same(List.of(reply.body(), reply.correlationId()), List.of("42", "c"));
        }
    }

    private void durable(String name) throws ClientException {
        connection.openDurableReceiver(name, "mine", of(new ReceiverOptions(), "topic")).detach();
        SenderOptions toTopic = new SenderOptions();
        toTopic.targetOptions().capabilities("topic");
        send(name, toTopic, "while away");
        Receiver back = connection.openDurableReceiver(name, "mine", of(new ReceiverOptions(), "topic"));
        same(body(back), "while away");
        back.close();
        send(name, toTopic, "nobody's");
        try (Receiver anew = connection.openDurableReceiver(name, "mine", of(new ReceiverOptions(), "topic"))) {
            nothing(anew);
        }
    }

    private void shared(String name) throws ClientException {
        try (Receiver one = connection.openReceiver(name, of(new ReceiverOptions().linkName("group"), "topic", "shared"));
                Receiver two = connection.openReceiver(name, of(new ReceiverOptions().linkName("group|2"), "topic", "shared"))) {
            SenderOptions toTopic = new SenderOptions();
            toTopic.targetOptions().capabilities("topic");
            send(name, toTopic, "1", "2");
            same(java.util.Set.of(body(one), body(two)), java.util.Set.of("1", "2"));
            nothing(one);
        }
    }

    private void selector(String name) throws ClientException {
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().addFilter("apache.org:selector-filter:string", SELECTOR, "colour = 'red' AND n > 1");
        try (Sender sender = connection.openSender(name, toQueue()); Receiver receiver = fromQueue(name, options)) {
            same(receiver.source().filters().size(), 1);
            sender.send(Message.create("no").property("colour", "blue").property("n", 2));
            sender.send(Message.create("yes").property("colour", "red").property("n", 2));
            same(body(receiver), "yes");
            nothing(receiver);
        }
    }

    private void credit(String name) throws Exception {
        send(name, toQueue(), "1", "2", "3");
        try (Receiver receiver = fromQueue(name, new ReceiverOptions().creditWindow(0))) {
            nothing(receiver);
            receiver.addCredit(2);
            same(List.of(body(receiver), body(receiver)), List.of("1", "2"));
            nothing(receiver);
            receiver.addCredit(5);
            receiver.drain().get(PATIENCE, TimeUnit.MILLISECONDS);
            same(receiver.queuedDeliveries(), 1L);
            same(body(receiver), "3");
        }
    }

    private void browser(String name) throws ClientException {
        send(name, toQueue(), "1", "2");
        ReceiverOptions options = new ReceiverOptions();
        options.sourceOptions().distributionMode(DistributionMode.COPY);
        for (int reader = 0; reader < 2; reader++) {
            try (Receiver receiver = fromQueue(name, options)) {
                same(List.of(body(receiver), body(receiver)), List.of("1", "2"));
            }
        }
    }

    private void settled(String name) throws ClientException {
        SenderOptions options = toQueue().deliveryMode(DeliveryMode.AT_MOST_ONCE);
        ReceiverOptions taking = new ReceiverOptions().deliveryMode(DeliveryMode.AT_MOST_ONCE);
        try (Sender sender = connection.openSender(name, options); Receiver receiver = fromQueue(name, taking)) {
            Tracker tracker = sender.send(Message.create("quick"));
            same(tracker.settled(), true);
            Delivery delivery = some(receiver);
            same(List.of(delivery.message().body(), delivery.remoteSettled()), List.of("quick", true));
        }
    }

    private void refused(String name) throws ClientException {
        try (Receiver receiver = connection.openReceiver(name + "?nonsense=1")) {
            receiver.openFuture().get(PATIENCE, TimeUnit.MILLISECONDS);
            throw new AssertionError("a queue with nonsense");
        } catch (java.util.concurrent.ExecutionException refusal) {
            same(refusal.getCause() instanceof ClientResourceRemotelyClosedException, true);
        } catch (InterruptedException | java.util.concurrent.TimeoutException never) {
            throw new AssertionError(never);
        }
        try (Sender anybody = connection.openAnonymousSender()) {
            Tracker tracker = anybody.send(Message.create("to nothing").to(""));
            same(tracker.awaitSettlement(PATIENCE, TimeUnit.MILLISECONDS).remoteState().getType(), DeliveryState.Type.REJECTED);
        }
    }
}

import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSException;
import jakarta.jms.JMSProducer;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What Qpid JMS can be told in its URI, and what JMS 2 added: one line "ok NAME" for each scenario. Argument: the port. */
final class Options extends Scenarios {
    private final String server;

    private Options(Connection connection, String server) throws JMSException {
        super(connection);
        this.server = server;
    }

    public static void main(String[] arguments) throws Exception {
        String server = "amqp://127.0.0.1:" + arguments[0];
        try (Connection connection = new JmsConnectionFactory("me", "x", server).createConnection()) {
            connection.start();
            new Options(connection, server).run();
        }
    }

    private void run() throws Exception {
        scenario("a redelivery policy that rejects", this::rejecting);
        scenario("a redelivery policy that leaves to others", this::leavingToOthers);
        scenario("prefetch of nothing", this::noPrefetch);
        scenario("settled by the producer", this::presettledSending);
        scenario("settled to the consumer", this::presettledReceiving);
        scenario("sending without waiting", this::completion);
        scenario("acknowledging one by one", this::individually);
        scenario("a listener that fails", this::listener);
        scenario("recover", this::recover);
        scenario("a context", this::context);
        scenario("a browser with a selector", this::browser);
        scenario("a temporary topic", this::temporaryTopic);
        scenario("a reply to one who is gone", this::lateReply);
        scenario("a shared durable consumer of two connections", this::sharedDurable);
        scenario("a connection of its own for a client id", this::clientId);
        scenario("a selector that is none", this::badSelector);
        scenario("a delayed message in a transaction", this::delayedInTransaction);
    }

    private JMSContext contextWith(String query) {
        return new JmsConnectionFactory("me", "x", server + "?" + query).createContext(JMSContext.AUTO_ACKNOWLEDGE);
    }

    /** The message fails as often as the policy allows; then the client gives it the outcome 2, rejected, or 5, undeliverable here. */
    private void redeliveryPolicy(String name, int outcome, String found, String selector) throws Exception {
        send(session.createQueue(name), "bad");
        String query = "jms.redeliveryPolicy.maxRedeliveries=1&jms.redeliveryPolicy.outcome=" + outcome;
        try (JMSContext context = contextWith(query); JMSContext mine = context.createContext(JMSContext.SESSION_TRANSACTED)) {
            JMSConsumer consumer = mine.createConsumer(mine.createQueue(name));
            for (int attempt = 1; attempt <= 2; attempt++) {
                same(consumer.receive(PATIENCE).getIntProperty("JMSXDeliveryCount"), attempt);
                mine.rollback();
            }
            same(consumer.receive(SILENCE), null);
            same(texts(session.createQueue(found), selector, 1), List.of("bad"));
        }
    }

    private void rejecting(String name) throws Exception {
        redeliveryPolicy(name, 2, "DLQ", "\"m.x-opt-ORIG-ADDRESS\" = '" + name + "'");
    }

    private void leavingToOthers(String name) throws Exception {
        redeliveryPolicy(name, 5, name, null);
    }

    private void noPrefetch(String name) throws Exception {
        Queue queue = session.createQueue(name);
        send(queue, "1", "2", "3");
        try (JMSContext one = contextWith("jms.prefetchPolicy.all=0"); JMSContext two = contextWith("jms.prefetchPolicy.all=0")) {
            JMSConsumer first = one.createConsumer(queue);
            JMSConsumer second = two.createConsumer(queue);
            same(first.receiveBody(String.class, PATIENCE), "1");
            same(second.receiveBody(String.class, PATIENCE), "2");
            same(second.receiveBodyNoWait(String.class), "3");
            same(first.receiveNoWait(), null);
            same(first.receive(SILENCE), null);
            send(queue, "4");
            same(first.receiveBodyNoWait(String.class), "4");
        }
    }

    private void presettledSending(String name) throws Exception {
        Queue queue = session.createQueue(name);
        try (JMSContext context = contextWith("jms.presettlePolicy.presettleProducers=true")) {
            JMSProducer producer = context.createProducer();
            producer.send(queue, "1").send(queue, "2");
        }
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            same(List.of(text(consumer), text(consumer)), List.of("1", "2"));
        }
    }

    private void presettledReceiving(String name) throws Exception {
        Queue queue = session.createQueue(name);
        send(queue, "1", "2");
        try (JMSContext context = contextWith("jms.presettlePolicy.presettleConsumers=true&jms.prefetchPolicy.all=1")) {
            same(context.createConsumer(queue).receiveBody(String.class, PATIENCE), "1");
            same(context.createConsumer(queue).receiveBody(String.class, SILENCE), null);
        }
    }

    private void completion(String name) throws Exception {
        BlockingQueue<Object> told = new LinkedBlockingQueue<>();
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                told.add(message);
            }

            @Override
            public void onException(Message message, Exception exception) {
                told.add(exception);
            }
        };
        try (MessageProducer producer = session.createProducer(session.createQueue(name))) {
            for (int n = 0; n < 50; n++) {
                producer.send(session.createTextMessage("" + n), listener);
            }
            for (int n = 0; n < 50; n++) {
                same(((TextMessage) told.poll(PATIENCE, TimeUnit.MILLISECONDS)).getText(), "" + n);
            }
        }
        Queue small = session.createQueue("small." + name);
        send(small, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10");
        try (MessageProducer producer = session.createProducer(small)) {
            producer.send(session.createTextMessage("11"), listener);
            same(told.poll(PATIENCE, TimeUnit.MILLISECONDS) instanceof JMSException, true);
        }
    }

    private void individually(String name) throws Exception {
        Queue queue = session.createQueue(name);
        send(queue, "1", "2", "3");
        int individual = 101;
        Session other = connection.createSession(false, individual);
        MessageConsumer consumer = other.createConsumer(queue);
        some(consumer);
        some(consumer).acknowledge();
        some(consumer);
        other.close();
        same(texts(queue, null, 2), List.of("1", "3"));
    }

    /** Qpid JMS releases what its listener failed at, which counts as no attempt. */
    private void listener(String name) throws Exception {
        Queue queue = session.createQueue("poison." + name);
        send(queue, "bad");
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        CountDownLatch attempts = new CountDownLatch(5);
        other.createConsumer(queue).setMessageListener(message -> {
            attempts.countDown();
            if (attempts.getCount() > 0) {
                throw new RuntimeException("no");
            }
        });
        same(attempts.await(PATIENCE, TimeUnit.MILLISECONDS), true);
        other.close();
        same(texts(queue, null, 0), List.of());
    }

    private void recover(String name) throws Exception {
        Queue queue = session.createQueue(name);
        send(queue, "1", "2");
        Session other = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = other.createConsumer(queue);
        same(List.of(text(consumer), text(consumer)), List.of("1", "2"));
        other.recover();
        Message again = some(consumer);
        same(again.getJMSRedelivered(), true);
        same(text(consumer), "2");
        again.acknowledge();
        other.close();
        same(texts(queue, null, 0), List.of());
    }

    private void browser(String name) throws Exception {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue)) {
            for (int n = 0; n < 2000; n++) {
                Message message = session.createTextMessage("" + n);
                message.setIntProperty("n", n);
                producer.send(message);
            }
        }
        try (QueueBrowser browser = session.createBrowser(queue, "n >= 1990 OR n < 5")) {
            same(browsed(browser), 15);
            same(browsed(browser), 15);
        }
        try (QueueBrowser browser = session.createBrowser(queue)) {
            same(browsed(browser), 2000);
        }
    }

    private static int browsed(QueueBrowser browser) throws JMSException {
        int number = 0;
        for (Enumeration<?> left = browser.getEnumeration(); left.hasMoreElements(); left.nextElement()) {
            number++;
        }
        return number;
    }

    private void temporaryTopic(String name) throws Exception {
        TemporaryTopic topic = session.createTemporaryTopic();
        try (MessageConsumer one = session.createConsumer(topic); MessageConsumer two = session.createConsumer(topic)) {
            send(topic, "for all");
            same(List.of(text(one), text(two)), List.of("for all", "for all"));
        }
        topic.delete();
    }

    private void lateReply(String name) throws Exception {
        Queue queue = session.createQueue(name);
        try (JMSContext asking = contextWith("")) {
            asking.createProducer().setJMSReplyTo(asking.createTemporaryQueue()).send(queue, "6 * 7");
        }
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            Destination gone = some(consumer).getJMSReplyTo();
            refused(() -> session.createProducer(gone));
            refused(() -> session.createProducer(null).send(gone, session.createTextMessage("42")));
        }
    }

    private interface Call {
        void make() throws JMSException;
    }

    private static void refused(Call call) throws JMSException {
        try {
            call.make();
            throw new AssertionError("a destination that is gone");
        } catch (InvalidDestinationException expected) {
            return;
        }
    }

    private void sharedDurable(String name) throws Exception {
        Topic topic = session.createTopic(name);
        List<String> got = new ArrayList<>();
        try (JMSContext one = contextWith(""); JMSContext two = contextWith("")) {
            JMSConsumer first = one.createSharedDurableConsumer(topic, "global");
            JMSConsumer second = two.createSharedDurableConsumer(topic, "global");
            send(topic, "1", "2", "3", "4");
            for (JMSConsumer each : List.of(first, second, first, second)) {
                got.add(each.receiveBody(String.class, PATIENCE));
            }
            Collections.sort(got);
            same(got, List.of("1", "2", "3", "4"));
        }
        send(topic, "while away");
        try (JMSContext back = contextWith("")) {
            JMSConsumer consumer = back.createSharedDurableConsumer(topic, "global");
            same(consumer.receiveBody(String.class, PATIENCE), "while away");
            consumer.close();
            back.unsubscribe("global");
        }
    }

    private void clientId(String name) throws Exception {
        try (JMSContext first = contextWith("jms.clientID=twice")) {
            first.start();
            try (JMSContext second = contextWith("jms.clientID=twice")) {
                second.start();
                throw new AssertionError("two connections of a client");
            } catch (jakarta.jms.InvalidClientIDRuntimeException expected) {
                return;
            }
        }
    }

    private void badSelector(String name) throws Exception {
        try {
            session.createConsumer(session.createQueue(name), "colour = = 'red'");
            throw new AssertionError("a selector that is none");
        } catch (InvalidSelectorException expected) {
            return;
        }
    }

    private void delayedInTransaction(String name) throws Exception {
        try (JMSContext context = contextWith(""); JMSContext mine = context.createContext(JMSContext.SESSION_TRANSACTED)) {
            Queue queue = mine.createQueue(name);
            long begun = System.currentTimeMillis();
            mine.createProducer().setDeliveryDelay(300).send(queue, "later");
            mine.createProducer().send(queue, "now");
            mine.commit();
            JMSConsumer consumer = mine.createConsumer(queue);
            same(consumer.receiveBody(String.class, PATIENCE), "now");
            same(consumer.receiveBody(String.class, PATIENCE), "later");
            same(System.currentTimeMillis() - begun >= 298, true);
            mine.commit();
        }
    }

    private void context(String name) throws Exception {
        try (JMSContext context = contextWith("jms.clientID=context")) {
            Topic topic = context.createTopic(name);
            context.createDurableConsumer(topic, "mine", "n > 1", false).close();
            context.createProducer().setProperty("n", 1).send(topic, "no");
            context.createProducer().setProperty("n", 2).setPriority(9).setJMSType("t").send(topic, "yes");
            context.createProducer().setProperty("n", 3).send(topic, Map.of("k", "v"));
            JMSConsumer consumer = context.createDurableConsumer(topic, "mine", "n > 1", false);
            Message first = consumer.receive(PATIENCE);
            same(List.of(first.getBody(String.class), first.getJMSPriority(), first.getJMSType()), List.of("yes", 9, "t"));
            same(consumer.receive(PATIENCE).getBody(Map.class), Map.of("k", "v"));
            consumer.close();
            context.unsubscribe("mine");
        }
    }
}

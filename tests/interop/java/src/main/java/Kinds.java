import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.qpid.jms.JmsConnectionFactory;

/** The kinds of queues and what addresses do, with Qpid JMS: one line "ok NAME" for each. Argument: the port. */
final class Kinds extends Scenarios {
    private Kinds(Connection connection) throws JMSException {
        super(connection);
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory("me", "x", "amqp://127.0.0.1:" + arguments[0]);
        factory.setPopulateJMSXUserID(false);
        try (Connection connection = factory.createConnection()) {
            connection.setClientID("kinds");
            connection.start();
            new Kinds(connection).run();
        }
    }

    private void run() throws Exception {
        scenario("last value", this::lastValue);
        scenario("ring", this::ring);
        scenario("exclusive", this::exclusive);
        scenario("non destructive", this::nonDestructive);
        scenario("groups", this::groups);
        scenario("a closed group", this::closedGroup);
        scenario("groups dealt out anew", this::rebalance);
        scenario("the first of a group", this::firstOfGroup);
        scenario("max consumers", this::maxConsumers);
        scenario("purge on no consumers", this::purge);
        scenario("consumers before dispatch", this::before);
        scenario("consumer priority", this::consumerPriority);
        scenario("another kind than it is", this::another);
        scenario("a full name", this::fullName);
        scenario("priorities", this::priorities);
        scenario("a wildcard", this::wildcard);
        scenario("a divert", this::divert);
        scenario("duplicates", this::duplicates);
        scenario("duplicates in a transaction", this::duplicatesInTransaction);
        scenario("a shared durable subscription with a selector", this::sharedSelector);
        scenario("a retroactive address", this::retroactive);
        scenario("a dead letter says why", this::deadLetter);
    }

    // -- kinds of queues

    private void lastValue(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?last-value-key=ticker");
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String each : List.of("a1", "b1", "a2", "a3", "b2")) {
                producer.send(with("ticker", each.substring(0, 1), each));
            }
            producer.send(session.createTextMessage("no key"));
        }
        same(texts(queue, null, 3), List.of("a3", "b2", "no key"));
    }

    private void ring(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?ring-size=2");
        send(queue, "1", "2", "3", "4");
        same(texts(queue, null, 2), List.of("3", "4"));
    }

    private void exclusive(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?exclusive=true");
        MessageConsumer first = session.createConsumer(queue);
        try (MessageConsumer second = session.createConsumer(queue)) {
            send(queue, "1", "2", "3");
            same(List.of(text(first), text(first), text(first)), List.of("1", "2", "3"));
            same(second.receive(SILENCE), null);
            first.close();
            send(queue, "4");
            same(text(second), "4");
        }
    }

    private void nonDestructive(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?non-destructive=true&last-value-key=ticker");
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String each : List.of("a1", "a2", "b1")) {
                producer.send(with("ticker", each.substring(0, 1), each));
            }
            for (int reader = 0; reader < 2; reader++) {
                same(texts(queue, null, 2), List.of("a2", "b1"));
            }
            try (MessageConsumer watching = session.createConsumer(queue)) {
                same(List.of(text(watching), text(watching)), List.of("a2", "b1"));
                producer.send(with("ticker", "a", "a3"));
                same(text(watching), "a3");
            }
        }
        same(browsed(queue), List.of("b1", "a3"));
    }

    private void groups(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue)) {
            Map<String, Set<Integer>> takers = new HashMap<>();
            List<MessageConsumer> consumers = consumers(queue, 2);
            for (int n = 0; n < 40; n++) {
                producer.send(with("JMSXGroupID", "g" + n % 4, "" + n));
            }
            same(collect(consumers, 40, takers), 40);
            for (Set<Integer> who : takers.values()) {
                same(who.size(), 1);
            }
            same(takers.size(), 4);
            Set<Integer> all = new HashSet<>();
            takers.values().forEach(all::addAll);
            same(all.size(), 2);
            for (MessageConsumer each : consumers) {
                each.close();
            }
        }
    }

    private void closedGroup(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer one = session.createConsumer(queue);
                MessageConsumer two = session.createConsumer(queue)) {
            producer.send(with("JMSXGroupID", "g", "1"));
            TextMessage last = with("JMSXGroupID", "g", "2");
            last.setIntProperty("JMSXGroupSeq", -1);
            producer.send(last);
            same(List.of(text(one), text(one)), List.of("1", "2"));
            producer.send(with("JMSXGroupID", "g", "3"));
            same(collect(List.of(one, two), 1, new HashMap<>()), 1);
        }
    }

    private void rebalance(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?group-rebalance=true");
        try (MessageProducer producer = session.createProducer(queue)) {
            List<MessageConsumer> consumers = consumers(queue, 1);
            for (int round = 0; round < 2; round++) {
                for (int n = 0; n < 20; n++) {
                    producer.send(with("JMSXGroupID", "g" + n % 4, "" + n));
                }
                Map<String, Set<Integer>> takers = new HashMap<>();
                same(collect(consumers, 20, takers), 20);
                Set<Integer> all = new HashSet<>();
                takers.values().forEach(all::addAll);
                same(all.size(), round + 1);
                if (round == 0) {
                    consumers.addAll(consumers(queue, 1));
                }
            }
            for (MessageConsumer each : consumers) {
                each.close();
            }
        }
    }

    private void firstOfGroup(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?group-first-key=firstOne");
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer consumer = session.createConsumer(queue)) {
            producer.send(with("JMSXGroupID", "g", "1"));
            producer.send(with("JMSXGroupID", "g", "2"));
            same(some(consumer).getBooleanProperty("firstOne"), true);
            same(some(consumer).propertyExists("firstOne"), false);
        }
    }

    private void maxConsumers(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?max-consumers=1");
        try (MessageConsumer one = session.createConsumer(queue)) {
            refused(() -> session.createConsumer(queue), "amqp:resource-limit-exceeded");
            send(queue, "1");
            same(text(one), "1");
        }
        session.createConsumer(queue).close();
    }

    private void purge(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?purge-on-no-consumers=true");
        Session acknowledging = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = acknowledging.createConsumer(queue);
        send(queue, "1", "2");
        some(consumer);
        acknowledging.close();
        send(queue, "3");
        same(texts(queue, null, 0), List.of());
    }

    private void before(String name) throws JMSException {
        Queue queue = session.createQueue(name + "?consumers-before-dispatch=2");
        send(queue, "1", "2");
        try (MessageConsumer one = session.createConsumer(queue)) {
            same(one.receive(SILENCE), null);
            try (MessageConsumer two = session.createConsumer(queue)) {
                same(collect(List.of(one, two), 2, new HashMap<>()), 2);
            }
        }
    }

    private void consumerPriority(String name) throws JMSException {
        Queue plain = session.createQueue(name);
        try (MessageConsumer low = session.createConsumer(session.createQueue(name + "?consumer-priority=-1"));
                MessageConsumer high = session.createConsumer(session.createQueue(name + "?consumer-priority=5"))) {
            send(plain, "1", "2", "3");
            same(List.of(text(high), text(high), text(high)), List.of("1", "2", "3"));
            same(low.receive(SILENCE), null);
        }
    }

    private void another(String name) throws JMSException {
        session.createConsumer(session.createQueue(name + "?ring-size=2")).close();
        refused(() -> session.createConsumer(session.createQueue(name + "?ring-size=3")), "amqp:precondition-failed");
        refused(() -> session.createProducer(session.createQueue(name + "?exclusive=true")), "amqp:precondition-failed");
        refused(() -> session.createConsumer(session.createQueue(name + "x?ring-size=many")), "ring-size");
        send(session.createQueue(name), "still here");
        same(texts(session.createQueue(name), null, 1), List.of("still here"));
    }

    // -- addresses

    private void fullName(String name) throws JMSException {
        Topic topic = session.createTopic(name);
        try (MessageConsumer one = session.createConsumer(session.createTopic(name + "::" + name + ".q1"));
                MessageConsumer other = session.createConsumer(topic)) {
            send(topic, "both");
            same(text(one), "both");
            same(text(other), "both");
            send(session.createQueue(name + "::" + name + ".q1"), "one");
            same(text(one), "one");
            same(other.receive(SILENCE), null);
        }
    }

    private void priorities(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue)) {
            for (int priority : List.of(4, 0, 9, 5, 9)) {
                producer.send(session.createTextMessage("" + priority), producer.getDeliveryMode(), priority, 0);
            }
        }
        same(texts(queue, null, 5), List.of("9", "9", "5", "4", "0"));
    }

    private void wildcard(String name) throws JMSException {
        try (MessageConsumer words = session.createConsumer(session.createTopic(name + ".#"));
                MessageConsumer word = session.createConsumer(session.createTopic(name + ".*"))) {
            send(session.createTopic(name + ".a.b"), "deep");
            send(session.createTopic(name + ".a"), "flat");
            same(List.of(text(words), text(words)), List.of("deep", "flat"));
            Message got = some(word);
            same(((TextMessage) got).getText(), "flat");
            same(got.getJMSDestination(), session.createTopic(name + ".a"));
        }
    }

    private void divert(String name) throws JMSException {
        send(session.createQueue("diverted.in"), "1", "2");
        same(texts(session.createQueue("diverted.in"), null, 2), List.of("1", "2"));
        try (MessageConsumer copies = session.createConsumer(session.createQueue("diverted.copies"))) {
            Message copy = some(copies);
            same(((TextMessage) copy).getText(), "1");
            same(copy.getStringProperty("via"), "divert");
            same(text(copies), "2");
        }
    }

    private void duplicates(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue)) {
            for (String each : List.of("a", "a", "b")) {
                producer.send(with("_AMQ_DUPL_ID", each, each));
            }
        }
        same(texts(queue, null, 2), List.of("a", "b"));
    }

    private void duplicatesInTransaction(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = transacted.createProducer(queue);
        producer.send(with("_AMQ_DUPL_ID", "a", "a"));
        transacted.commit();
        producer.send(with("_AMQ_DUPL_ID", "a", "a"));
        producer.send(with("_AMQ_DUPL_ID", "b", "b"));
        refused(transacted::commit, "");
        transacted.close();
        same(texts(queue, null, 1), List.of("a"));
    }

    private void sharedSelector(String name) throws JMSException {
        Topic topic = session.createTopic(name);
        session.createSharedDurableConsumer(topic, "reds", "colour = 'red'").close();
        try (MessageProducer producer = session.createProducer(topic)) {
            for (String each : List.of("red", "blue", "red")) {
                producer.send(with("colour", each, each));
            }
        }
        try (MessageConsumer one = session.createSharedDurableConsumer(topic, "reds", "colour = 'red'");
                MessageConsumer two = session.createSharedDurableConsumer(topic, "reds", "colour = 'red'")) {
            same(collect(List.of(one, two), 2, new HashMap<>()), 2);
            refused(() -> session.createSharedDurableConsumer(topic, "reds", "colour = 'blue'"), "");
        }
        session.createSharedDurableConsumer(topic, "reds", "colour = 'blue'").close();
        session.unsubscribe("reds");
    }

    private void retroactive(String name) throws JMSException {
        Topic topic = session.createTopic("retro." + name);
        try (MessageConsumer first = session.createConsumer(topic)) {
            send(topic, "1", "2", "3");
            same(text(first), "1");
        }
        try (MessageConsumer late = session.createConsumer(topic)) {
            same(List.of(text(late), text(late)), List.of("2", "3"));
        }
    }

    private void deadLetter(String name) throws JMSException {
        Queue queue = session.createQueue("poison." + name);
        send(queue, "bad");
        Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = transacted.createConsumer(queue);
        for (int attempt = 0; attempt < 3; attempt++) {
            some(consumer);
            transacted.rollback();
        }
        transacted.close();
        String selector = "\"m.x-opt-ORIG-ADDRESS\" = 'poison." + name + "' AND \"m.x-opt-DL-ATTEMPTS\" = 3";
        try (MessageConsumer dead = session.createConsumer(session.createQueue("dead.poison"), selector)) {
            Message letter = some(dead);
            same(letter.getJMSRedelivered(), false);
            same(((TextMessage) letter).getText(), "bad");
        }
    }

    // -- what they share

    private interface Attempt {
        void run() throws JMSException;
    }

    /** The broker must refuse this with these words, and go on. */
    private static void refused(Attempt attempt, String words) throws JMSException {
        try {
            attempt.run();
        } catch (JMSException refusal) {
            if (!refusal.getMessage().contains(words)) {
                throw refusal;
            }
            return;
        }
        throw new AssertionError("not refused: " + words);
    }

    private TextMessage with(String property, String value, String text) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty(property, value);
        return message;
    }

    private List<MessageConsumer> consumers(Queue queue, int number) throws JMSException {
        List<MessageConsumer> made = new ArrayList<>();
        for (int n = 0; n < number; n++) {
            made.add(session.createConsumer(queue));
        }
        return made;
    }

    /** Take so many messages from several consumers, and note which of them got what group. */
    private static int collect(List<MessageConsumer> consumers, int number, Map<String, Set<Integer>> takers)
            throws JMSException {
        long end = System.currentTimeMillis() + PATIENCE;
        int got = 0;
        while (got < number && System.currentTimeMillis() < end) {
            for (int at = 0; at < consumers.size(); at++) {
                Message message = consumers.get(at).receive(5);
                if (message != null) {
                    got++;
                    takers.computeIfAbsent(message.getStringProperty("JMSXGroupID"), g -> new HashSet<>()).add(at);
                }
            }
        }
        return got;
    }

    private List<String> browsed(Queue queue) throws JMSException {
        List<String> found = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(queue)) {
            for (Object message : Collections.list(browser.getEnumeration())) {
                found.add(((TextMessage) message).getText());
            }
        }
        return found;
    }
}

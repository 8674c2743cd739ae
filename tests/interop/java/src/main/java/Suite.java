import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What JMS promises, with Qpid JMS: one line "ok NAME" for each scenario. Argument: the port. */
final class Suite extends Scenarios {
    private Suite(Connection connection) throws JMSException {
        super(connection);
    }

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory("me", "x", "amqp://127.0.0.1:" + arguments[0]);
        try (Connection connection = factory.createConnection()) {
            connection.setClientID("jms");
            connection.start();
            new Suite(connection).run();
        }
    }

    private void run() throws Exception {
        scenario("headers", this::headers);
        scenario("selectors", this::selectors);
        scenario("a browser", this::browser);
        scenario("a transacted session", this::transacted);
        scenario("rollback", this::rollback);
        scenario("a poison message", this::poison);
        scenario("a durable subscriber", this::durable);
        scenario("shared consumers", this::shared);
        scenario("a shared durable consumer", this::sharedDurable);
        scenario("no local", this::noLocal);
        scenario("request and reply", this::requestReply);
        scenario("kinds of messages", this::kinds);
        scenario("a large message", this::large);
        scenario("a delivery delay", this::delay);
        scenario("time to live", this::timeToLive);
        scenario("client acknowledgement", this::clientAcknowledge);
    }

    // -- scenarios

    private void headers(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer consumer = session.createConsumer(queue)) {
            TextMessage sent = session.createTextMessage("text");
            sent.setJMSCorrelationID("c-1");
            sent.setJMSType("order");
            sent.setJMSReplyTo(session.createTopic("answers"));
            sent.setStringProperty("JMSXGroupID", "g");
            for (String type : List.of("a", "b")) {
                sent.setStringProperty(type, type);
            }
            sent.setByteProperty("byte", (byte) 1);
            sent.setDoubleProperty("double", 2.5);
            producer.send(sent, DeliveryMode.PERSISTENT, 7, 60_000);
            TextMessage got = (TextMessage) some(consumer);
            same(got.getText(), "text");
            same(got.getJMSMessageID(), sent.getJMSMessageID());
            same(got.getJMSCorrelationID(), "c-1");
            same(got.getJMSType(), "order");
            same(got.getJMSReplyTo(), sent.getJMSReplyTo());
            same(got.getJMSDestination(), queue);
            same(got.getJMSPriority(), 7);
            same(got.getJMSDeliveryMode(), DeliveryMode.PERSISTENT);
            same(got.getJMSExpiration(), sent.getJMSExpiration());
            same(got.getJMSRedelivered(), false);
            same(got.getStringProperty("JMSXGroupID"), "g");
            same(got.getObjectProperty("byte"), (byte) 1);
            same(got.getObjectProperty("double"), 2.5);
        }
    }

    private void selectors(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue)) {
            for (int n = 0; n < 10; n++) {
                TextMessage message = session.createTextMessage("" + n);
                message.setIntProperty("n", n);
                message.setStringProperty("color", n % 2 == 0 ? "red" : "blue");
                producer.send(message);
            }
        }
        same(texts(queue, "n > 5 AND color = 'red'", 2), List.of("6", "8"));
        same(texts(queue, "JMSPriority = 4 AND n BETWEEN 1 AND 2", 2), List.of("1", "2"));
        same(texts(queue, null, 6), List.of("0", "3", "4", "5", "7", "9"));
    }

    private void browser(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        send(queue, "1", "2", "3");
        try (QueueBrowser browser = session.createBrowser(queue)) {
            same(Collections.list(browser.getEnumeration()).size(), 3);
        }
        same(texts(queue, null, 3), List.of("1", "2", "3"));
    }

    private void transacted(String name) throws JMSException {
        Session other = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue in = session.createQueue(name + ".in");
        Queue out = session.createQueue(name + ".out");
        send(in, "work");
        MessageConsumer working = other.createConsumer(in);
        MessageProducer producer = other.createProducer(out);
        some(working);
        producer.send(other.createTextMessage("1"));
        producer.send(other.createTextMessage("2"));
        same(texts(out, null, 0), List.of());
        other.commit();
        same(texts(out, null, 2), List.of("1", "2"));
        other.close();
        same(texts(in, null, 0), List.of());
    }

    private void rollback(String name) throws JMSException {
        Session other = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue in = session.createQueue(name + ".in");
        Queue out = session.createQueue(name + ".out");
        send(in, "work");
        MessageConsumer working = other.createConsumer(in);
        some(working);
        other.createProducer(out).send(other.createTextMessage("never"));
        other.rollback();
        Message again = some(working);
        same(again.getJMSRedelivered(), true);
        same(again.getIntProperty("JMSXDeliveryCount"), 2);
        other.commit();
        other.close();
        same(texts(in, null, 0), List.of());
        same(texts(out, null, 0), List.of());
    }

    private void poison(String name) throws JMSException {
        Session other = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("poison." + name);
        send(queue, "bad");
        MessageConsumer consumer = other.createConsumer(queue);
        for (int attempt = 1; attempt <= 3; attempt++) {
            same(some(consumer).getIntProperty("JMSXDeliveryCount"), attempt);
            other.rollback();
        }
        same(consumer.receive(SILENCE), null);
        other.close();
        same(texts(session.createQueue("dead.poison"), "\"m.x-opt-ORIG-ADDRESS\" = 'poison." + name + "'", 1), List.of("bad"));
    }

    private void durable(String name) throws JMSException {
        Topic topic = session.createTopic(name);
        session.createDurableSubscriber(topic, "durable").close();
        send(topic, "while away");
        try (MessageConsumer back = session.createDurableSubscriber(topic, "durable")) {
            same(text(back), "while away");
            try {
                session.unsubscribe("durable");
                throw new AssertionError("it is being consumed");
            } catch (JMSException expected) {
                send(topic, "still there");
                same(text(back), "still there");
            }
        }
        session.unsubscribe("durable");
        try {
            session.unsubscribe("durable");
            throw new AssertionError("there is nothing to unsubscribe");
        } catch (InvalidDestinationException expected) {
            return;
        }
    }

    private void shared(String name) throws JMSException {
        Topic topic = session.createTopic(name);
        try (MessageConsumer one = session.createSharedConsumer(topic, "shared");
                MessageConsumer two = session.createSharedConsumer(topic, "shared")) {
            send(topic, "1", "2", "3", "4");
            List<String> got = new ArrayList<>();
            for (MessageConsumer each : List.of(one, two, one, two)) {
                got.add(text(each));
            }
            Collections.sort(got);
            same(got, List.of("1", "2", "3", "4"));
        }
    }

    private void sharedDurable(String name) throws JMSException {
        Topic topic = session.createTopic(name);
        session.createSharedDurableConsumer(topic, "both").close();
        send(topic, "while away");
        try (MessageConsumer back = session.createSharedDurableConsumer(topic, "both")) {
            same(text(back), "while away");
        }
        session.unsubscribe("both");
    }

    private void noLocal(String name) throws JMSException {
        Topic topic = session.createTopic(name);
        try (MessageConsumer deaf = session.createConsumer(topic, null, true);
                MessageConsumer hears = session.createConsumer(topic)) {
            send(topic, "mine");
            same(text(hears), "mine");
            same(deaf.receive(SILENCE), null);
        }
    }

    private void requestReply(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        TemporaryQueue answers = session.createTemporaryQueue();
        try (MessageProducer anybody = session.createProducer(null);
                MessageConsumer server = session.createConsumer(queue);
                MessageConsumer client = session.createConsumer(answers)) {
            Message request = session.createTextMessage("6 * 7");
            request.setJMSReplyTo(answers);
            anybody.send(queue, request);
            anybody.send(some(server).getJMSReplyTo(), session.createTextMessage("42"));
            same(text(client), "42");
        }
        answers.delete();
    }

    private void kinds(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer consumer = session.createConsumer(queue)) {
            MapMessage map = session.createMapMessage();
            map.setInt("i", 5);
            map.setBytes("b", new byte[] {1, 2});
            map.setChar("c", 'x');
            producer.send(map);
            producer.send(session.createObjectMessage(new ArrayList<>(List.of("a"))));
            StreamMessage stream = session.createStreamMessage();
            stream.writeInt(4);
            stream.writeString("z");
            producer.send(stream);
            producer.send(session.createMessage());
            map = (MapMessage) some(consumer);
            same(map.getInt("i"), 5);
            same(map.getBytes("b").length, 2);
            same(map.getChar("c"), 'x');
            same(((ObjectMessage) some(consumer)).getObject(), List.of("a"));
            stream = (StreamMessage) some(consumer);
            same(stream.readInt(), 4);
            same(stream.readString(), "z");
            some(consumer);
        }
    }

    private void large(String name) throws JMSException {
        byte[] content = new byte[5 << 20];
        new Random(1).nextBytes(content);
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer consumer = session.createConsumer(queue)) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(content);
            producer.send(message);
            same(java.util.Arrays.equals(some(consumer).getBody(byte[].class), content), true);
        }
    }

    private void delay(String name) throws JMSException {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer consumer = session.createConsumer(queue)) {
            producer.setDeliveryDelay(300);
            long begun = System.currentTimeMillis();
            producer.send(session.createTextMessage("later"));
            some(consumer);
            same(System.currentTimeMillis() - begun >= 298, true);
        }
    }

    private void timeToLive(String name) throws JMSException {
        Queue queue = session.createQueue("brief." + name);
        try (MessageProducer producer = session.createProducer(queue);
                MessageConsumer late = session.createConsumer(session.createQueue("late"), "\"m.x-opt-ORIG-ADDRESS\" = 'brief." + name + "'")) {
            producer.setTimeToLive(50);
            producer.send(session.createTextMessage("old"));
            same(text(late), "old");
        }
        same(texts(queue, null, 0), List.of());
    }

    private void clientAcknowledge(String name) throws JMSException {
        Session other = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(name);
        send(queue, "1", "2", "3");
        MessageConsumer consumer = other.createConsumer(queue);
        some(consumer);
        some(consumer);
        other.recover();
        Message again = some(consumer);
        same(((TextMessage) again).getText(), "1");
        same(again.getJMSRedelivered(), true);
        some(consumer);
        some(consumer).acknowledge();
        other.close();
        same(texts(queue, null, 0), List.of());
    }
}

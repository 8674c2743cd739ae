import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.TransactionRolledBackException;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * A connection with a failover URI over deaths of the broker: one line "ok NAME" for each scenario.
 *
 * <p>Argument: the port. Where the broker shall die it says "kill", and waits for a line that says it has.
 */
final class Failover extends Scenarios {
    private static final int MESSAGES = 200;

    private Failover(Connection connection) throws JMSException {
        super(connection);
    }

    public static void main(String[] arguments) throws Exception {
        String uri = "failover:(amqp://127.0.0.1:" + arguments[0] + ")?failover.reconnectDelay=20"
                + "&failover.maxReconnectDelay=100&failover.useReconnectBackOff=false";
        try (Connection connection = new JmsConnectionFactory("me", "x", uri).createConnection()) {
            connection.setClientID("failover");
            connection.start();
            Failover failover = new Failover(connection);
            failover.scenario("what was sent is there", failover::sending);
            failover.scenario("what was not acknowledged comes again", failover::acknowledging);
            failover.scenario("a transaction is all or nothing", failover::transacted);
            failover.scenario("a durable subscription goes on", failover::durable);
        }
    }

    /** The broker dies once it has on disk what was said before: a confirmed message comes after everything else. */
    private void kill() throws Exception {
        send(session.createQueue("sync"), "all is said");
        System.out.println("kill");
        System.in.read();
    }

    private void sending(String name) throws Exception {
        Queue queue = session.createQueue(name);
        try (MessageProducer producer = session.createProducer(queue)) {
            for (int n = 0; n < MESSAGES; n++) {
                if (n == MESSAGES / 2) {
                    kill();
                }
                producer.send(session.createTextMessage("" + n));
            }
        }
        Set<Integer> got = new TreeSet<>();
        try (MessageConsumer consumer = session.createConsumer(queue)) {
            while (got.size() < MESSAGES) {
                got.add(Integer.valueOf(text(consumer)));
            }
        }
        same(got.size(), MESSAGES);
    }

    private void acknowledging(String name) throws Exception {
        Queue queue = session.createQueue("strict." + name);
        send(queue, "1", "2", "3");
        Session other = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = other.createConsumer(queue);
        same(text(consumer), "1");
        some(consumer).acknowledge();
        same(text(consumer), "3");
        kill();
        Message again = some(consumer);
        same(((TextMessage) again).getText(), "3");
        same(again.getJMSRedelivered(), true);
        same(again.getIntProperty("JMSXDeliveryCount"), 2);
        again.acknowledge();
        other.close();
        same(texts(queue, null, 0), List.of());
    }

    private void transacted(String name) throws Exception {
        Queue in = session.createQueue(name + ".in");
        Queue out = session.createQueue(name + ".out");
        send(in, "1", "2", "3");
        Session other = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = other.createConsumer(in);
        MessageProducer producer = other.createProducer(out);
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        for (int attempt = 0; attempt < 2; attempt++) {
            for (int n = 0; n < 3; n++) {
                producer.send(other.createTextMessage("done " + text(consumer)));
            }
            if (attempt == 0) {
                kill();
            }
            try {
                other.commit();
                same(attempt, 1);
            } catch (TransactionRolledBackException lost) {
                same(attempt, 0);
            }
        }
        other.close();
        same(texts(in, null, 0), List.of());
        same(texts(out, null, 3), List.of("done 1", "done 2", "done 3"));
    }

    private void durable(String name) throws Exception {
        MessageConsumer consumer = session.createDurableSubscriber(session.createTopic(name), "durable");
        send(session.createTopic(name), "before");
        same(text(consumer), "before");
        kill();
        send(session.createTopic(name), "after");
        same(text(consumer), "after");
        consumer.close();
        session.unsubscribe("durable");
    }
}

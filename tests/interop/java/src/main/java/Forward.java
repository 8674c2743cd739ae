import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Takes messages from queues and sends what they say on: every value is decoded to Java's, and encoded from it.
 *
 * <p>Arguments: the port, a selector for all queues, routes "FROM>TO,TO". A route ends with the case "end".
 */
final class Forward {
    private Forward() {}

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new JmsConnectionFactory("amqp://127.0.0.1:" + arguments[0]).createConnection()) {
            CountDownLatch open = new CountDownLatch(arguments.length - 2);
            for (int at = 2; at < arguments.length; at++) {
                String[] route = arguments[at].split(">");
                forward(connection, arguments[1], route[0], route[1].split(","), open);
            }
            connection.start();
            if (!open.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException(open.getCount() + " routes have not ended");
            }
        }
    }

    private static void forward(Connection connection, String selector, String from, String[] to, CountDownLatch open)
            throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(null);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        MessageConsumer consumer = session.createConsumer(session.createQueue(from), selector);
        consumer.setMessageListener(message -> {
            try {
                String name = message.getStringProperty("case");
                ObjectMessage copy = session.createObjectMessage();
                copy.setBooleanProperty("JMS_AMQP_TYPED_ENCODING", true);
                copy.setObject(((ObjectMessage) message).getObject());
                copy.setStringProperty("case", name);
                copy.setStringProperty("kind", message.getStringProperty("kind"));
                for (String each : to) {
                    producer.send(session.createQueue(each), copy);
                }
                if (name.equals("end")) {
                    open.countDown();
                }
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        });
    }
}

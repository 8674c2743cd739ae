import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Sends a message and takes it back, over TLS or with a token.
 *
 * <p>Arguments: the URI with all its options; maybe a user and a password.
 */
final class Secure {
    private Secure() {}

    public static void main(String[] arguments) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[0]);
        if (arguments.length > 1) {
            factory.setUsername(arguments[1]);
            factory.setPassword(arguments[2]);
        }
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("secure.jms");
            session.createProducer(queue).send(session.createTextMessage("hello"));
            MessageConsumer consumer = session.createConsumer(queue);
            System.out.println(((TextMessage) consumer.receive(20_000)).getText());
        }
    }
}

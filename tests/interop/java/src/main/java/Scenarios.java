import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/** Scenarios on one connection and one session, which print "ok NAME" and share what is here. */
abstract class Scenarios {
    /** How long something that has to come may take, and how long nothing comes where nothing may, in milliseconds. */
    static final long PATIENCE = 10_000;
    static final long SILENCE = 200;

    final Connection connection;
    final Session session;

    Scenarios(Connection connection) throws JMSException {
        this.connection = connection;
        session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    interface Scenario {
        void run(String name) throws Exception;
    }

    void scenario(String name, Scenario scenario) throws Exception {
        scenario.run("jms." + name.replace(' ', '.'));
        System.out.println("ok " + name);
    }

    void send(jakarta.jms.Destination destination, String... texts) throws JMSException {
        try (MessageProducer producer = session.createProducer(destination)) {
            for (String text : texts) {
                producer.send(session.createTextMessage(text));
            }
        }
    }

    static Message some(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE);
        if (message == null) {
            throw new AssertionError("nothing came");
        }
        return message;
    }

    static String text(MessageConsumer consumer) throws JMSException {
        return ((TextMessage) some(consumer)).getText();
    }

    /** So many messages, which have to be all. */
    List<String> texts(Queue queue, String selector, int number) throws JMSException {
        List<String> found = new ArrayList<>();
        try (MessageConsumer consumer = session.createConsumer(queue, selector)) {
            for (int n = 0; n < number; n++) {
                found.add(text(consumer));
            }
            same(consumer.receiveNoWait(), null);
        }
        return found;
    }

    static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }
}

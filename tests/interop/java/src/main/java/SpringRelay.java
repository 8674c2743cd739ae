import java.nio.charset.StandardCharsets;
import java.security.Principal;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.messaging.Message;
import org.springframework.messaging.converter.StringMessageConverter;
import org.springframework.messaging.simp.SimpMessagingTemplate;
import org.springframework.messaging.simp.broker.BrokerAvailabilityEvent;
import org.springframework.messaging.simp.stomp.StompBrokerRelayMessageHandler;
import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompHeaderAccessor;
import org.springframework.messaging.support.ExecutorSubscribableChannel;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.messaging.support.MessageHeaderAccessor;

/**
 * The STOMP broker relay of Spring's WebSocket support, as an application's configuration makes it, with two browsers:
 * one line "ok NAME" for each scenario.
 *
 * <p>Arguments: the port, a user and its password. Where the broker shall die it says "kill", and waits for a line that
 * says it has.
 */
final class SpringRelay {
    private static final long PATIENCE = 20_000;
    private static final long RETRY = 200;

    private final BlockingQueue<StompHeaderAccessor> toBrowsers = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> bodies = new LinkedBlockingQueue<>();
    private final BlockingQueue<Boolean> available = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> toSystem = new LinkedBlockingQueue<>();
    private final ExecutorSubscribableChannel fromBrowsers = new ExecutorSubscribableChannel();
    private final SimpMessagingTemplate template;
    private final StompBrokerRelayMessageHandler relay;

    private SpringRelay(int port, String user, String password) {
        ExecutorSubscribableChannel out = new ExecutorSubscribableChannel();
        out.subscribe(this::toBrowser);
        ExecutorSubscribableChannel application = new ExecutorSubscribableChannel();
        template = new SimpMessagingTemplate(application);
        template.setMessageConverter(new StringMessageConverter(StandardCharsets.UTF_8));
        relay = new StompBrokerRelayMessageHandler(fromBrowsers, out, application, List.of("/topic", "/queue"));
        relay.setRelayHost("127.0.0.1");
        relay.setRelayPort(port);
        relay.setVirtualHost("/");
        relay.setClientLogin(user);
        relay.setClientPasscode(password);
        relay.setSystemLogin(user);
        relay.setSystemPasscode(password);
        relay.setSystemHeartbeatSendInterval(500);
        relay.setSystemHeartbeatReceiveInterval(500);
        relay.setSystemSubscriptions(Map.of("/topic/simp-user-registry", message -> toSystem.add(text(message))));
        relay.setApplicationEventPublisher(event -> available.add(((BrokerAvailabilityEvent) event).isBrokerAvailable()));
    }

    public static void main(String[] arguments) throws Exception {
        SpringRelay application = new SpringRelay(Integer.parseInt(arguments[0]), arguments[1], arguments[2]);
        try {
            application.run();
        } catch (Exception | AssertionError failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private void run() throws Exception {
        relay.start();
        same(available.poll(PATIENCE, TimeUnit.MILLISECONDS), true);
        systemSession();
        System.out.println("ok the system session");
        browsers();
        System.out.println("ok browsers");
        transaction();
        System.out.println("ok a transaction and a NACK");
        refusal();
        System.out.println("ok what is refused ends one session");
        System.out.println("kill");
        System.in.read();
        expect(StompCommand.ERROR, "one"); // its connection is lost
        same(available.poll(PATIENCE, TimeUnit.MILLISECONDS), false);
        same(available.poll(PATIENCE, TimeUnit.MILLISECONDS), true);
        systemSession();
        connect("three");
        frame(StompCommand.SUBSCRIBE, "three", "", "id", "s", "destination", "/topic/again", "receipt", "r");
        expect(StompCommand.RECEIPT, "three");
        template.convertAndSend("/topic/again", "after the crash");
        expect(StompCommand.MESSAGE, "three");
        same(body(), "after the crash");
        System.out.println("ok the broker comes back");
        relay.stop();
    }

    // -- scenarios

    /** The relay says that it is there before it subscribes: what is sent meanwhile is nobody's. */
    private void systemSession() throws Exception {
        String found = null;
        for (long waited = 0; found == null && waited < PATIENCE; waited += RETRY) {
            template.convertAndSend("/topic/simp-user-registry", "who is here");
            found = toSystem.poll(RETRY, TimeUnit.MILLISECONDS);
        }
        same(found, "who is here");
        toSystem.clear();
    }

    private void browsers() throws Exception {
        for (String session : List.of("one", "two")) {
            connect(session);
            frame(StompCommand.SUBSCRIBE, session, "", "id", "s", "destination", "/topic/greetings", "receipt", "r");
            expect(StompCommand.RECEIPT, session);
        }
        template.convertAndSend("/topic/greetings", "grüße");
        same(List.of(body(), body()), List.of("grüße", "grüße"));
        toBrowsers.clear();
        String own = "/queue/private-user-one";
        frame(StompCommand.SUBSCRIBE, "one", "", "id", "own", "destination", own, "receipt", "r");
        expect(StompCommand.RECEIPT, "one");
        template.convertAndSend(own, "x".repeat(300_000), Map.of("a:b", "c\nd\\e"));
        StompHeaderAccessor found = expect(StompCommand.MESSAGE, "one");
        same(List.of(found.getSubscriptionId(), found.getFirstNativeHeader("a:b")), List.of("own", "c\nd\\e"));
        same(body().length(), 300_000);
    }

    private void transaction() throws Exception {
        String work = "/queue/spring.work";
        frame(StompCommand.SUBSCRIBE, "one", "", "id", "w", "destination", work, "ack", "client-individual", "receipt", "r");
        expect(StompCommand.RECEIPT, "one");
        frame(StompCommand.SEND, "two", "work", "destination", work, "persistent", "true");
        StompHeaderAccessor found = expect(StompCommand.MESSAGE, "one");
        frame(StompCommand.NACK, "one", "", "id", found.getFirstNativeHeader("ack"));
        found = expect(StompCommand.MESSAGE, "one");
        same(found.getFirstNativeHeader("redelivered"), "true");
        frame(StompCommand.BEGIN, "one", "", "transaction", "t");
        frame(StompCommand.ACK, "one", "", "id", found.getFirstNativeHeader("ack"), "transaction", "t");
        frame(StompCommand.SEND, "one", "done", "destination", "/queue/private-user-one", "transaction", "t");
        frame(StompCommand.COMMIT, "one", "", "transaction", "t");
        expect(StompCommand.MESSAGE, "one");
        same(List.of(body(), body(), body()), List.of("work", "work", "done"));
    }

    private void refusal() throws Exception {
        frame(StompCommand.SEND, "two", "x", "destination", "/queue/x?nonsense=1", "receipt", "r");
        same(expect(StompCommand.ERROR, "two").getReceiptId(), "r");
        expect(StompCommand.ERROR, "two"); // the relay's own: the connection is closed
        template.convertAndSend("/topic/greetings", "for one");
        expect(StompCommand.MESSAGE, "one");
        same(body(), "for one");
        same(available.peek(), null);
    }

    // -- browsers

    private void connect(String session) throws Exception {
        frame(StompCommand.CONNECT, session, "", "accept-version", "1.1,1.2", "heart-beat", "10000,10000");
        expect(StompCommand.CONNECTED, session);
    }

    private void frame(StompCommand command, String session, String body, String... headers) {
        StompHeaderAccessor accessor = StompHeaderAccessor.create(command);
        accessor.setSessionId(session);
        Principal user = () -> "user-" + session;
        accessor.setUser(user);
        for (int n = 0; n < headers.length; n += 2) {
            accessor.setNativeHeader(headers[n], headers[n + 1]);
        }
        if (accessor.getFirstNativeHeader("destination") != null) {
            accessor.setDestination(accessor.getFirstNativeHeader("destination"));
        }
        accessor.setLeaveMutable(true);
        fromBrowsers.send(MessageBuilder.createMessage(body.getBytes(StandardCharsets.UTF_8), accessor.getMessageHeaders()));
    }

    private void toBrowser(Message<?> message) {
        StompHeaderAccessor accessor = MessageHeaderAccessor.getAccessor(message, StompHeaderAccessor.class);
        toBrowsers.add(accessor);
        if (accessor.getCommand() == StompCommand.MESSAGE) {
            bodies.add(text(message));
        }
    }

    private StompHeaderAccessor expect(StompCommand command, String session) throws InterruptedException {
        StompHeaderAccessor found = toBrowsers.poll(PATIENCE, TimeUnit.MILLISECONDS);
        same(found == null ? null : found.getCommand(), command);
        same(found.getSessionId(), session);
        return found;
    }

    private String body() throws InterruptedException {
        return bodies.poll(PATIENCE, TimeUnit.MILLISECONDS);
    }

    private static String text(Message<?> message) {
        return new String((byte[]) message.getPayload(), StandardCharsets.UTF_8);
    }

    private static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }
}

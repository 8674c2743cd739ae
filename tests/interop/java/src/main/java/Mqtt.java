import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.eclipse.paho.client.mqttv3.IMqttMessageListener;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

/** MQTT 3.1 and 3.1.1 with Eclipse Paho, 5 with HiveMQ's client: one line "ok NAME" for each scenario. Argument: the port. */
final class Mqtt {
    private static final long PATIENCE_S = 20;

    private final int port;

    private Mqtt(int port) {
        this.port = port;
    }

    public static void main(String[] arguments) throws Exception {
        Mqtt mqtt = new Mqtt(Integer.parseInt(arguments[0]));
        mqtt.paho("3.1", MqttConnectOptions.MQTT_VERSION_3_1);
        mqtt.paho("3.1.1", MqttConnectOptions.MQTT_VERSION_3_1_1);
        mqtt.hive();
        System.exit(0); // HiveMQ's client leaves its threads
    }

    private static void ok(String name) {
        System.out.println("ok " + name);
    }

    private static void same(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new IllegalStateException(found + " instead of " + expected);
        }
    }

    // -- Paho

    private void paho(String name, int version) throws Exception {
        String topic = "java/" + version;
        BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        IMqttMessageListener listener =
                (at, message) -> arrived.add(message.getQos() + " " + new String(message.getPayload(), StandardCharsets.UTF_8));

        var taker = pahoClient("java-taker-" + version);
        taker.connect(pahoOptions(version, false));
        taker.subscribe(topic, 2, listener);
        var giver = pahoClient("java-giver-" + version);
        MqttConnectOptions mortal = pahoOptions(version, true);
        mortal.setWill(topic, "gone".getBytes(StandardCharsets.UTF_8), 1, true);
        giver.connect(mortal);
        for (int qos = 0; qos < 3; qos++) {
            for (int number = 0; number < 20; number++) {
                giver.publish(topic, Integer.toString(number).getBytes(StandardCharsets.UTF_8), qos, false);
            }
            for (int number = 0; number < 20; number++) {
                same(next(arrived), qos + " " + number);
            }
        }
        ok(name + ": every QoS");

        taker.disconnect();
        giver.publish(topic, "kept".getBytes(StandardCharsets.UTF_8), 2, false);
        giver.disconnectForcibly(0, 100, false);
        taker = pahoClient("java-taker-" + version);
        taker.setCallback(new Listening(arrived));
        taker.connect(pahoOptions(version, false));
        same(List.of(next(arrived), next(arrived)).stream().sorted().toList(), List.of("1 gone", "2 kept"));
        taker.publish(topic, new byte[0], 1, true);
        same(next(arrived), "1 ");
        taker.unsubscribe(topic);
        taker.disconnect();
        ok(name + ": a session that stays, and a retained will");
    }

    private org.eclipse.paho.client.mqttv3.MqttClient pahoClient(String id) throws Exception {
        return new org.eclipse.paho.client.mqttv3.MqttClient("tcp://127.0.0.1:" + port, id, new MemoryPersistence());
    }

    private static MqttConnectOptions pahoOptions(int version, boolean clean) {
        MqttConnectOptions options = new MqttConnectOptions();
        options.setMqttVersion(version);
        options.setCleanSession(clean);
        return options;
    }

    private static String next(BlockingQueue<String> arrived) throws InterruptedException {
        return arrived.poll(PATIENCE_S, TimeUnit.SECONDS);
    }

    private record Listening(BlockingQueue<String> arrived) implements org.eclipse.paho.client.mqttv3.MqttCallback {
        @Override
        public void messageArrived(String topic, org.eclipse.paho.client.mqttv3.MqttMessage message) {
            arrived.add(message.getQos() + " " + new String(message.getPayload(), StandardCharsets.UTF_8));
        }

        @Override
        public void connectionLost(Throwable cause) {}

        @Override
        public void deliveryComplete(org.eclipse.paho.client.mqttv3.IMqttDeliveryToken token) {}
    }

    // -- HiveMQ

    private void hive() throws Exception {
        Mqtt5BlockingClient taker = hiveClient("java-taker-5");
        var publishes = taker.publishes(MqttGlobalPublishFilter.ALL);
        taker.connectWith().cleanStart(false).sessionExpiryInterval(100).restrictions().receiveMaximum(3)
                .topicAliasMaximum(5).applyRestrictions().send();
        taker.subscribeWith().topicFilter("java/5/#").qos(MqttQos.EXACTLY_ONCE).send();
        Mqtt5BlockingClient giver = hiveClient("java-giver-5");
        giver.connectWith().willPublish().topic("java/5/will").payload("gone".getBytes(StandardCharsets.UTF_8))
                .qos(MqttQos.AT_LEAST_ONCE).applyWillPublish().send();
        List<String> found = new ArrayList<>();
        List<String> expected = new ArrayList<>();
        for (int number = 0; number < 60; number++) {
            int qos = 1 + number / 30; // of QoS 0 this client drops what it has no time for
            giver.publishWith().topic("java/5/" + qos).qos(MqttQos.fromCode(qos)).payload(new byte[] {(byte) number})
                    .userProperties().add("b", "1").add("a", "2").add("b", "1").applyUserProperties()
                    .responseTopic("re/ply").correlationData(new byte[] {0, -1}).contentType("x").send();
            expected.add("java/5/" + qos + " " + number + " [(b, 1), (a, 2), (b, 1)] re/ply x");
        }
        for (int number = 0; number < 60; number++) {
            Mqtt5Publish publish = publishes.receive(PATIENCE_S, TimeUnit.SECONDS).orElseThrow();
            found.add(publish.getTopic() + " " + publish.getPayloadAsBytes()[0] + " " + publish.getUserProperties().asList()
                    + " " + publish.getResponseTopic().orElseThrow() + " " + publish.getContentType().orElseThrow());
        }
        same(found, expected);
        ok("5: every QoS, a receive maximum, topic aliases, properties");

        taker.disconnect();
        giver.publishWith().topic("java/5/2").qos(MqttQos.EXACTLY_ONCE).payload("kept".getBytes(StandardCharsets.UTF_8)).send();
        giver.disconnectWith().reasonCode(
                com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE).send();
        publishes = taker.publishes(MqttGlobalPublishFilter.ALL);
        same(taker.connectWith().cleanStart(false).send().isSessionPresent(), true);
        for (String payload : List.of("kept", "gone")) {
            Mqtt5Publish publish = publishes.receive(PATIENCE_S, TimeUnit.SECONDS).orElseThrow();
            same(new String(publish.getPayloadAsBytes(), StandardCharsets.UTF_8), payload);
        }
        taker.disconnect();
        ok("5: a session that stays, and a will");
    }

    private Mqtt5BlockingClient hiveClient(String id) {
        return MqttClient.builder().useMqttVersion5().identifier(id).serverHost("127.0.0.1").serverPort(port).buildBlocking();
    }
}

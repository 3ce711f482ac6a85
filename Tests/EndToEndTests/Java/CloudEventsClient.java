import io.cloudevents.CloudEvent;
import io.cloudevents.core.builder.CloudEventBuilder;
import io.cloudevents.core.message.MessageWriter;
import io.cloudevents.http.HttpMessageFactory;
import io.cloudevents.jackson.JsonFormat;
import io.cloudevents.kafka.KafkaMessageFactory;
import io.cloudevents.rw.CloudEventWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.OffsetDateTime;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** CloudEvents' Java SDK: its output by HttpURLConnection and by a Kafka producer. */
final class CloudEventsClient {
    private static final String reading =
        "{\"deviceId\":\"WX1278UIT\",\"temperatureInFahrenheit\":66.7,\"windSpeedInMph\":2}";

    public static void main(String[] arguments) {
        Support.main(arguments, Map.of("HTTP", CloudEventsClient::overHTTP, "Kafka", CloudEventsClient::toKafka));
    }

    private static CloudEventBuilder event() {
        return CloudEventBuilder.v1().withId(Support.digits(24)).withSource(URI.create("/sensors/WX1278UIT"))
            .withType("WeatherSensor");
    }

    private static CloudEventBuilder full() {
        return event().withSubject("a \"subject\", 100 %, é🐎")
            .withTime(OffsetDateTime.parse("2025-12-31T23:59:59.123456789+01:00"))
            .withDataSchema(URI.create("https://example.com/schema"))
            .withExtension("text", "v").withExtension("number", 5).withExtension("flag", true)
            .withExtension("bytes", new byte[] {1, 2}).withExtension("uri", URI.create("/x"))
            .withExtension("when", OffsetDateTime.parse("2025-12-31T23:59:59Z"));
    }

    private static int post(CloudEvent event, boolean isStructured) throws IOException {
        URI address = URI.create(Support.environment("INGEST_URL") + "/events");
        HttpURLConnection connection = (HttpURLConnection) address.toURL().openConnection();
        connection.setRequestMethod("POST");
        connection.setDoOutput(true);
        byte[] user = (Support.environment("APP_KEY") + ":").getBytes(StandardCharsets.UTF_8);
        connection.setRequestProperty("Authorization", "Basic " + Base64.getEncoder().encodeToString(user));
        var writer = HttpMessageFactory.createWriter(connection::setRequestProperty, body -> {
            try {
                if (body != null) connection.getOutputStream().write(body);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        });
        if (isStructured) writer.writeStructured(event, new JsonFormat());
        else writer.writeBinary(event);
        return connection.getResponseCode();
    }

    private static void overHTTP() throws Exception {
        for (boolean isStructured : new boolean[] {false, true}) {
            String mode = isStructured ? "structured: " : "binary: ";
            for (int number = 0; number < 20; number += 1) {
                CloudEvent one = full().withData("application/json", bytes(reading)).build();
                Support.check(mode + "an event", post(one, isStructured), 204);
                Support.check(mode + "the same again", post(one, isStructured), 204);
                Support.sent("WeatherSensor", one.getId());
            }
            CloudEvent vendor = event().withData("application/vnd.example+json", bytes(reading)).build();
            Support.check(mode + "a type of a vendor", post(vendor, isStructured), 204);
            Support.sent("WeatherSensor", vendor.getId());
            CloudEvent other = event().withId("reading " + mode).withData("application/json", bytes(reading)).build();
            Support.check(mode + "an id of another form", post(other, isStructured), 204);
            Support.sent("WeatherSensor", "*");
            for (String text : new String[] {"{\"deviceId\":7}", "[1,2]", "5", "null"}) {
                CloudEvent bad = event().withData("application/json", bytes(text)).build();
                Support.check(mode + text, post(bad, isStructured), 400);
            }
            Support.check(mode + "a bare text",
                post(event().withData("text/plain", bytes("plain žluť")).build(), isStructured), 400);
            Support.check(mode + "an unknown type",
                post(event().withType("Nobody.Declared").withData("application/json", bytes(reading)).build(), isStructured),
                404);
            CloudEvent former = CloudEventBuilder.v03().withId(Support.digits(24)).withSource(URI.create("/s"))
                .withType("WeatherSensor").withData("application/json", bytes(reading)).build();
            Support.check(mode + "version 0.3", post(former, isStructured), 400);
        }
        CloudEvent coded = event().withData("application/json", bytes(reading)).build();
        Support.check("structured, without a content type", post(event().withData(bytes(reading)).build(), true), 204);
        Support.sent("WeatherSensor", "*");
        Support.check("structured", post(coded, true), 204);
        Support.sent("WeatherSensor", coded.getId());
    }

    /** Push requests for a channel, in both modes. */
    private static void toKafka() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", Support.environment("KAFKA"), "acks", "all");
        try (KafkaProducer<String, byte[]> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new ByteArraySerializer())) {
            for (String mode : new String[] {"binary", "structured"}) {
                String id = mode + "-" + Support.environment("EVENT");
                CloudEvent push = CloudEventBuilder.v1().withId(id).withSource(URI.create("/shop/%C3%B6"))
                    .withType("com.example.push").withTime(OffsetDateTime.parse("2025-12-31T23:59:59.123456789Z"))
                    .withSubject("é🐎 100 %")
                    .withData("application/json", bytes(Support.environment("REQUEST"))).build();
                MessageWriter<CloudEventWriter<ProducerRecord<String, byte[]>>, ProducerRecord<String, byte[]>> writer =
                    KafkaMessageFactory.createWriter(Support.environment("TOPIC"), id);
                ProducerRecord<String, byte[]> record = mode.equals("binary")
                    ? writer.writeBinary(push) : writer.writeStructured(push, new JsonFormat());
                Support.check(mode + ": it is on Kafka", producer.send(record).get().hasOffset(), true);
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}

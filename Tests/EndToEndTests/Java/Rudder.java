import com.rudderstack.sdk.java.analytics.RudderAnalytics;
import com.rudderstack.sdk.java.analytics.Callback;
import com.rudderstack.sdk.java.analytics.messages.AliasMessage;
import com.rudderstack.sdk.java.analytics.messages.GroupMessage;
import com.rudderstack.sdk.java.analytics.messages.IdentifyMessage;
import com.rudderstack.sdk.java.analytics.messages.Message;
import com.rudderstack.sdk.java.analytics.messages.MessageBuilder;
import com.rudderstack.sdk.java.analytics.messages.PageMessage;
import com.rudderstack.sdk.java.analytics.messages.ScreenMessage;
import com.rudderstack.sdk.java.analytics.messages.TrackMessage;
import java.util.Collections;
import java.util.Date;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** RudderStack's Java client, unchanged except for its address. */
final class Rudder {
    private static final Set<String> taken = Collections.synchronizedSet(new HashSet<>());
    private static final Set<String> failed = Collections.synchronizedSet(new HashSet<>());
    private static final String user = "user-" + Support.digits(8);
    private static RudderAnalytics analytics;
    private static int count;

    public static void main(String[] arguments) {
        Support.main(arguments, Map.of("calls", Rudder::calls));
    }

    private static void calls() throws Exception {
        analytics = RudderAnalytics.builder(Support.environment("APP_KEY"))
            .setDataPlaneUrl(Support.environment("INGEST_URL"))
            .flushQueueSize(50).flushInterval(1, TimeUnit.SECONDS).callback(new Callback() {
                @Override public void success(Message message) { taken.add(message.messageId()); }
                @Override public void failure(Message message, Throwable error) { failed.add(message.messageId()); }
            }).build();
        for (int number = 0; number < 300; number += 1) {
            Map<String, Object> properties = new HashMap<>(Map.of("number", number, "value", 66.7, "day", new Date()));
            properties.put("none", null);
            told("Track", TrackMessage.builder("Reading é🔔").properties(properties)
                .context(Map.of("ip", "192.0.2.1", "own", Map.of("deep", true)))
                .enableIntegration("Example", false).timestamp(new Date(1_709_208_000_123L)));
        }
        told("Identify", IdentifyMessage.builder().traits(Map.of("email", "ann@example.com")));
        told("Group", GroupMessage.builder("a-group").traits(Map.of("name", "Bells")));
        told("Page", PageMessage.builder("Start").properties(Map.of("url", "https://example.com/")));
        told("Screen", ScreenMessage.builder("Start").anonymousId("nobody"));
        told("Alias", AliasMessage.builder("an-old-name"));
        for (int number = 0; number < 20; number += 1) {
            String text = "a".repeat(30_000);
            told("Track", TrackMessage.builder("Large").properties(Map.of("text", text)));
        }
        analytics.flush();
        Support.until("an answer for each message", () -> taken.size() + failed.size() == count);
        Support.check("messages that failed", failed.size(), 0);
        analytics.shutdown();
    }

    private static void told(String type, MessageBuilder<?, ?> message) {
        String id = UUID.randomUUID().toString();
        message.messageId(id);
        message.userId(user);
        analytics.enqueue(message);
        Support.sent("Segment" + type, id);
        count += 1;
    }
}

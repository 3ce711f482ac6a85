import cn.leancloud.AVException;
import cn.leancloud.AVInstallation;
import cn.leancloud.callback.AVCallback;
import cn.leancloud.core.AVOSCloud;
import cn.leancloud.push.ReceivedPushes;
import cn.leancloud.session.AVConnectionManager;
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** LeanCloud's Java SDK with its own connection, unchanged but for its server. */
final class LeanCloudConnection {
    private static final String registration = Support.environment("REGISTRATION_URL");
    private static final String channel = "c" + Support.digits(16);
    private static final HttpClient http = HttpClient.newHttpClient();
    private static ReceivedPushes pushes;
    private static final List<String> sent = new ArrayList<>();

    public static void main(String[] arguments) {
        Map<String, Support.Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("pushes", LeanCloudConnection::pushes);
        Support.main(arguments, scenarios);
    }

    private static JSONObject call(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(registration + path))
            .header("Content-Type", "application/json")
            .header("X-LC-Id", Support.environment("APP_ID"))
            .header("X-LC-Key", Support.environment("MASTER_KEY") + ",master")
            .method(method, body == null ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofString(body)).build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new IllegalStateException(path + ": " + answer.body());
        return JSON.parseObject(answer.body());
    }

    private static void push(String audience, String text) throws Exception {
        String body = "{" + audience + ", \"data\": {\"alert\": \"" + text + "\"}}";
        sent.add(call("POST", "/1.1/push", body).getString("objectId"));
        delivered(sent.get(sent.size() - 1));
    }

    private static void delivered(String id) throws Exception {
        Support.until("delivered", () ->
            call("GET", "/v1/notifications/" + id, null).getIntValue("delivered") == 1);
    }

    private static void connect() throws Exception {
        CompletableFuture<AVException> done = new CompletableFuture<>();
        AVConnectionManager.getInstance().startConnection(new AVCallback<Object>() {
            @Override
            protected void internalDone0(Object value, AVException error) {
                done.complete(error);
            }
        });
        AVException error = done.get(30, TimeUnit.SECONDS);
        Support.check("the connection", error == null ? null : error.getMessage(), null);
    }

    private static void arrive(int count) throws Exception {
        Support.until(count + " pushes", () -> pushes.data().size() >= count);
    }

    private static List<String> alerts() {
        List<String> alerts = new ArrayList<>();
        for (String data : pushes.data()) alerts.add(JSON.parseObject(data).getString("alert"));
        return alerts;
    }

    /** The stored object's id: without Android, this SDK does not keep the id of its installation. */
    private static String objectId(AVInstallation installation) throws Exception {
        String where = "{\"installationId\":\"" + installation.getInstallationId() + "\"}";
        return call("GET", "/1.1/installations?where=" + URLEncoder.encode(where, "UTF-8"), null)
            .getJSONArray("results").getJSONObject(0).getString("objectId");
    }

    private static void pushes() throws Exception {
        AVOSCloud.initialize(Support.environment("APP_ID"), Support.environment("APP_KEY"), registration);
        pushes = new ReceivedPushes();
        AVInstallation installation = AVInstallation.getCurrentInstallation();
        installation.addUnique("channels", channel);
        installation.save();
        connect();
        push("\"channels\": [\"" + channel + "\"]", "by channel");
        push("\"where\": {\"installationId\": \"" + installation.getInstallationId() + "\"}",
            "by installation");
        push("\"where\": {\"objectId\": \"" + objectId(installation) + "\"}", "by where");
        arrive(3);
        Support.check("in order", alerts(), List.of("by channel", "by installation", "by where"));
        Support.check("its channel", JSON.parseObject(pushes.data().get(0)).getString("_channel"), channel);

        AVConnectionManager.getInstance().cleanup();
        List<String> texts = new ArrayList<>(alerts());
        for (int number = 0; number < 15; number += 1) {
            texts.add("offline " + number);
            push("\"channels\": [\"" + channel + "\"]", "offline " + number);
        }
        connect();
        arrive(texts.size());
        Support.check("what waited, in order", alerts(), texts);
        Support.check("each once", new HashSet<>(pushes.ids()).size(), texts.size());
        for (String id : sent) {
            Support.until("received", () ->
                call("GET", "/v1/notifications/" + id, null).getIntValue("received") == 1);
        }
    }
}

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.windowsazure.messaging.*;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.*;
import java.util.concurrent.Callable;

/** Azure Notification Hubs' Java SDK, unchanged: every call, and what devices get. */
public class Azure {
    static final Map<String, String> environment = System.getenv();
    static int checked = 0;
    static int failed = 0;

    interface Step { void run() throws Exception; }

    /** One call of the SDK with its expected effects; what it throws is its failure. */
    static void check(String name, Step step) {
        checked++;
        try {
            step.run();
        } catch (Throwable error) {
            failed++;
            System.err.println(name + ": " + error);
        }
    }

    static void same(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) throw new AssertionError("got " + found + ", not " + wanted);
    }

    static void holds(String text, String... parts) {
        for (String part : parts) if (!text.contains(part)) throw new AssertionError(part + " is not in " + text);
    }

    static int status(Callable<?> call) throws Exception {
        try {
            call.call();
            return 200;
        } catch (NotificationHubsException error) {
            return error.httpStatusCode();
        }
    }

    // The requests that the simulator received.

    static final HttpClient http = HttpClient.newHttpClient();
    static int seen = 0;

    static String get(String url) throws Exception {
        return http.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString()).body();
    }

    /** The requests to providers since the last call, as text, by the end of the channel. */
    static Map<String, List<String>> received() throws Exception {
        JsonObject answer = JsonParser.parseString(get(environment.get("SIMULATOR_URL") + "/received?after=" + seen)).getAsJsonObject();
        Map<String, List<String>> found = new HashMap<>();
        JsonArray all = answer.getAsJsonArray("received");
        for (JsonElement element : all) {
            JsonObject one = element.getAsJsonObject();
            String token = one.has("token") && !one.get("token").isJsonNull() ? one.get("token").getAsString() : "";
            if (token.isEmpty()) token = one.get("path").getAsString();
            token = token.replaceAll(".*[/=]", "");
            found.computeIfAbsent(token, key -> new ArrayList<>()).add(one.get("headers") + " " + one.get("body"));
        }
        seen = answer.get("next").getAsInt();
        return found;
    }

    static NotificationHub hub;

    static NotificationTelemetry over(NotificationOutcome outcome) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (true) {
            NotificationTelemetry telemetry = hub.getNotificationTelemetry(outcome.getNotificationId());
            NotificationStatus status = telemetry.getNotificationStatus();
            if (status == NotificationStatus.Completed || status == NotificationStatus.NoTargetFound) return telemetry;
            if (System.nanoTime() > deadline) throw new AssertionError("not over: " + status);
            Thread.sleep(20);
        }
    }

    /** The messages of one send to each named channel; no other channel gets any. */
    static Map<String, List<String>> sent(NotificationOutcome outcome, Map<String, Integer> wanted) throws Exception {
        if (outcome.getNotificationId() == null) throw new AssertionError("no notification id");
        if (outcome.getTrackingId() == null) throw new AssertionError("no tracking id");
        over(outcome);
        Map<String, List<String>> found = received();
        Map<String, Integer> counts = new TreeMap<>();
        found.forEach((channel, messages) -> counts.put(channel, messages.size()));
        same(counts, new TreeMap<>(wanted));
        return found;
    }

    /** The same for sends whose telemetry has FcmV1OutcomeCounts: the SDK cannot read that element. */
    static Map<String, List<String>> arrived(NotificationOutcome outcome, Set<String> wanted) throws Exception {
        if (outcome.getNotificationId() == null) throw new AssertionError("no notification id");
        Map<String, List<String>> found = new HashMap<>();
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!found.keySet().containsAll(wanted) && System.nanoTime() < deadline) {
            received().forEach((channel, messages) -> found.computeIfAbsent(channel, key -> new ArrayList<>()).addAll(messages));
            Thread.sleep(20);
        }
        same(found.keySet(), wanted);
        return found;
    }

    static String text(Map<String, List<String>> found, String channel) { return found.get(channel).get(0); }

    static final String run = Long.toString(System.nanoTime(), 36);

    static String token(String name) {
        byte[] bytes = new byte[32];
        new Random().nextBytes(bytes);
        StringBuilder text = new StringBuilder();
        for (byte value : bytes) text.append(String.format("%02x", value));
        return text.toString();
    }

    static void trust(String authority) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (FileInputStream file = new FileInputStream(authority)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        Path path = Files.createTempFile("carillon-trust", ".p12");
        path.toFile().deleteOnExit();
        try (FileOutputStream file = new FileOutputStream(path.toFile())) { store.store(file, "changeit".toCharArray()); }
        System.setProperty("javax.net.ssl.trustStore", path.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
    }

    public static void main(String[] arguments) throws Exception {
        trust(environment.get("CERTIFICATE_AUTHORITY"));
        String endpoint = environment.get("REGISTRATION_TLS_URL").replace("https://", "sb://") + "/";
        hub = new NotificationHub("Endpoint=" + endpoint + ";SharedAccessKeyName=DefaultFullSharedAccessSignature;SharedAccessKey="
            + environment.get("MASTER_KEY"), environment.get("APP_ID"));
        received();
        switch (arguments[0]) {
            case "installations": installations(); break;
            case "sends": sends(); break;
            case "registrations": registrations(); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("{\"checked\":" + checked + ",\"failed\":" + failed + "}");
        // The SDK's threads keep the process alive.
        System.exit(failed == 0 ? 0 : 1);
    }

    static void installations() {
        String phone = token("phone"), next = token("next"), droid = "fcm-" + run;
        String pc = "wns-" + run;
        String channel = environment.get("CHANNEL_ORIGIN") + "/wns/?token=" + pc;
        check("createOrUpdateInstallation", () -> hub.createOrUpdateInstallation(
            new Installation("install-1", NotificationPlatform.Apns, phone.toUpperCase(), "news", "user:1")));
        check("getInstallation", () -> {
            Installation got = hub.getInstallation("install-1");
            same(got.getPushChannel(), phone.toUpperCase());
            same(got.getPlatform(), NotificationPlatform.Apns);
            same(got.getTags(), List.of("news", "user:1"));
            same(got.isPushChannelExpired(), false);
        });
        check("patchInstallation", () -> {
            hub.patchInstallation("install-1",
                new PartialUpdateOperation(UpdateOperationType.Add, "/tags", "extra"),
                new PartialUpdateOperation(UpdateOperationType.Remove, "/tags/news"),
                new PartialUpdateOperation(UpdateOperationType.Replace, "/pushChannel", next.toUpperCase()),
                new PartialUpdateOperation(UpdateOperationType.Add, "/templates/greet",
                    new InstallationTemplate("{\"aps\":{\"alert\":\"$(m)\"}}").toJson()));
            Installation got = hub.getInstallation("install-1");
            same(got.getTags(), List.of("user:1", "extra"));
            same(got.getPushChannel(), next.toUpperCase());
            same(got.getTemplates().keySet(), Set.of("greet"));
        });
        check("patchInstallation with a list", () -> {
            hub.patchInstallation("install-1", List.of(new PartialUpdateOperation(UpdateOperationType.Add, "/tags", "one")));
            same(hub.getInstallation("install-1").getTags(), List.of("user:1", "extra", "one"));
        });
        check("a template with headers, an expiry and tags", () -> {
            Installation installation = new Installation("install-3", NotificationPlatform.Gcm, droid);
            installation.setUserId("user-1");
            installation.setExpirationTime(new Date(System.currentTimeMillis() + 86_400_000));
            InstallationTemplate template = new InstallationTemplate("{\"data\":{\"message\":\"$(m)\"}}");
            template.addHeader("X-H", "v");
            template.setExpiry("2036-12-25T06:30:00Z");
            template.addTag("tt");
            installation.addTemplate("greet", template);
            hub.createOrUpdateInstallation(installation);
            InstallationTemplate got = hub.getInstallation("install-3").getTemplates().get("greet");
            same(got.getHeaders(), Map.of("X-H", "v"));
            same(got.getTags(), List.of("tt", "greet"));
        });
        check("a secondary tile", () -> {
            Installation installation = new Installation("install-4", NotificationPlatform.Wns, channel);
            installation.addSecondaryTile("tile1", new WnsSecondaryTile(channel + "2", "tag1"));
            hub.createOrUpdateInstallation(installation);
            same(hub.getInstallation("install-4").getSecondaryTiles().get("tile1").getTags(), List.of("tag1"));
        });
        check("an id with odd characters", () -> {
            hub.createOrUpdateInstallation(new Installation("install:5_a.b-c", NotificationPlatform.Adm, "adm"));
            same(hub.getInstallation("install:5_a.b-c").getPlatform(), NotificationPlatform.Adm);
        });
        check("send: template", () -> {
            Map<String, List<String>> found = arrived(hub.sendNotification(
                Notification.createTemplateNotification(Map.of("m", "hello")), "extra || tt"), Set.of(next, droid));
            holds(text(found, next), "\"alert\":\"hello\"");
            holds(text(found, droid), "\"message\":\"hello\"");
        });
        check("deleteInstallation", () -> {
            hub.deleteInstallation("install-1");
            hub.deleteInstallation("install-1");
            same(status(() -> hub.getInstallation("install-1")), 404);
        });
    }

    static void sends() throws Exception {
        String phone = token("phone"), other = token("other"), droid = "fcm-" + run, pc = "wns-" + run, wp = "mpns-" + run;
        String origin = environment.get("CHANNEL_ORIGIN");
        check("installations", () -> {
            hub.createOrUpdateInstallation(new Installation("phone", NotificationPlatform.Apns, phone, "news", "a"));
            hub.createOrUpdateInstallation(new Installation("other", NotificationPlatform.Apns, other, "b"));
            hub.createOrUpdateInstallation(new Installation("droid", NotificationPlatform.Gcm, droid, "news"));
            hub.createOrUpdateInstallation(new Installation("pc", NotificationPlatform.Wns, origin + "/wns/?token=" + pc, "news"));
            hub.createOrUpdateInstallation(new Installation("wp", NotificationPlatform.Mpns, origin + "/mpns/" + wp, "news"));
        });
        check("Apple, broadcast", () -> {
            Map<String, List<String>> found = sent(hub.sendNotification(
                Notification.createAppleNotification("{\"aps\":{\"alert\":\"\u017elu\u0165 \ud83d\udc0e\"}}")), Map.of(phone, 1, other, 1));
            holds(text(found, phone), "\u017elu\u0165 \ud83d\udc0e");
        });
        check("Apple with an expiry, to a tag", () -> holds(text(sent(hub.sendNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}", new Date(System.currentTimeMillis() + 3_600_000)), "news"),
            Map.of(phone, 1)), phone), "\"apns-expiration\":"));
        check("Apple with an expiry and headers", () -> holds(text(sent(hub.sendNotification(
            Notification.createAppleNotification("{\"aps\":{\"content-available\":1}}", new Date(System.currentTimeMillis() + 3_600_000),
                new HashMap<>(Map.of("apns-push-type", "background", "apns-priority", "5"))), "a && (news || !b)"),
            Map.of(phone, 1)), phone), "\"apns-push-type\":\"background\""));
        check("Apple with headers only", () -> holds(text(sent(hub.sendNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}", new HashMap<>(Map.of("apns-collapse-id", "c1"))), "news"),
            Map.of(phone, 1)), phone), "\"apns-collapse-id\":\"c1\""));
        check("to a set of tags", () -> sent(hub.sendNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}"), Set.of("a", "b", "c")), Map.of(phone, 1, other, 1)));
        check("to $InstallationId", () -> sent(hub.sendNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}"), "$InstallationId:{other}"), Map.of(other, 1)));
        check("FCM", () -> holds(text(sent(hub.sendNotification(
            Notification.createFcmNotification("{\"data\":{\"k\":\"v\"}}"), "news"), Map.of(droid, 1)), droid), "\"k\":\"v\""));
        check("GCM", () -> sent(hub.sendNotification(
            Notification.createGcmNotification("{\"data\":{\"k\":\"v\"}}"), "news"), Map.of(droid, 1)));
        String toast = "<toast><visual><binding template=\"ToastText01\"><text id=\"1\">caf\u00e9</text></binding></visual></toast>";
        check("Windows toast in Latin-1", () -> holds(text(sent(hub.sendNotification(
            Notification.createWindowsNotification(toast), "news"), Map.of(pc, 1)), pc), "caf\u00e9", "wns/toast"));
        check("Windows tile", () -> holds(text(sent(hub.sendNotification(
            Notification.createWindowsNotification("<tile><visual/></tile>"), "news"), Map.of(pc, 1)), pc), "wns/tile"));
        check("Windows badge", () -> holds(text(sent(hub.sendNotification(
            Notification.createWindowsNotification("<badge value=\"3\"/>"), "news"), Map.of(pc, 1)), pc), "wns/badge"));
        check("Windows raw", () -> holds(text(sent(hub.sendNotification(
            Notification.createWindowsRawNotification("raw 12"), "news"), Map.of(pc, 1)), pc), "raw 12"));
        check("MPNS", () -> holds(text(sent(hub.sendNotification(Notification.createMpnsNotification(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><wp:Notification xmlns:wp=\"WPNotification\"><wp:Toast><wp:Text1>x</wp:Text1>"
                + "</wp:Toast></wp:Notification>"), "news"), Map.of(wp, 1)), wp), "<wp:Text1>x</wp:Text1>"));
        check("ADM and Baidu are not supported", () -> {
            same(status(() -> hub.sendNotification(Notification.createAdmNotification("{\"data\":{}}"), "news")), 501);
            same(status(() -> hub.sendNotification(Notification.createBaiduNotification("{\"title\":\"x\"}"), "news")), 501);
        });
        check("direct: one token", () -> sent(hub.sendDirectNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}"), other.toUpperCase()), Map.of(other, 1)));
        check("direct: a list of tokens", () -> sent(hub.sendDirectNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}"), List.of(phone, other)), Map.of(phone, 1, other, 1)));
        check("schedule and cancel", () -> {
            Date soon = new Date(System.currentTimeMillis() + 3_600_000);
            Notification notification = Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}");
            for (NotificationOutcome outcome : List.of(hub.scheduleNotification(notification, soon),
                hub.scheduleNotification(notification, "news", soon), hub.scheduleNotification(notification, Set.of("a", "b"), soon))) {
                same(hub.getNotificationTelemetry(outcome.getNotificationId()).getNotificationStatus(), NotificationStatus.Enqueued);
                hub.cancelScheduledNotification(outcome.getNotificationId());
            }
        });
        check("telemetry", () -> {
            NotificationOutcome outcome = hub.sendNotification(Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}"), "news");
            NotificationTelemetry telemetry = over(outcome);
            same(telemetry.getNotificationId(), outcome.getNotificationId());
            same(telemetry.getApnsOutcomeCounts().get("Success"), 1);
        });
    }

    static void registrations() throws Exception {
        String phone = token("phone"), droid = "fcm-" + run, pc = "wns-" + run;
        URI channel = URI.create(environment.get("CHANNEL_ORIGIN") + "/wns/?token=" + pc);
        String[] id = new String[1];
        Registration[] made = new Registration[1];
        check("createRegistrationId", () -> {
            id[0] = hub.createRegistrationId();
            holds(id[0], "-");
        });
        check("createRegistration: Apple with tags", () -> {
            AppleRegistration registration = new AppleRegistration(phone.toUpperCase());
            registration.setTags(new HashSet<>(Set.of("news", "user:1")));
            made[0] = hub.createRegistration(registration);
            same(((AppleRegistration) made[0]).getDeviceToken(), phone.toUpperCase());
            same(made[0].getTags(), Set.of("news", "user:1"));
            if (made[0].getRegistrationId() == null || made[0].getEtag() == null) throw new AssertionError("no id, or no ETag");
        });
        check("createRegistration: an Apple template of the same channel", () -> {
            AppleTemplateRegistration registration = new AppleTemplateRegistration(phone.toUpperCase(), "{\"aps\":{\"alert\":\"$(m)\"}}");
            registration.setTags(new HashSet<>(Set.of("news")));
            AppleTemplateRegistration got = (AppleTemplateRegistration) hub.createRegistration(registration);
            same(got.getBodyTemplate(), "{\"aps\":{\"alert\":\"$(m)\"}}");
        });
        check("createRegistration: GCM, and an FCM template", () -> {
            hub.createRegistration(new GcmRegistration(droid));
            GcmTemplateRegistration got = (GcmTemplateRegistration) (Registration) hub.createRegistration(
                new FcmTemplateRegistration(droid, "{\"data\":{\"m\":\"$(m)\"}}"));
            same(got.getBodyTemplate(), "{\"data\":{\"m\":\"$(m)\"}}");
        });
        check("upsertRegistration: a Windows template", () -> {
            WindowsTemplateRegistration registration = new WindowsTemplateRegistration(channel,
                "<toast><visual><binding template=\"ToastText01\"><text id=\"1\">$(m)</text></binding></visual></toast>",
                new HashMap<>(Map.of("X-WNS-Type", "wns/toast")));
            registration.setRegistrationId(id[0]);
            WindowsTemplateRegistration got = (WindowsTemplateRegistration) hub.upsertRegistration(registration);
            same(got.getRegistrationId(), id[0]);
            same(got.getHeaders(), Map.of("X-WNS-Type", "wns/toast"));
            same(got.getChannelUri(), channel);
        });
        check("updateRegistration with its ETag, and with one that was", () -> {
            String old = made[0].getEtag();
            made[0].getTags().add("vip");
            made[0] = hub.updateRegistration(made[0]);
            same(made[0].getTags(), Set.of("news", "user:1", "vip"));
            Registration late = made[0].clone();
            late.setEtag(old);
            same(status(() -> hub.updateRegistration(late)), 412);
        });
        check("getRegistration", () -> same(hub.getRegistration(made[0].getRegistrationId()), made[0]));
        check("getRegistrations in pages", () -> {
            Set<String> ids = new HashSet<>();
            CollectionResult page = hub.getRegistrations(2, null);
            int pages = 1;
            while (true) {
                for (Registration one : page.getRegistrations()) ids.add(one.getRegistrationId());
                if (page.getContinuationToken() == null) break;
                page = hub.getRegistrations(2, page.getContinuationToken());
                pages++;
            }
            same(ids.size(), 5);
            same(pages, 3);
            same(hub.getRegistrations().getRegistrations().size(), 5);
        });
        check("getRegistrationsByTag", () -> {
            same(hub.getRegistrationsByTag("news").getRegistrations().size(), 2);
            same(hub.getRegistrationsByTag("vip").getRegistrations().get(0).getRegistrationId(), made[0].getRegistrationId());
            same(hub.getRegistrationsByTag("nobody").getRegistrations().size(), 0);
        });
        check("getRegistrationsByChannel", () -> {
            same(hub.getRegistrationsByChannel(channel.toString()).getRegistrations().get(0).getRegistrationId(), id[0]);
            same(hub.getRegistrationsByChannel(phone.toUpperCase()).getRegistrations().size(), 2);
        });
        check("a native send rings each channel once", () -> sent(hub.sendNotification(
            Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}")), Map.of(phone, 1)));
        check("a template send fills each template", () -> {
            Map<String, List<String>> found = arrived(hub.sendNotification(
                Notification.createTemplateNotification(Map.of("m", "hello"))), Set.of(phone, droid, pc));
            for (String device : List.of(phone, droid, pc)) holds(text(found, device), "hello");
        });
        check("deleteRegistration", () -> {
            hub.deleteRegistration(made[0]);
            same(status(() -> hub.getRegistration(made[0].getRegistrationId())), 404);
            hub.deleteRegistration(id[0]);
            sent(hub.sendNotification(Notification.createAppleNotification("{\"aps\":{\"alert\":\"x\"}}")), Map.of());
        });
        check("jobs are not supported", () -> same(status(() -> hub.getAllNotificationHubJobs()), 501));
    }
}

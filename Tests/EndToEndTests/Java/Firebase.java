import com.google.api.client.http.javanet.NetHttpTransport;
import com.google.auth.oauth2.AccessToken;
import com.google.auth.oauth2.GoogleCredentials;
import com.google.firebase.ErrorCode;
import com.google.firebase.FirebaseApp;
import com.google.firebase.FirebaseOptions;
import com.google.firebase.remoteconfig.Condition;
import com.google.firebase.remoteconfig.FirebaseRemoteConfig;
import com.google.firebase.remoteconfig.FirebaseRemoteConfigException;
import com.google.firebase.remoteconfig.KeysAndValues;
import com.google.firebase.remoteconfig.ListVersionsOptions;
import com.google.firebase.remoteconfig.ListVersionsPage;
import com.google.firebase.remoteconfig.Parameter;
import com.google.firebase.remoteconfig.ParameterGroup;
import com.google.firebase.remoteconfig.ParameterValue;
import com.google.firebase.remoteconfig.ParameterValueType;
import com.google.firebase.remoteconfig.RemoteConfigErrorCode;
import com.google.firebase.remoteconfig.ServerTemplate;
import com.google.firebase.remoteconfig.TagColor;
import com.google.firebase.remoteconfig.Template;
import com.google.firebase.remoteconfig.ValueSource;
import com.google.firebase.remoteconfig.Version;
import java.net.HttpURLConnection;
import java.net.URL;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Firebase's Admin SDK for Java. Its address is a constant, so its transport redirects here. */
final class Firebase {
    private static FirebaseRemoteConfig config;
    private static int apps;

    public static void main(String[] arguments) {
        Map<String, Support.Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("manage", Firebase::manage);
        scenarios.put("server", Firebase::server);
        config = open(Support.environment("TOKEN"));
        Support.main(arguments, scenarios);
    }

    private static FirebaseRemoteConfig open(String token) {
        String base = Support.environment("CONFIG_URL");
        AccessToken forever = new AccessToken(token, new Date(System.currentTimeMillis() + 86_400_000));
        FirebaseOptions options = FirebaseOptions.builder().setProjectId(Support.environment("PROJECT"))
            .setCredentials(GoogleCredentials.create(forever))
            .setHttpTransport(new NetHttpTransport.Builder().setConnectionFactory(url -> (HttpURLConnection)
                new URL(url.toString().replace("https://firebaseremoteconfig.googleapis.com", base)).openConnection())
                .build()).build();
        apps += 1;
        return FirebaseRemoteConfig.getInstance(FirebaseApp.initializeApp(options, "app " + apps));
    }

    private static Parameter parameter(String value, ParameterValueType type) {
        return new Parameter().setDefaultValue(ParameterValue.of(value)).setValueType(type);
    }

    private static void fails(String what, ErrorCode code, RemoteConfigErrorCode detail, Support.Scenario call) {
        FirebaseRemoteConfigException error = Support.refused(what, FirebaseRemoteConfigException.class, call);
        if (error == null) return;
        Support.check(what + ": its code", error.getErrorCode(), code);
        if (detail != null) Support.check(what + ": its detail", error.getRemoteConfigErrorCode(), detail);
    }

    private static void manage() throws Exception {
        Template empty = config.getTemplate();
        Support.check("nothing is published", empty.getVersion().getVersionNumber(), "0");
        Support.check("no parameters", empty.getParameters().size(), 0);
        empty.getConditions().add(new Condition("ios", "device.os == 'ios'", TagColor.BLUE));
        empty.getConditions().add(new Condition("half", "percent <= 50"));
        empty.getParameters().put("welcome", parameter("hello žluť 🐎", ParameterValueType.STRING)
            .setDescription("a welcome").setConditionalValues(Map.of(
                "ios", ParameterValue.of("hello iOS"), "half", ParameterValue.inAppDefault())));
        empty.getParameters().put("flag", parameter("TRUE", ParameterValueType.BOOLEAN));
        empty.getParameters().put("number", parameter("-1.5", ParameterValueType.NUMBER));
        empty.getParameters().put("json", parameter("{\"a\":[1]}", ParameterValueType.JSON));
        empty.getParameters().put("untyped", new Parameter().setDefaultValue(ParameterValue.of("x")));
        empty.getParameters().put("bare", new Parameter());
        empty.getParameterGroups().put("group one", new ParameterGroup().setDescription("of one")
            .setParameters(Map.of("grouped", parameter("1", ParameterValueType.NUMBER))));
        empty.setVersion(Version.withDescription("the first"));

        Template validated = config.validateTemplate(empty);
        // It removes the suffix again.
        Support.check("validating: its ETag", validated.getETag(), empty.getETag());
        Support.check("validating stores nothing", config.getTemplate().getETag(), empty.getETag());
        Template first = config.publishTemplate(empty);
        Version version = first.getVersion();
        Support.check("its number", version.getVersionNumber(), "1");
        Support.check("its description", version.getDescription(), "the first");
        Support.check("how", version.getUpdateType(), "INCREMENTAL_UPDATE");
        Support.check("by which way", version.getUpdateOrigin(), "REST_API");
        Support.check("by whom", version.getUpdateUser().getEmail(), "ci@" + Support.environment("PROJECT"));
        Support.check("when", Math.abs(version.getUpdateTime() - System.currentTimeMillis()) < 120_000, true);
        Support.check("conditions", first.getConditions(), empty.getConditions());
        Support.check("a value", ((ParameterValue.Explicit) first.getParameters().get("welcome").getDefaultValue())
            .getValue(), "hello žluť 🐎");
        Support.check("a type that was not sent", first.getParameters().get("untyped").getValueType(),
            ParameterValueType.STRING);
        Support.check("a group", first.getParameterGroups().get("group one").getDescription(), "of one");
        Template read = config.getTemplate();
        Support.check("read again", read, first);
        Support.check("as JSON and back", Template.fromJSON(read.toJSON()), read);

        fails("an old ETag", ErrorCode.FAILED_PRECONDITION, RemoteConfigErrorCode.VERSION_MISMATCH,
            () -> config.publishTemplate(empty));
        Template second = config.publishTemplate(read);
        Support.check("a publish of what was read", second.getVersion().getVersionNumber(), "2");
        second.getConditions().add(new Condition("broken", "device.colour == 'green'"));
        fails("an expression", ErrorCode.INVALID_ARGUMENT, RemoteConfigErrorCode.VALIDATION_ERROR,
            () -> config.validateTemplate(second));
        Template personal = new Template("*").setParameters(Map.of("p",
            new Parameter().setDefaultValue(ParameterValue.ofPersonalization("one"))));
        fails("what only Google has", ErrorCode.INVALID_ARGUMENT, RemoteConfigErrorCode.VALIDATION_ERROR,
            () -> config.forcePublishTemplate(personal));
        Template forced = config.forcePublishTemplate(Template.fromJSON(
            "{\"etag\":\"etag-0-0\",\"parameters\":{\"k\":{\"defaultValue\":{\"value\":\"v\"}}},"
                + "\"version\":{\"description\":\"from JSON\"}}"));
        Support.check("a forced one", forced.getVersion().getUpdateType(), "FORCED_UPDATE");
        Support.check("an old version", config.getTemplateAtVersion(1).getConditions().size(), 2);
        Support.check("the same by a text", config.getTemplateAtVersion("1").getVersion().getVersionNumber(), "1");
        Template rolled = config.rollback(1);
        Support.check("a rollback", rolled.getVersion().getRollbackSource(), "1");
        Support.check("a rollback's number", rolled.getVersion().getVersionNumber(), "4");
        Support.check("a rollback by a text", config.rollback("2").getVersion().getUpdateType(), "ROLLBACK");
        fails("a version that is not there", ErrorCode.NOT_FOUND, null, () -> config.getTemplateAtVersion(99));
        fails("a rollback to the current one", ErrorCode.INVALID_ARGUMENT, null, () -> config.rollback(5));

        Support.check("all versions", numbers(config.listVersions()), List.of("5", "4", "3", "2", "1"));
        ListVersionsPage page = config.listVersions(ListVersionsOptions.builder().setPageSize(2).build());
        List<String> onPage = new ArrayList<>();
        page.getValues().forEach(one -> onPage.add(one.getVersionNumber()));
        Support.check("a page", onPage, List.of("5", "4"));
        Support.check("all by pages", numbers(page), List.of("5", "4", "3", "2", "1"));
        Support.check("until a number", numbers(config.listVersions(
            ListVersionsOptions.builder().setEndVersionNumber(2).build())), List.of("2", "1"));
        long now = System.currentTimeMillis();
        Support.check("of a time", numbers(config.listVersions(ListVersionsOptions.builder()
            .setStartTimeMillis(now - 3_600_000).setEndTimeMillis(now + 3_600_000).build())).size(), 5);
        Support.check("of another time", numbers(config.listVersions(ListVersionsOptions.builder()
            .setStartTimeMillis(now + 3_600_000).build())).size(), 0);
        // On a 401 it tries to renew its token, which this kind of credential cannot.
        Support.refused("an unknown token", IllegalStateException.class, () -> open("nobody").getTemplate());
    }

    private static List<String> numbers(ListVersionsPage page) {
        List<String> all = new ArrayList<>();
        page.iterateAll().forEach(version -> all.add(version.getVersionNumber()));
        return all;
    }

    private static void server() throws Exception {
        ServerTemplate template = config.getServerTemplate(
            new KeysAndValues.Builder().put("absent", 7).put("greeting", "none").build());
        Support.check("the default", template.evaluate().getLong("limit"), 10L);
        Support.check("a text", template.evaluate().getString("greeting"), "hello");
        Support.check("the app's own", template.evaluate().getLong("absent"), 7L);
        Support.check("a source", template.evaluate().getValueSource("greeting"), ValueSource.REMOTE);
        var gold = template.evaluate(new KeysAndValues.Builder()
            .put("tier", "gold").put("randomizationId", "one").build());
        Support.check("a custom signal", gold.getLong("limit"), 100L);
        Support.check("everybody", gold.getBoolean("everybody"), true);
        var vip = template.evaluate(new KeysAndValues.Builder()
            .put("tier", "vip").put("randomizationId", "one").build());
        Support.check("an expression", vip.getLong("limit"), 200L);
        Support.check("it can be stored", template.toJson().contains("STRING_EXACTLY_MATCHES"), true);
        template.load().get();
    }
}

import cn.leancloud.LCCloudQuery;
import cn.leancloud.LCException;
import cn.leancloud.LCInstallation;
import cn.leancloud.LCObject;
import cn.leancloud.LCPush;
import cn.leancloud.LCQuery;
import cn.leancloud.LCSaveOption;
import cn.leancloud.core.LeanCloud;
import cn.leancloud.json.JSONObject;
import cn.leancloud.types.LCGeoPoint;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** LeanCloud's Java SDK, unchanged except for its server. It knows one app per process. */
final class LeanCloudClient {
    private static final String topic = Support.environment("APNS_TOPIC");
    private static final Map<String, List<String>> heard = new LinkedHashMap<>();

    public static void main(String[] arguments) {
        LeanCloud.initialize(Support.environment("APP_ID"), Support.environment("APP_KEY"),
            Support.environment("REGISTRATION_URL"));
        Map<String, Support.Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("the current installation", LeanCloudClient::current);
        scenarios.put("other installations", LeanCloudClient::others);
        scenarios.put("as master", LeanCloudClient::master);
        scenarios.put("queries", LeanCloudClient::queries);
        scenarios.put("pushes", LeanCloudClient::pushes);
        Support.main(arguments, scenarios);
    }

    private static void refused(String what, int code, Support.Scenario call) {
        LCException error = Support.refused(what, LCException.class, call);
        if (error != null) Support.check(what + ": its code", error.getCode(), code);
    }

    private static LCObject again(LCObject one) {
        return LCObject.createWithoutData(one.getClassName(), one.getObjectId()).fetch();
    }

    private static String token() {
        return Support.digits(64);
    }

    /** An iPhone, whose token is named too. */
    private static LCObject phone(String... channels) {
        LCObject made = new LCObject("_Installation");
        made.put("deviceType", "ios");
        made.put("deviceToken", token());
        made.put("apnsTopic", topic);
        made.put("apnsEnvironment", "production");
        made.put("channels", Arrays.asList(channels));
        return made;
    }

    private static void current() throws Exception {
        Date server = LeanCloud.getServerDateInBackground().blockingFirst().getDate();
        Support.check("the server's time", Math.abs(server.getTime() - System.currentTimeMillis()) < 60_000, true);
        LCInstallation mine = LCInstallation.getCurrentInstallation();
        mine.put("deviceType", "ios");
        mine.put("deviceToken", token());
        mine.put("apnsTopic", topic);
        mine.put("apnsEnvironment", "production");
        mine.save();
        Support.check("a save gives an id", mine.getObjectId() != null && mine.getCreatedAt() != null, true);
        // It sends all of its fields each time, and reads those that the server returns.
        mine.put("city", "Oslo");
        mine.put("profile", Map.of("n", 1, "list", List.of(1, "x")));
        mine.put("when", new Date(1_700_000_000_123L));
        mine.put("location", new LCGeoPoint(39.9, 116.3));
        mine.put("bytes", new byte[] {1, 2, 3});
        mine.put("owner", LCObject.createWithoutData("_User", "0123456789abcdef01234567"));
        mine.put("text", "žluť 🐎 \"q\"");
        mine.save();
        mine.addUnique("channels", "news");
        mine.addUnique("channels", "b_2");
        mine.save();
        mine.removeAll("channels", List.of("b_2"));
        mine.save();
        mine.add("mix", 1);
        mine.addAll("nums", List.of(1, 2, 3));
        mine.save();
        mine.increment("badge");
        mine.decrement("left", 2);
        mine.increment("score", 1.5);
        mine.save();
        mine.put("f1", 6);
        mine.save();
        mine.bitAnd("f1", 4);
        mine.save();
        mine.put("profile.city", "y");
        mine.save();
        LCObject read = again(mine);
        Support.check("channels", read.getList("channels"), List.of("news"));
        Support.check("lists", read.getList("nums"), List.of(1, 2, 3));
        Support.check("numbers", List.of(read.getInt("badge"), read.getInt("left"), read.getDouble("score"), read.getInt("f1")),
            List.of(1, -2, 1.5, 4));
        Support.check("a path", read.getJSONObject("profile").getString("city"), "y");
        Support.check("a date", read.getDate("when"), new Date(1_700_000_000_123L));
        Support.check("a place", read.getLCGeoPoint("location").getLatitude(), 39.9);
        Support.check("bytes", Arrays.equals(read.getBytes("bytes"), new byte[] {1, 2, 3}), true);
        Support.check("a pointer", ((LCObject) read.getLCObject("owner")).getObjectId(), "0123456789abcdef01234567");
        Support.check("a text", read.getString("text"), "žluť 🐎 \"q\"");
        Support.check("its own id", read.getString("installationId"), mine.getInstallationId());
        mine.put("channels", "news");
        refused("channels of another type", 111, mine::save);
        mine.abortOperations();
    }

    private static void others() throws Exception {
        LCObject made = new LCObject("_Installation");
        made.put("deviceType", "ios");
        made.put("deviceToken", token());
        made.increment("badge", 2);
        made.addUnique("channels", "频道");
        made.save();
        LCObject read = again(made);
        Support.check("operations of a new one", List.of(read.getInt("badge"), read.getList("channels")),
            List.of(2, List.of("频道")));
        LCObject change = LCObject.createWithoutData("_Installation", made.getObjectId());
        change.put("x", 2);
        change.saveInBackground(new LCSaveOption().setFetchWhenSave(true)
            .query(new LCQuery<>("_Installation").whereGreaterThan("badge", 1))).blockingFirst();
        Support.check("a condition that holds", again(made).getInt("x"), 2);
        change.put("x", 3);
        refused("a condition that does not", 305, () -> change.saveInBackground(new LCSaveOption()
            .query(new LCQuery<>("_Installation").whereGreaterThan("badge", 2))).blockingFirst());
        LCObject droid = new LCObject("_Installation");
        droid.put("deviceType", "android");
        droid.put("registrationId", "droid-" + Support.digits(20));
        droid.put("installationId", "install-" + Support.digits(20));
        droid.put("vendor", "fcm");
        droid.save();
        Support.check("an Android phone", again(droid).getString("vendor"), "fcm");
        LCObject owner = new LCObject("Owner");
        owner.put("n", 1);
        LCObject owned = phone();
        owned.put("owner", owner);
        refused("an owner of an unknown class", 101, owned::save);
        List<LCObject> several = List.of(phone(), phone());
        LCObject.saveAll(several);
        several.forEach(one -> one.put("n", 1));
        LCObject.saveAll(several);
        Support.check("several at once", again(several.get(1)).getInt("n"), 1);
        refused("a delete with the app key", 119, made::delete);
    }

    private static void master() throws Exception {
        // For the life of the process.
        LeanCloud.setMasterKey(Support.environment("MASTER_KEY"));
        LCObject gone = phone();
        gone.save();
        gone.delete();
        refused("what is deleted", 101, () -> again(gone));
        List<LCObject> several = List.of(phone(), phone());
        LCObject.saveAll(several);
        LCObject.deleteAll(several);
        refused("the second of two", 101, () -> again(several.get(1)));
    }

    private static LCQuery<LCObject> query() {
        return new LCQuery<LCObject>("_Installation").whereEqualTo("kind", "queried");
    }

    private static List<Integer> found(LCQuery<LCObject> query) {
        List<Integer> numbers = new ArrayList<>();
        for (LCObject one : query.orderByAscending("number").limit(100).find()) numbers.add(one.getInt("number"));
        return numbers;
    }

    private static void queries() throws Exception {
        List<LCObject> all = new ArrayList<>();
        for (int number = 0; number < 8; number += 1) {
            LCObject one = phone("c" + number % 2);
            one.put("kind", "queried");
            one.put("number", number);
            one.put("name", "name " + number + ".*");
            one.put("place", new LCGeoPoint(10, number));
            if (number > 5) one.put("high", true);
            all.add(one);
        }
        LCObject.saveAll(all);
        Support.check("all", found(query()).size(), 8);
        Support.check("equal", found(query().whereEqualTo("number", 3)), List.of(3));
        Support.check("not equal", found(query().whereNotEqualTo("number", 3)).size(), 7);
        Support.check("a range", found(query().whereGreaterThanOrEqualTo("number", 2).whereLessThan("number", 4)),
            List.of(2, 3));
        Support.check("in", found(query().whereContainedIn("number", List.of(1, 5, 9))), List.of(1, 5));
        Support.check("not in", found(query().whereNotContainedIn("number", List.of(1, 5))).size(), 6);
        Support.check("in a list", found(query().whereContainsAll("channels", List.of("c1"))), List.of(1, 3, 5, 7));
        Support.check("of a size", found(query().whereSizeEqual("channels", 1)).size(), 8);
        Support.check("exists", found(query().whereExists("high")), List.of(6, 7));
        Support.check("does not exist", found(query().whereDoesNotExist("high")).size(), 6);
        Support.check("begins", found(query().whereStartsWith("name", "name 4.*")), List.of(4));
        Support.check("ends", found(query().whereEndsWith("name", "4.*")), List.of(4));
        Support.check("contains", found(query().whereContains("name", "e 4")), List.of(4));
        Support.check("matches", found(query().whereMatches("name", "^NAME [45]", "i")), List.of(4, 5));
        LCGeoPoint here = new LCGeoPoint(10, 0);
        Support.check("near", query().whereNear("place", here).limit(2).find().get(1).getInt("number"), 1);
        Support.check("within kilometers", found(query().whereWithinKilometers("place", here, 230)), List.of(0, 1, 2));
        Support.check("within miles", found(query().whereWithinMiles("place", here, 100)), List.of(0, 1));
        Support.check("within radians", found(query().whereWithinRadians("place", here, 0.02)), List.of(0, 1));
        Support.check("in a box", found(query().whereWithinGeoBox("place", new LCGeoPoint(9, 2.5), new LCGeoPoint(11, 4.5))),
            List.of(3, 4));
        Support.check("or", found(LCQuery.or(List.of(query().whereEqualTo("number", 1), query().whereEqualTo("number", 7)))),
            List.of(1, 7));
        Support.check("and", found(LCQuery.and(List.of(query(), query().whereEqualTo("number", 7)))), List.of(7));
        Support.check("a key of a query", found(query().whereMatchesKeyInQuery("number", "number",
            query().whereGreaterThan("number", 5))), List.of(6, 7));
        LCObject one = query().whereEqualTo("number", 2).selectKeys(List.of("number", "name")).getFirst();
        Support.check("some keys", List.of(one.getString("name"), one.containsKey("channels")), List.of("name 2.*", false));
        Support.check("skip and limit", query().orderByDescending("number").skip(1).limit(1).find().get(0).getInt("number"), 6);
        Support.check("a count", query().count(), 8);
        Support.check("by id", query().get(all.get(4).getObjectId()).getInt("number"), 4);
        Support.check("CQL", LCCloudQuery.executeInBackground(
            "select * from _Installation where kind = ? and number > ? order by number", "queried", 5)
            .blockingFirst().getResults().size(), 2);
        Support.check("a count by CQL", LCCloudQuery.executeInBackground(
            "select count(*) from _Installation where kind = 'queried'").blockingFirst().getCount(), 8);
        query().whereGreaterThan("number", 3).deleteAll();
        Support.check("deleteAll", found(query()), List.of(0, 1, 2, 3));
    }

    private static LCQuery<LCInstallation> by(String name) {
        return LCInstallation.getQuery().whereEqualTo("name", name);
    }

    /** Sends a push, and waits until it has ended. */
    private static void send(String text, LCPush push, String... hearers) throws Exception {
        JSONObject answer = push.sendInBackground().blockingFirst();
        String id = answer.getString("objectId");
        Support.check(text + ": an id", id != null && !id.isEmpty(), true);
        Support.until(text, () -> {
            LCObject record = new LCQuery<LCObject>("_Notification").get(id);
            return "done".equals(record.getString("status")) && record.getInt("pending") == 0;
        });
        for (String hearer : hearers) heard.get(hearer).add(text);
    }

    private static LCPush push(String text) {
        LCPush push = new LCPush();
        push.setMessage(text);
        return push;
    }

    private static void pushes() throws Exception {
        LCObject ann = phone("Mets");
        LCObject bob = phone("Mets", "Giants");
        LCObject cid = phone();
        String a = ann.getString("deviceToken");
        String b = bob.getString("deviceToken");
        String c = cid.getString("deviceToken");
        for (String token : List.of(a, b, c)) heard.put(token, new ArrayList<>());
        ann.put("name", "name-0");
        bob.put("name", "name-1");
        cid.put("name", "name-2");
        LCObject.saveAll(List.of(ann, bob, cid));

        LCPush everyone = push("to everyone žluť 🐎");
        send("to everyone žluť 🐎", everyone, a, b, c);
        LCPush channel = push("to a channel");
        channel.setChannel("Giants");
        send("to a channel", channel, b);
        LCPush channels = push("to channels");
        channels.setChannels(List.of("Mets", "Giants"));
        send("to channels", channels, a, b);
        LCPush byQuery = push("by a query");
        byQuery.setQuery(by("name-2"));
        send("by a query", byQuery, c);
        LCPush byCQL = push("by CQL");
        byCQL.setCloudQuery("select * from _Installation where name = 'name-0'");
        send("by CQL", byCQL, a);
        LCPush data = new LCPush();
        data.setChannel("Giants");
        data.setData(Map.of("alert", "with data", "badge", "Increment", "sound", "s.aiff", "n", 5, "nested", Map.of("k", List.of(1, 2))));
        send("with data", data, b);
        LCPush iPhones = push("to iPhones");
        iPhones.setPushToIOS(true);
        iPhones.setPushToAndroid(false);
        iPhones.setQuery(by("name-1"));
        send("to iPhones", iPhones, b);
        LCPush soon = push("soon");
        soon.setQuery(by("name-1"));
        soon.setPushDate(new Date(System.currentTimeMillis() + 1500));
        send("soon", soon, b);
        LCPush ends = push("until a time");
        ends.setQuery(by("name-1"));
        ends.setExpirationTime(System.currentTimeMillis() + TimeUnit.HOURS.toMillis(1));
        send("until a time", ends, b);
        LCPush lasts = push("for a while");
        lasts.setQuery(by("name-1"));
        lasts.setExpirationTimeInterval(3600);
        send("for a while", lasts, b);
        LCPush rest = push("with the rest");
        rest.setQuery(by("name-1"));
        rest.setiOSEnvironment(LCPush.iOSEnvironmentProd);
        rest.setAPNsTopic(topic);
        rest.setFlowControl(1200);
        rest.setNotificationId("note" + Support.digits(8));
        rest.setRequestId(Support.digits(16));
        send("with the rest", rest, b);
        String text = LCPush.sendMessageInBackground("by the class", by("name-0")).blockingFirst().getString("objectId");
        Support.check("by the class: an id", text != null, true);
        heard.get(a).add("by the class");
        heard.forEach((token, texts) -> Support.heard(token, texts.toArray(new String[0])));
    }
}

// Pushes by Parse's JavaScript package: every parameter, the result for each platform, device by
// device, their statuses, and the APNs topics of an app that has several.

import { again, install, Installation, master, Parse, phone, Query, users } from "./parse-sdk.mjs";
import { check, Devices, environment, refused, token, unique, until } from "./support.mjs";

export async function finished(id, ...states) {
  return until("the push " + id, async () => {
    const one = await Parse.Push.getPushStatus(id);
    return states.includes(one.get("status")) ? one : undefined;
  });
}

/// Sends, waits until it has ended, and checks the status and the devices. A message for a device with
/// a connection of its own is stored, and counts as sent.
function sender(devices) {
  return async (what, hearers, options, data = {}, failures = 0, stored = 0) => {
    const text = `${what} ${unique("")}`;
    const words = typeof data === "function" ? data(text) : { alert: text, ...data };
    const id = await Parse.Push.send({ ...options, data: words });
    check(what + ": an id", typeof id, "string");
    const status = await finished(id, "succeeded", "failed");
    check(what + ": its status",
      [status.get("status"), status.get("numSent"), status.get("numFailed") ?? 0],
      ["succeeded", hearers.length + stored, failures]);
    return { id, status, got: await devices.heard(what, text, hearers) };
  };
}

export async function pushes() {
  const devices = new Devices();
  const ann = new Parse.User({ username: "ann", city: "Oslo" });
  await ann.save(null, master);
  const made = {};
  for (const [name, fields] of Object.entries({
    mets: { channels: ["Mets"], level: 1, localeIdentifier: "fr-FR" },
    giants: { channels: ["Giants"], level: 2 },
    both: { channels: ["Mets", "Giants"], level: 3, owner: ann }, none: { level: 4 },
    droid: { deviceType: "android", pushType: "fcm", channels: ["Droids"], level: 6 },
    old: { deviceType: "android", pushType: "gcm", level: 7 },
  })) {
    const deviceToken = fields.deviceType === "android" ? unique("fcm-") : token();
    made[name] = phone({ deviceToken: devices.add(name, deviceToken), ...fields });
  }
  made.web = new Installation({ deviceType: "web", installationId: unique("w-"), level: 8 });
  await Parse.Object.saveAll(Object.values(made), master);
  const level = (n) => install().equalTo("level", n);
  const sent = sender(devices);

  await sent("to everyone", devices.names, { where: install() }, {}, 0, 1);
  const first = await sent("to a channel", ["mets", "both"], { channels: ["Mets"] });
  check("its status, in Parse's fields", [
    JSON.parse(first.status.get("query")), JSON.parse(first.status.get("payload")).alert.length > 0,
    first.status.get("source"), first.status.get("sentPerType"),
    /^[0-9a-f]{32}$/.test(first.status.get("pushHash")),
  ], [{ channels: { $in: ["Mets"] } }, true, "rest", { ios: 2 }, true]);
  await sent("to two channels", ["mets", "giants", "both"], { channels: ["Mets", "Giants"] });
  await sent("by where", ["giants", "both"],
    { where: install().greaterThan("level", 1).lessThan("level", 4) });
  await sent("by an owner", ["both"],
    { where: install().matchesQuery("owner", users().equalTo("city", "Oslo")) });
  await sent("by or", ["mets", "none"], { where: Query.or(level(1), level(4)) });
  await sent("by a device's type", ["droid", "old"],
    { where: install().equalTo("deviceType", "android") });
  await sent("by a pattern", ["giants", "both"], { where: install().startsWith("channels", "Gi") });
  await sent("by nobody's where", [], { where: level(99) });
  await sent("to a device with a connection", [], { where: level(8) }, {}, 0, 1);
  await sent("soon", ["giants"], { where: level(2), push_time: new Date(Date.now() + 1500) });
  const past = "2020-01-01T00:00:00.000";
  await sent("at a time past", ["giants"], { where: level(2), push_time: past + "Z" });
  await sent("at a time past, by each clock", ["giants"], { where: level(2), push_time: past });
  await sent("at a second", ["giants"],
    { where: level(2), push_time: Math.floor(Date.now() / 1000) + 1 });
  const end = Math.floor(Date.now() / 1000) + 3600;
  for (const [what, expiration] of [
    ["until a time", { expiration_time: new Date(end * 1000) }],
    ["until a second", { expiration_time: end }], ["for a while", { expiration_interval: 3600 }],
  ]) {
    const { got, status } = await sent(what, ["giants"], { where: level(2), ...expiration });
    check(what + ", at APNs",
      Math.abs(Number(got.giants.headers["apns-expiration"]) - end) < 60);
    check(what + ", in the status", Math.abs(status.get("expiry") / 1000 - end) < 60);
  }
  await contents(sent, made, level);

  const later = await Parse.Push.send(
    { channels: ["Mets"], push_time: new Date(Date.now() + 3_600_000), data: { alert: "never" } });
  check("what waits", (await Parse.Push.getPushStatus(later)).get("status"), "scheduled");
  const statuses = () => new Query("_PushStatus");
  const found = await statuses().equalTo("status", "scheduled").find(master);
  check("find of statuses", found.map((one) => one.id), [later]);
  check("count of statuses", await statuses().equalTo("objectId", first.id).count(master), 1);
  await refused("a status with the client's key", () => statuses().find(), 119);
  await refused("a status that is none", () => Parse.Push.getPushStatus("nothing"), 101);
  const data = { alert: "refused" };
  for (const [what, body, code] of [
    ["neither where nor channels", { data }, 115],
    ["both where and channels", { data, where: install(), channels: ["Mets"] }, 115],
    ["a time that is none", { data, channels: ["Mets"], push_time: "soon" }, 115],
    ["an interval that is none", { data, channels: ["Mets"], expiration_interval: -1 }, 115],
    ["a badge that is none", { data: { badge: "many" }, channels: ["Mets"] }, 115],
    ["no data", { channels: ["Mets"] }, 115],
    ["a where that cannot run", { data, where: { a: { $above: 1 } } }, 102],
  ]) await refused(what, () => Parse.Push.send(body), code);
  const thrown = await (async () => Parse.Push.send({
    data, where: install(), expiration_time: new Date(), expiration_interval: 1,
  }))().then(() => false, (error) => error.message.includes("cannot both"));
  check("refused by the package", thrown);
  await refused("a push with the client's key",
    () => Parse.Push.send({ data, channels: ["Mets"] }, { useMasterKey: false }), 119);
  await devices.nothingElse();
}

/// The form of `data` on each platform.
async function contents(sent, made, level) {
  const rich = await sent("all of iOS", ["mets"], { where: level(1) }, {
    badge: 7, sound: "cheering.caf", "content-available": 1, "mutable-content": 1,
    category: "GAME", threadId: "t1", title: "Ding", uri: "https://example.com", game: { id: 7 },
  });
  const { aps, game, uri } = rich.got.mets.body;
  check("all of iOS, at APNs", [
    aps.badge, aps.sound, aps["content-available"], aps["mutable-content"], aps.category, game, uri,
  ], [7, "cheering.caf", 1, 1, "GAME", { id: 7 }, "https://example.com"]);
  check("a badge is stored", (await again(made.mets)).badge, 7);
  for (const [what, badge, result] of [
    ["Increment", "Increment", 8], ["increment", "increment", 9],
    ["an operation", { __op: "Increment", amount: 3 }, 12],
  ]) {
    const { got } = await sent("a badge by " + what, ["mets"], { where: level(1) }, { badge });
    check(`a badge by ${what}, at APNs`, got.mets.body.aps.badge, result);
  }
  const local = await sent("in a language", ["mets", "giants"],
    { where: install().containedIn("level", [1, 2]) },
    (text) => ({ alert: "plain " + text, "alert-fr": "francais " + text }));
  check("in a language, at APNs", [
    JSON.stringify(local.got.mets.body.aps.alert).includes("francais"),
    JSON.stringify(local.got.giants.body.aps.alert).includes("plain"),
    "alert-fr" in local.got.mets.body,
  ], [true, true, false]);
  const object = await sent("an alert that is an object", ["mets"], { where: level(1) },
    (text) => ({ alert: { title: "T", body: text } }));
  check("an alert that is an object, at APNs", object.got.mets.body.aps.alert.title, "T");
}

/// An installation's `appIdentifier` is its APNs topic.
export async function topics() {
  const devices = new Devices();
  const [one, two] = [environment.APNS_TOPIC, environment.APNS_SECOND_TOPIC];
  const made = Object.entries({
    bells: one, chimes: two, stranger: "com.example.stranger", nameless: undefined,
  }).map(([name, appIdentifier]) => phone({
    deviceToken: devices.add(name, token()), name, ...(appIdentifier && { appIdentifier }),
  }));
  await Parse.Object.saveAll(made, master);
  const sent = sender(devices);
  const named = (...names) => ({ where: install().containedIn("name", names) });
  const { got } = await sent("to two topics", ["bells", "chimes"], named("bells", "chimes"));
  for (const [name, topic] of [["bells", one], ["chimes", two]]) {
    check(`the topic of ${name}`, got[name]?.headers["apns-topic"], topic);
  }
  const each = await sent("to the second topic", ["chimes"], named("chimes"));
  check("the second topic", each.got.chimes?.headers["apns-topic"], two);
  // Without a matching credential it fails, instead of using another app's topic.
  await sent("to a stranger's topic", [], named("stranger"), {}, 1);
  // An installation without a topic uses the app's first.
  const first = await sent("to one that names none", ["nameless"], named("nameless"));
  check("the topic of one that names none", first.got.nameless?.headers["apns-topic"], one);
  await sent("to everyone", ["bells", "chimes", "nameless"], { where: install() }, {}, 1);
  const moved = await again(made[0]);
  await moved.save({ appIdentifier: two }, master);
  const after = await sent("to one that moved", ["bells"], named("bells"));
  check("the topic of one that moved", after.got.bells?.headers["apns-topic"], two);
  await devices.nothingElse();
}

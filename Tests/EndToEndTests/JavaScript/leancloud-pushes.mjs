// Pushes by LeanCloud's JavaScript package: every parameter, and the result for each platform,
// device by device; schedules and records.

import {
  again, AV, install, Installation, master, pause, phone, raw, TOPIC,
} from "./leancloud-sdk.mjs";
import { check, Devices, environment, refused, token, unique, until } from "./support.mjs";

function makeDevices(ann) {
  const devices = new Devices();
  const rows = {
    mets: { channels: ["Mets"], level: 1 }, giants: { channels: ["Giants"], level: 2 },
    both: { channels: ["Mets", "Giants"], level: 3, owner: ann }, none: { level: 4 },
    muted: { channels: ["Mets"], level: 7, valid: false },
  };
  const made = {};
  for (const [name, fields] of Object.entries(rows)) {
    made[name] = phone(fields);
    devices.add(name, made[name].get("deviceToken"));
  }
  // It does not name the environment of its token: the push does.
  made.any = new Installation({
    deviceType: "ios", deviceToken: devices.add("any", token()), apnsTopic: TOPIC, level: 5,
  });
  made.droid = new Installation({
    deviceType: "android", registrationId: devices.add("droid", unique("droid-")), vendor: "fcm",
    level: 6, channels: ["Droids"],
  });
  const channel = devices.add("pc", unique("wns-channel-"));
  made.pc = new Installation({
    deviceType: "windows", level: 8,
    subscriptionUri: `${environment.CHANNEL_ORIGIN}/wns/?token=${channel}`,
  });
  made.lumia = new Installation({
    deviceType: "wp", level: 9,
    subscriptionUri: `${environment.SIMULATOR_URL}/mpns/${devices.add("lumia", unique("mpns-"))}`,
  });
  return { devices, made };
}

export async function pushes() {
  const ann = new AV.User({ username: "ann", city: "Oslo" });
  await ann.save(null, master);
  const { devices, made } = makeDevices(ann);
  await AV.Object.saveAll(Object.values(made), master);
  const level = (n) => install().equalTo("level", n);
  const everyone = devices.names.filter((name) => name !== "muted");

  /// Sends, waits until it has ended, and checks the record and the devices.
  async function sent(what, hearers, options, data = {}) {
    const text = `${what} ${unique("")}`;
    const words = typeof data === "function" ? data(text) : { alert: text, ...data };
    const answer = await AV.Push.send({ ...options, data: words }, master);
    check(what + ": an id", typeof answer.objectId, "string");
    const record = await finished(answer.objectId);
    check(what + ": its record", ["devices", "successes", "targeted", "delivered", "pending"]
      .map((key) => record.get(key)), [...Array(4).fill(hearers.length), 0]);
    return { id: answer.objectId, record, got: await devices.heard(what, text, hearers) };
  }

  await sent("to everyone", everyone, {});
  const first = await sent("to a channel", ["mets", "both"], { channels: ["Mets"] });
  await sent("to two channels", ["mets", "giants", "both"], { channels: ["Mets", "Giants"] });
  await sent("by where", ["giants", "both"],
    { where: install().greaterThan("level", 1).lessThan("level", 4) });
  await sent("by where and channel", ["both"], { where: level(3), channels: ["Mets"] });
  await sent("by an owner", ["both"],
    { where: install().matchesQuery("owner", new AV.Query("_User").equalTo("city", "Oslo")) });
  await sent("by or", ["mets", "none"], { where: AV.Query.or(level(1), level(4)) });
  await sent("by a pattern", ["giants", "both"], { where: install().startsWith("channels", "Gi") });
  await sent("by nobody's where", [], { where: level(99) });
  await sent("by an empty where", everyone, { where: install() });
  await sent("by CQL", ["giants"], { cql: "select * from _Installation where level = 2" });
  await sent("soon", ["giants"], { where: level(2), push_time: pause(1500) });
  await sent("at a time past", ["giants"], { where: level(2), push_time: new Date(2020, 1, 1) });
  const end = Math.floor(Date.now() / 1000) + 3600;
  const until1 = await sent("until a time", ["giants"],
    { where: level(2), expiration_time: new Date(end * 1000) });
  check("until a time, at APNs", until1.got.giants.headers["apns-expiration"], String(end));
  const while1 = await sent("for a while", ["giants"],
    { where: level(2), expiration_interval: 3600 });
  check("for a while, at APNs",
    Math.abs(Number(while1.got.giants.headers["apns-expiration"]) - end) < 60);
  await sent("at a pace", ["mets", "both"], { channels: ["Mets"], flow_control: 0 });
  await sent("with ids", ["mets"],
    { where: level(1), notification_id: "camp1", req_id: unique("").slice(0, 16) });
  for (const [what, prod, place] of [
    ["to the sandbox", "dev", "sandbox"], ["to production", "prod", "production"],
  ]) {
    const { got } = await sent(what, ["any"], { where: level(5), prod });
    check(what + ", at APNs", got.any.environment, place);
  }
  AV.setProduction(false);
  const staged = await sent("from a stage", ["any"], { where: level(5) });
  check("from a stage, at APNs", staged.got.any.environment, "sandbox");
  AV.setProduction(true);
  const topical = await sent("to a topic", ["mets"], { where: level(1), topic: TOPIC });
  check("to a topic, at APNs", topical.got.mets.headers["apns-topic"], TOPIC);
  const once = unique("").slice(0, 16);
  const twice = await Promise.all([1, 2].map(() => AV.Push.send(
    { where: level(2), req_id: once, data: { alert: "once " + once } }, master)));
  check("one req_id is one push", twice[0].objectId, twice[1].objectId);
  await finished(twice[0].objectId);
  await devices.heard("one req_id", once, ["giants"]);
  const { listed, objectId } = await contents(sent, made, level);
  await finished(objectId);
  await devices.heard("to a list of devices", listed, ["giants"]);
  await schedules(devices);
  await refusedPushes();
  await records(first.id);
  await devices.nothingElse();
}

/// The form of `data` on each platform.
async function contents(sent, made, level) {
  const rich = await sent("all of iOS", ["mets"], { where: level(1) }, {
    badge: 7, sound: "cheering.caf", "content-available": 1, "mutable-content": 1,
    category: "GAME", "thread-id": "t1", "collapse-id": "c1", "apns-priority": 5, game: { id: 7 },
  });
  const { aps, game } = rich.got.mets.body;
  check("all of iOS, at APNs", [
    aps.badge, aps.sound, aps["content-available"], aps["mutable-content"], aps.category,
    aps["thread-id"], game, rich.got.mets.headers["apns-collapse-id"],
    rich.got.mets.headers["apns-priority"],
  ], [7, "cheering.caf", 1, 1, "GAME", "t1", { id: 7 }, "c1", "5"]);
  const object = await sent("an alert that is an object", ["mets"], { where: level(1) },
    (text) => ({ alert: { title: "T", body: text, "loc-key": "K" } }));
  const { title, "loc-key": key } = object.got.mets.body.aps.alert;
  check("an alert that is an object, at APNs", [title, key], ["T", "K"]);
  const badge = { badge: "Increment" };
  await sent("a badge", ["mets", "both"], { channels: ["Mets"] }, badge);
  const second = await sent("a badge again", ["mets"], { where: level(1) }, badge);
  check("badges are counted", [
    second.got.mets.body.aps.badge, (await again(made.mets)).get("badge"),
    (await again(made.both)).get("badge"),
  ], [2, 2, 1]);
  const mine = await again(made.mets);
  await mine.save({ badge: 0 });
  const cleared = await sent("a badge after it was cleared", ["mets"], { where: level(1) }, badge);
  check("a cleared badge counts anew", cleared.got.mets.body.aps.badge, 1);
  const split = await sent("of its own to each platform", ["mets", "droid", "pc", "lumia"],
    { where: install().containedIn("level", [1, 6, 8, 9]) }, (text) => ({
      alert: "common " + text, title: "Ding", ios: { alert: "ios " + text, badge: 3 },
      android: { alert: "android " + text, extra: "e" },
      wp: { alert: "wp " + text, "wp-param": "/game?id=1" },
    }));
  const words = ["ios", "android", "common", "wp"];
  for (const [name, own] of [
    ["mets", "ios"], ["droid", "android"], ["pc", "wp"], ["lumia", "wp"],
  ]) {
    const body = JSON.stringify(split.got[name]?.body);
    check(`of its own to each platform: ${name}`,
      words.filter((word) => body.includes(word + " of its own")), [own]);
  }
  check("a page to open, at MPNS",
    split.got.lumia?.body.includes("<wp:Param>/game?id=1</wp:Param>"));
  await sent("silent, on Android", ["droid"], { channels: ["Droids"] },
    (text) => ({ silent: true, note: text }));
  const listed = unique("listed ");
  const { objectId } = await AV.request({
    method: "POST", path: "/push/devices", authOptions: master, data: {
      device_type: "ios", device_ids: [made.giants.get("deviceToken")], data: { alert: listed },
    },
  });
  return { listed, objectId };
}

async function finished(id) {
  return until("the push " + id, async () => {
    const one = await new AV.Query("_Notification").get(id, master);
    return one.get("status") === "done" ? one : undefined;
  });
}

/// A scheduled push can be read and cancelled, by the package's raw request.
async function schedules(devices) {
  const later = await AV.Push.send(
    { channels: ["Mets"], push_time: pause(3_600_000), data: { alert: "never" } }, master);
  const waiting = (await raw("GET", "/scheduledPushMessages")).results;
  check("what waits is listed", waiting.map((one) => one.push_msg.id), [later.objectId]);
  const record = new AV.Query("_Notification");
  check("and its record says so",
    (await record.get(later.objectId, master)).get("status"), "scheduled");
  await raw("DELETE", "/scheduledPushMessages/" + waiting[0].id);
  check("and taken back", (await raw("GET", "/scheduledPushMessages")).results, []);
  check("its record, then",
    (await record.get(later.objectId, master)).get("status"), "cancelled");
  await devices.heard("what was taken back", "never", []);
}

async function refusedPushes() {
  const data = { alert: "refused" };
  for (const [what, body, code] of [
    ["both ends", { expiration_interval: 5, expiration_time: "2040-01-01T00:00:00.000Z" }],
    ["a where beside CQL", { where: { a: 1 }, cql: "select * from _Installation" }],
    ["a where that cannot run", { where: { level: { $above: 1 } } }, 102],
    ["CQL that is none", { cql: "select" }, 300],
    ["a channel that is none", { channels: ["a b"] }, 112],
    ["a time that is none", { push_time: "soon" }], ["no data", { data: undefined }],
  ]) {
    await refused(what, () => raw("POST", "/push", { data, ...body }), ...(code ? [code] : []));
  }
  for (const options of [
    { where: install(), cql: "select * from _Installation" },
    { expiration_time: new Date(), expiration_interval: 1 },
  ]) {
    // The package itself refuses these.
    const thrown = await (async () => AV.Push.send({ ...options, data }, master))()
      .then(() => false, (error) => error.message.startsWith("Both"));
    check("refused by the package", thrown);
  }
  await refused("a push with the app key", () => AV.Push.send({ data }), 119);
}

/// The records of sent pushes, as a class.
async function records(first) {
  const query = () => new AV.Query("_Notification");
  const found = await query().limit(1000).descending("createdAt").find(master);
  check("records: find", found.some((one) => one.id === first));
  check("records: latest first", found.map((one) => +one.createdAt),
    found.map((one) => +one.createdAt).sort((a, b) => b - a));
  check("records: count", await query().count(master), found.length);
  check("records: by id", (await query().equalTo("objectId", first).find(master))
    .map((one) => one.id), [first]);
  check("records: by status", await query().equalTo("status", "done").count(master),
    found.filter((one) => one.get("status") === "done").length);
  check("records: a page", (await query().descending("createdAt").skip(2).limit(3).find(master))
    .map((one) => one.id), found.slice(2, 5).map((one) => one.id));
  const one = await raw("GET", "/tables/Notifications/" + first);
  check("records: by REST", [one.objectId, one.status, one.iosSuccesses], [first, "done", 2]);
  await refused("records with the app key", () => query().find(), 119);
  await refused("a record that is none", () => query().get("nothing", master), 101);
}

// Every call of Parse's JavaScript package for installations, identities and queries (its pushes:
// parse-pushes.mjs). Its calls for other objects are refused by a code.

import { absentFields, largeNumbers, oneType } from "./fields.mjs";
import { finished, pushes, topics } from "./parse-pushes.mjs";
import {
  again, blind, install, Installation, master, Parse, phone, Query, sdk, users,
} from "./parse-sdk.mjs";
import { makeData, numbers, sharedQueries } from "./queries.mjs";
import { check, environment, main, refused, token, unique } from "./support.mjs";

async function changed(one, what, key, value, change) {
  const mine = await again(one);
  change(mine);
  await mine.save(null, master);
  check("changed here: " + what, mine.get(key), value);
  check("changed there: " + what, (await again(one)).get(key), value);
}

async function installations() {
  const born = new Date("2012-02-29T12:30:15.250Z");
  const made = phone({
    channels: ["Mets"], badge: 2, timeZone: "Europe/Oslo", localeIdentifier: "nb-NO",
    appName: "Bells", appVersion: "1.2", parseVersion: "8.6.0", GCMSenderId: "77",
    ratio: 0.25, flag: true, list: [1, "a", null], born, profile: { city: "Bergen", n: 1 },
    place: new Parse.GeoPoint(59.9, 10.75), owner: Parse.User.createWithoutData("user-1"),
  });
  made.increment("opened");
  made.addUnique("tags", "a");
  made.add("log", "made");
  check("a new one is new", [made.isNew(), made.dirty(), made.dirty("badge"), made.existed()],
    [true, true, true, false]);
  await made.save();
  check("a save gives an id and a time",
    [typeof made.id, made.createdAt instanceof Date, made.isNew(), made.dirty()],
    ["string", true, false, false]);
  const read = await again(made);
  check("read back by name", [
    read.deviceType, read.deviceToken, read.installationId, read.channels, read.badge,
    read.timeZone, read.localeIdentifier, read.appName, read.appVersion, read.parseVersion,
    read.GCMSenderId,
  ], [
    "ios", made.get("deviceToken"), made.get("installationId"), ["Mets"], 2, "Europe/Oslo",
    "nb-NO", "Bells", "1.2", "8.6.0", "77",
  ]);
  check("read back by key", ["ratio", "flag", "list", "born", "opened", "tags", "log", "profile"]
    .map((key) => read.get(key)),
  [0.25, true, [1, "a", null], born, 1, ["a"], ["made"], { city: "Bergen", n: 1 }]);
  check("read back: a place and a pointer",
    [read.get("place").latitude, read.get("owner").className, read.get("owner").id],
    [59.9, "_User", "user-1"]);
  check("has, escape, toJSON, toPointer, equals", [
    read.has("ratio"), read.has("nothing"), read.escape("timeZone"), read.toJSON().badge,
    read.toPointer(), read.equals(made),
  ], [true, false, "Europe&#x2F;Oslo", 2,
    { __type: "Pointer", className: "_Installation", objectId: made.id }, true]);

  await changed(made, "set", "mood", "x", (o) => o.set("mood", "x"));
  await changed(made, "unset", "mood", undefined, (o) => o.unset("mood"));
  await changed(made, "increment", "badge", 3, (o) => o.increment("badge"));
  await changed(made, "increment by", "badge", 13, (o) => o.increment("badge", 10));
  await changed(made, "decrement", "badge", 5, (o) => o.decrement("badge", 8));
  await changed(made, "increment by a part", "ratio", 0.75, (o) => o.increment("ratio", 0.5));
  await changed(made, "increment what is not there", "fresh", 4, (o) => o.increment("fresh", 4));
  await changed(made, "add", "channels", ["Mets", "Giants"], (o) => o.add("channels", "Giants"));
  await changed(made, "addAll", "log", ["made", "b", "b"], (o) => o.addAll("log", ["b", "b"]));
  await changed(made, "addUnique", "tags", ["a", "b"], (o) => o.addUnique("tags", "b"));
  await changed(made, "addAllUnique", "tags", ["a", "b", "c"],
    (o) => o.addAllUnique("tags", ["a", "c"]));
  await changed(made, "remove", "channels", ["Giants"], (o) => o.remove("channels", "Mets"));
  await changed(made, "removeAll", "tags", ["a"], (o) => o.removeAll("tags", ["b", "c"]));
  await changed(made, "a dotted key", "profile", { city: "Oslo", n: 1 },
    (o) => o.set("profile.city", "Oslo"));
  await changed(made, "a dotted operation", "profile", { city: "Oslo", n: 4 },
    (o) => o.increment("profile.n", 3));
  const unread = blind(made.id);
  unread.increment("badge", 1);
  unread.addUnique("channels", "Yanks");
  unread.remove("tags", "a");
  await unread.save();
  check("what operations came to, for one that was never read",
    [unread.get("badge"), unread.get("channels"), unread.get("tags")],
    [6, ["Giants", "Yanks"], []]);
  const mine = await again(made);
  mine.set("name", "never");
  check("op and dirtyKeys", [mine.op("name").toJSON(), mine.dirtyKeys()], ["never", ["name"]]);
  mine.revert();
  check("revert", mine.dirty(), false);
  const cleared = phone({ name: "cleared", flag: true });
  await cleared.save();
  cleared.clear();
  await cleared.save({ deviceType: "ios", deviceToken: token() }, master);
  const bare = await again(cleared);
  check("clear", [bare.has("name"), bare.has("flag"), bare.deviceType], [false, false, "ios"]);
  check("fromJSON and createWithoutData", [
    Parse.Object.fromJSON({ className: "_Installation", objectId: made.id }).id,
    (await Installation.createWithoutData(made.id).fetch(master)).get("badge"),
  ], [made.id, 6]);
  const fetched = blind(made.id);
  await fetched.fetch(master);
  check("fetch", [fetched.get("badge"), fetched.isDataAvailable()], [6, true]);
  check("exists", [await made.exists(master), await blind("nothing").exists(master)],
    [true, false]);
  const acl = new Parse.ACL();
  acl.setPublicReadAccess(true);
  acl.setWriteAccess("user-1", true);
  mine.setACL(acl);
  await mine.save(null, master);
  check("an ACL is kept", (await again(made)).getACL().toJSON(),
    { "*": { read: true }, "user-1": { write: true } });
  check("clone and newInstance", [made.clone().id, made.newInstance().id], [undefined, made.id]);
  const owned = phone({ owner: new Parse.User({ username: unique("ann"), city: "Oslo" }) });
  await owned.save(null, master);
  const withOwner = blind(owned.id);
  await withOwner.fetchWithInclude("owner", master);
  check("an owner that is not saved yet goes first", withOwner.get("owner").get("city"), "Oslo");
  await ownDevice();
  await refusals(made);
}

/// The installation that the package stores for its own device.
async function ownDevice() {
  Parse.CoreManager.getInstallationController()._clearCache();
  await Parse.CoreManager.getStorageController().clear();
  const own = await Installation.currentInstallation();
  own.set("channels", ["web"]);
  await own.save();
  const read = await again(own);
  check("the current installation", [read.deviceType, read.installationId, read.channels],
    ["web", own.get("installationId"), ["web"]]);
  const reinstalled = new Installation({
    deviceType: "web", installationId: own.get("installationId"), channels: ["again"],
  });
  await reinstalled.save();
  check("its id names it again", (await again(own)).channels, ["again"]);
  check("and there is one", await install().equalTo("installationId", own.installationId)
    .count(master), 1);
  await own.destroy(master);
  own.set("channels", ["anew"]);
  await own.save();
  check("one that was deleted is made anew", (await again(own)).channels, ["anew"]);
  await own.destroy(master);
  await own.fetch(master);
  check("and by a fetch", (await again(own)).channels, ["anew"]);
  await own.destroy(master);
}

async function refusals(made) {
  for (const [what, one, code] of [
    ["a channel's name", phone({ channels: ["x".repeat(257)] }), 112],
    ["channels of another type", phone({ channels: "Mets" }), 111],
    ["a badge of another type", phone({ badge: "many" }), 111],
    ["a token that is none", phone({ deviceToken: "x-y" }), 114],
    ["no deviceType", new Installation({ deviceToken: token() }), 135],
    ["neither token nor id", new Installation({ deviceType: "ios" }), 135],
  ]) await refused(what, () => one.save(null, master), code);
  await refused("another installationId",
    () => blind(made.id).save({ installationId: unique("i-") }, master), 136);
  await refused("another deviceType",
    () => blind(made.id).save({ deviceType: "android" }, master), 136);
  await refused("a delete with the client's key", () => made.destroy(), 119);
  await refused("a find with the client's key", () => install().find(), 119);
  await made.destroy(master);
  await refused("get of what is gone", () => again(made), 101);
  await refused("destroy of what is gone", () => made.destroy(master), 101);
  const user = new Parse.User();
  user.id = "nothing";
  await refused("fetch of what never was", () => user.fetch(master), 101);
}

/// Each of 30 new installations is one of its own, with the caller's key and with the master's.
async function manyNewInstallations() {
  for (const [who, options] of [["the client", {}], ["the master", master]]) {
    const made = Array.from({ length: 30 }, (_, n) => new Installation({
      deviceType: "ios", deviceToken: token(), n, of: who,
    }));
    await Parse.Object.saveAll(made, options);
    const found = await install().equalTo("of", who).ascending("n").limit(1000).find(master);
    check(`${who}: saveAll of 30 without ids`, numbers(found), made.map((_, n) => n));
    check(`${who}: their tokens`, found.map((one) => one.deviceToken),
      made.map((one) => one.get("deviceToken")));
    check(`${who}: the caller's id is not theirs`, found.filter((one) => one.has("installationId")),
      []);
    check(`${who}: the package's ids`, made.map((one) => one.id), found.map((one) => one.id));
    for (const one of found) one.increment("n", 100);
    await Parse.Object.saveAll(found, master);
    check(`${who}: saved again`, await install().equalTo("of", who)
      .greaterThanOrEqualTo("n", 100).count(master), 30);
  }
  const alone = [];
  for (let n = 0; n < 3; n += 1) {
    const one = new Installation({ deviceType: "ios", deviceToken: token(), of: "one by one" });
    await one.save();
    alone.push(one.id);
  }
  check("saves of three, one after the other", new Set(alone).size, 3);
  check("are three", await install().equalTo("of", "one by one").count(master), 3);

  const copies = (await install().equalTo("of", "the client").find(master))
    .map((one) => blind(one.id));
  await Parse.Object.fetchAll(copies, master);
  check("fetchAll", new Set(numbers(copies)).size, 30);
  await Parse.Object.fetchAllIfNeeded(copies, master);
  await Parse.Object.fetchAllWithInclude(copies, ["owner"], master);
  await Parse.Object.fetchAllIfNeededWithInclude(copies, ["owner"], master);
  check("fetchAll…IfNeeded and …WithInclude", new Set(numbers(copies)).size, 30);
  await Parse.Object.destroyAll(copies.slice(0, 25), master);
  check("destroyAll", await install().equalTo("of", "the client").count(master), 5);
  await refused("destroyAll of what is gone", async () => {
    await Parse.Object.destroyAll([copies[0], copies[26]], master).catch((error) => {
      // The package collects the errors.
      throw error.errors?.[0] ?? error;
    });
  }, 101);
  check("and the other is destroyed", await install().equalTo("of", "the client").count(master), 4);
  const list = [phone({ name: "good" }), phone({ channels: ["x".repeat(257)] }), phone({ name: "last" })];
  await refused("one of several that fails", () => Parse.Object.saveAll(list, master), 112);
  check("the others are saved", list.map((one) => one.id !== undefined), [true, false, true]);
  await refused("a transaction", () => Parse.Object.saveAll(
    [phone(), phone()], { ...master, transaction: true }).catch((errors) => {
    throw errors[0];
  }));
}

async function queries() {
  const data = await makeData(sdk);
  const { records } = data;
  const sizes = ["channels", "numbers"].flatMap((key) => [0, 1, 2, 3].map((size) => [
    `size ${key} ${size}`, (q) => sdk.size(q, key, size), (fields) => fields[key]?.length === size,
  ]));
  const [oslo, radius] = [new Parse.GeoPoint(59.91, 10.75), 500];
  const square = [[48, 2], [61, 2], [61, 11], [48, 11]].map(([a, b]) => new Parse.GeoPoint(a, b));
  await sharedQueries(sdk, data, [
    ...sizes,
    ["containedBy", (q) => q.containedBy("channels", ["Mets", "Giants"]),
      (f) => f.channels.every((each) => ["Mets", "Giants"].includes(each))],
    ["containsAllStartingWith", (q) => q.containsAllStartingWith("channels", ["Me", "Gi"]),
      (f) => f.channels.includes("Mets") && f.channels.includes("Giants")],
    ["equalTo undefined", (q) => q.equalTo("flag", undefined), (f) => f.flag === undefined],
    ["nor", () => Query.nor(install().equalTo("level", 1), install().exists("flag")),
      (f) => f.level !== 1 && f.flag === undefined],
    ["within…, not sorted", (q) => q.withinKilometers("place", oslo, radius, false),
      (f) => f.place && oslo.kilometersTo(f.place) <= radius],
    ["withinPolygon", (q) => q.withinPolygon("place", square),
      (f) => f.place && f.place.latitude >= 48 && f.place.latitude <= 61
        && f.place.longitude >= 2 && f.place.longitude <= 11],
    ["fromJSON", () => Query.fromJSON("_Installation", { where: { level: { $eq: 3 } } }),
      (f) => f.level === 3],
    ["startsWith, whatever the case", (q) => q.startsWith("label", "PLAYER 1", "i"),
      (f) => f.label.startsWith("Player 1")],
  ]);
  const all = records.map((f) => f.n);
  check("findAll", numbers(await install().findAll({ ...master, batchSize: 7 }))
    .sort((a, b) => a - b), all);
  const batches = [];
  await install().eachBatch((found) => batches.push(found.length), { ...master, batchSize: 25 });
  check("eachBatch", batches, [25, 25, 10]);
  const options = { ...master, batchSize: 20 };
  check("map", (await install().map((one) => one.get("n"), options)).sort((a, b) => a - b), all);
  check("reduce", await install().reduce((sum, one) => sum + one.get("n"), 0, options),
    all.reduce((a, b) => a + b));
  check("filter", (await install().filter((one) => one.get("n") < 3, options)).length, 3);
  const counted = await install().equalTo("level", 2).ascending("n").limit(3).withCount()
    .find(master);
  check("withCount", [numbers(counted.results), counted.count],
    [[2, 9, 16], records.filter((f) => f.level === 2).length]);
  const one = await install().exclude("label").equalTo("n", 4).first(master);
  check("exclude", [one.has("label"), one.get("n")], [false, 4]);
  const whole = await install().includeAll().equalTo("n", 3).first(master);
  check("includeAll", whole.get("owner").get("city"), "Sydney");
  const hinted = install().equalTo("n", 5).hint("n_1").comment("why").readPreference("SECONDARY");
  check("hint, comment and readPreference", numbers(await hinted.find(master)), [5]);
  const json = await install().equalTo("n", 5).find({ ...master, json: true });
  check("find as JSON", [json[0].n, json[0].objectId], [5, data.made[5].id]);
  for (const [what, call] of [
    ["a limit of 0", () => install().limit(0).find(master)],
  ]) check(what, (await call()).length, 0);
  for (const [what, call] of [
    ["distinct", () => install().distinct("level")],
    ["aggregate", () => install().aggregate([{ $group: { _id: "$level" } }])],
    ["explain", () => install().explain().find(master)],
    ["fullText", () => install().fullText("label", "x").find(master)],
    ["polygonContains", () => install().polygonContains("place", oslo).find(master)],
    ["a pattern that is none", () => install().matches("label", "(").find(master)],
    ["another class", () => new Query("Team").find(master)],
  ]) await refused(what, call);
}

async function identities() {
  const ann = new Parse.User({ username: "ann", city: "Oslo", age: 31 });
  ann.set("location", new Parse.GeoPoint(59.9, 10.7));
  await ann.save(null, master);
  const read = await users().get(ann.id, master);
  check("an identity", [read.getUsername(), read.get("city"), read.get("location").latitude],
    ["ann", "Oslo", 59.9]);
  ann.increment("age");
  ann.addUnique("teams", "Mets");
  await ann.save(null, master);
  check("and changed", [ann.get("age"), ann.get("teams")], [32, ["Mets"]]);
  const bob = new Parse.User({ username: "bob", email: "bob@example.com", city: "Bergen" });
  await Parse.Object.saveAll([bob], { ...master, batchSize: 1 });
  check("find", (await users().exists("city").ascending("username").find(master))
    .map((one) => one.getUsername()), ["ann", "bob"]);
  check("by email", (await users().equalTo("email", "bob@example.com").first(master)).id, bob.id);
  check("no session", [read.getSessionToken(), Parse.User.current()], [undefined, null]);
  await refused("a name that another has",
    () => new Parse.User({ username: "bob" }).save(null, master), 202);
  await refused("an address that another has", () => new Parse.User({
    username: "dee", email: "bob@example.com",
  }).save(null, master), 203);
  await bob.destroy(master);
  await refused("an identity that is gone", () => users().get(bob.id, master), 101);
  for (const [what, call] of [
    ["a password", () => new Parse.User({ username: "e", password: "p" }).save(null, master)],
    ["signUp", () => Parse.User.signUp("eve", "hunter2")],
    ["logIn", () => Parse.User.logIn("ann", "x")],
    ["loginAs", () => Parse.User.loginAs(ann.id)], ["me", () => Parse.User.me("token")],
    ["verifyPassword", () => Parse.User.verifyPassword("ann", "x")],
    ["requestPasswordReset", () => Parse.User.requestPasswordReset("a@example.com")],
    ["requestEmailVerification", () => Parse.User.requestEmailVerification("a@example.com")],
    ["AnonymousUtils", () => Parse.AnonymousUtils.logIn()],
    ["linkWith", () => ann.linkWith("facebook", { authData: { id: "1" } }, master)],
  ]) await refused(what, call);
  check("and none of them is there", await users().count(master), 1);
}

async function otherCalls() {
  check("getServerHealth", await Parse.getServerHealth(), { status: "ok" });
  const ann = new Parse.User({ username: "ann" });
  await ann.save(null, master);
  const one = phone();
  await one.save();
  one.relation("friends").add(ann);
  await refused("a relation", () => one.save(null, master));
  for (const [what, call] of [
    ["Cloud.run", () => Parse.Cloud.run("hello", {})],
    ["Cloud.startJob", () => Parse.Cloud.startJob("hello", {})],
    ["Cloud.getJobsData", () => Parse.Cloud.getJobsData()],
    ["Config.get", () => Parse.Config.get()],
    ["Config.save", () => Parse.Config.save({ a: 1 })],
    ["File.save", () => new Parse.File("a.txt", { base64: "aGk=" }).save(master)],
    ["Analytics.track", () => Parse.Analytics.track("opened", { a: "b" })],
    ["a role", () => new Parse.Role("Admins", new Parse.ACL()).save(null, master)],
    ["a role's query", () => new Query(Parse.Role).find(master)],
    ["a session's query", () => new Query(Parse.Session).find(master)],
    ["another class", () => new Parse.Object("Team", { a: 1 }).save(null, master)],
    ["Schema.all", () => Parse.Schema.all()],
    ["Schema.get", () => new Parse.Schema("_Installation").get()],
    ["Schema.purge", () => new Parse.Schema("_Installation").purge()],
    ["Hooks.getFunctions", () => Parse.Hooks.getFunctions()],
  ]) await refused(what, call);
  Parse.idempotency = true;
  const text = unique("idempotent ");
  const id = await Parse.Push.send({ where: install(), data: { alert: text } });
  await finished(id, "succeeded", "failed");
  Parse.idempotency = false;
  for (const [what, app, key] of [
    ["a wrong key", environment.APP_ID, "not the key"],
    ["an unknown app", unique("nobody-"), environment.APP_KEY],
  ]) {
    Parse.initialize(app, key);
    // Parse Server gives no code here.
    const error = await phone().save().then(() => undefined, (each) => each);
    check(what, [error?.message, error?.code], ["unauthorized", undefined]);
  }
}

await main({
  installations, "many new installations": manyNewInstallations, queries, identities, pushes,
  topics, "other calls": otherCalls, "large numbers": () => largeNumbers(sdk),
  "absent fields": () => absentFields(sdk), "one type": () => oneType(sdk),
});

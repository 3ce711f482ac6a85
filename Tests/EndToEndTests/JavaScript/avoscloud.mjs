// AVOSCloud's old package: every call is a POST of text/plain, with its method and its keys in the
// body.

import { check, Devices, environment, main, refused, token, unique, until, vendor } from "./support.mjs";

const AV = vendor("avoscloud-sdk");
AV._initialize(environment.APP_ID, environment.APP_KEY, environment.MASTER_KEY);
AV.serverURL = environment.REGISTRATION_URL;

/// Its promises are older than those of the language.
const settled = (promise) => new Promise((resolve, reject) => promise.then(resolve, reject));

const phone = (fields) => {
  const made = new AV.Installation();
  made.set({
    deviceType: "ios", deviceToken: token(), apnsTopic: environment.APNS_TOPIC,
    apnsEnvironment: "production", ...fields,
  });
  return made;
};
const again = (one) => settled(AV.Object.createWithoutData("_Installation", one.id).fetch());
const query = () => new AV.Query("_Installation");

async function everything() {
  const devices = new Devices();
  const born = new Date("2012-02-29T12:30:15.250Z");
  const made = phone({
    channels: ["news"], badge: 2, name: "Łódź 🔔", born, place: new AV.GeoPoint({ latitude: 59.9, longitude: 10.75 }),
  });
  devices.add("ann", made.get("deviceToken"));
  await settled(made.save());
  check("an id", typeof made.id, "string");
  let read = await again(made);
  check("read back", [read.get("channels"), read.get("badge"), read.get("name"), +read.get("born"),
    read.get("place").latitude], [["news"], 2, "Łódź 🔔", +born, 59.9]);
  made.increment("badge");
  made.addUnique("channels", "b");
  made.unset("name");
  await settled(made.save());
  read = await again(made);
  check("operations", [read.get("badge"), read.get("channels"), read.has("name")], [3, ["news", "b"], false]);
  made.set("level", 4);
  await settled(made.save());
  const droid = new AV.Installation();
  await settled(droid.save({ deviceType: "android", installationId: unique("install-") }));
  check("an Android phone", (await again(droid)).get("deviceType"), "android");
  const two = [phone({ level: 7, channels: ["news"] }), phone({ level: 7 })];
  devices.add("bob", two[0].get("deviceToken"));
  devices.add("cid", two[1].get("deviceToken"));
  await settled(AV.Object.saveAll(two));
  check("saveAll", two.map((one) => typeof one.id), ["string", "string"]);

  AV._useMasterKey = true;
  const find = async (change) => {
    const asked = query();
    change(asked);
    return (await settled(asked.ascending("level").find())).map((one) => one.get("level") ?? 0);
  };
  check("find", await find((q) => q.equalTo("level", 7).containedIn("channels", ["news", "b"])), [7]);
  check("a date", await find((q) => q.lessThan("born", new Date())), [4]);
  check("a limit as a page", await find((q) => q.exists("level").skip(1).limit(1)), [7]);
  check("near", await find((q) => q.withinKilometers("place", new AV.GeoPoint(59.9, 10.7), 10)), [4]);
  check("first", (await settled(query().equalTo("level", 4).first())).id, made.id);
  check("get", (await settled(query().get(made.id))).id, made.id);
  check("count", await settled(query().count()), 4);
  const cql = await settled(AV.Query.doCloudQuery("select * from _Installation where level = ?", [7]));
  check("CQL", cql.results.length, 2);

  const push = async (what, hearers, options) => {
    const text = `${what} ${unique("")}`;
    const { objectId } = await settled(AV.Push.send({ ...options, data: { alert: text, badge: "Increment" } }));
    await until(what, async () => {
      const record = await settled(new AV.Query("_Notification").get(objectId));
      return record.get("status") === "done" && record.get("pending") === 0 ? true : undefined;
    });
    await devices.heard(what, text, hearers);
  };
  await push("to channels", ["ann", "bob"], { channels: ["news"] });
  await push("to a query", ["bob", "cid"], { where: query().equalTo("level", 7) });
  await push("by CQL, for an hour", ["ann"],
    { cql: "select * from _Installation where level = 4", expiration_interval: 3600 });
  await push("soon", ["cid"], {
    where: query().equalTo("objectId", two[1].id), push_time: new Date(Date.now() + 1500),
    expiration_time: new Date(Date.now() + 3_600_000) });
  await devices.nothingElse();
  await settled(two[0].destroy());
  await refused("what is deleted", () => again(two[0]), 101);
  await settled(AV.Object.destroyAll([two[1], droid]));
  check("what is left", await settled(query().count()), 1);
  AV._useMasterKey = false;
  await refused("a delete with the app key", () => settled(made.destroy()), 119);
  await refused("a channel", () => settled(phone({ channels: ["a b"] }).save()), 112);
}

/// `?new=true`: the response to a save is the complete object.
async function wholeObjects() {
  const made = phone({ badge: 1 });
  made.fetchWhenSave(true);
  await settled(made.save());
  check("of a new one", made.get("valid"), true);
  made.increment("badge", 2);
  await settled(made.save());
  check("of a change", [made.get("valid"), made.get("badge")], [true, 3]);
}

await main({ "avoscloud-sdk": everything, "whole objects": wholeObjects });

// Fields as both LeanCloud and Parse store them: numbers of any size, missing fields, and one type
// for each. The packages' names for these calls are the same.

import { check, refused, token, unique } from "./support.mjs";

/// An accepted number can be read, and the object can be saved again.
export async function largeNumbers(sdk) {
  for (const number of [
    1e21, -1e21, 2 ** 53, 2 ** 63, -(2 ** 63), 2 ** 64, 1.5e300, Number.MAX_VALUE,
    Number.MIN_VALUE, -1e-7, 1e15, 123456789.125,
  ]) {
    const one = sdk.makePhone({ amount: number, nested: { list: [number, { deep: number }] } });
    try {
      await sdk.save(one);
      let read = await sdk.again(one);
      check(`${number} is read`, [read.get("amount"), read.get("nested")],
        [number, { list: [number, { deep: number }] }]);
      read.set("name", "again");
      await sdk.save(read);
      read = await sdk.again(one);
      check(`${number} is still there`, [read.get("name"), read.get("amount")], ["again", number]);
      read.increment("amount", 1);
      await sdk.save(read);
      check(`${number} and 1`, (await sdk.again(one)).get("amount"), number + 1);
      const found = sdk.installations().equalTo("nested.list", number);
      check(`${number} is found`, (await found.find(sdk.options)).map((each) => each.id), [one.id]);
      const over = sdk.installations().equalTo("objectId", one.id)
        .greaterThanOrEqualTo("amount", number);
      check(`${number} compares`, await over.count(sdk.options), 1);
    } catch (error) {
      check(`${number} is taken and can be saved again`, error.message, "");
    }
  }
  const one = sdk.makePhone({ amount: 1.5e308 });
  await sdk.save(one);
  const read = await sdk.again(one);
  read.increment("amount", 1e308);
  // A number out of range is refused, and nothing has changed.
  await refused("beyond the largest number", () => sdk.save(read));
  check("and the object is as it was", (await sdk.again(one)).get("amount"), 1.5e308);
}

/// `badge` and `channels` are fields like others: a missing one is neither 0 nor [].
export async function absentFields(sdk) {
  const bare = sdk.makePhone({ name: "bare" });
  const empty = sdk.makePhone({ name: "empty", channels: [], badge: 0 });
  const full = sdk.makePhone({ name: "full", channels: ["Mets"], badge: 3 });
  for (const one of [bare, empty, full]) await sdk.save(one);
  const finds = async (what, build, wanted) => {
    const found = await build(sdk.installations()).find(sdk.options);
    check(what, found.map((one) => one.get("name")).sort(), wanted);
  };
  for (const key of ["channels", "badge"]) {
    const zero = key === "badge" ? 0 : [];
    await finds(`${key} exists`, (q) => q.exists(key), ["empty", "full"]);
    await finds(`${key} does not exist`, (q) => q.doesNotExist(key), ["bare"]);
    await finds(`${key} is null`, (q) => q.equalTo(key, null), ["bare"]);
    await finds(`${key} is not null`, (q) => q.notEqualTo(key, null), ["empty", "full"]);
    check(`${key} is absent when it is read`, (await sdk.again(bare)).has(key), false);
    check(`${key} is read`, (await sdk.again(empty)).get(key), zero);
    await finds(`one of ${key}`, (q) => q.containedIn(key, [key === "badge" ? 0 : "Mets"]),
      [key === "badge" ? "empty" : "full"]);
  }
  await finds("badge is 0", (q) => q.equalTo("badge", 0), ["empty"]);
  await finds("badge is not 0", (q) => q.notEqualTo("badge", 0), ["bare", "full"]);
  await finds("badge is less than 1", (q) => q.lessThan("badge", 1), ["empty"]);
  if (sdk.size) {
    await finds("channels has size 0", (q) => sdk.size(q, "channels", 0), ["empty"]);
    await finds("channels has size 1", (q) => sdk.size(q, "channels", 1), ["full"]);
  }
  for (const key of ["channels", "badge"]) {
    const mine = await sdk.again(full);
    mine.unset(key);
    await sdk.save(mine);
    check(`${key} is unset here`, mine.get(key), undefined);
    check(`${key} is unset there`, (await sdk.again(full)).has(key), false);
    await finds(`${key} does not exist any more`, (q) => q.doesNotExist(key), ["bare", "full"]);
  }
  const mine = await sdk.again(full);
  mine.increment("badge", 2);
  mine.addUnique("channels", "Giants");
  await sdk.save(mine);
  const read = await sdk.again(full);
  check("what was unset counts from nothing", [read.get("badge"), read.get("channels")],
    [2, ["Giants"]]);
}

/// The first value of a custom field decides its type: another type is 111, and changes nothing.
export async function oneType(sdk) {
  const first = sdk.makePhone({
    level: 4, label: "four", flag: true, list: [1], map: { a: 1 }, born: new Date(0),
    place: new sdk.GeoPoint(1, 2), name: "first",
  });
  await sdk.save(first);
  const values = {
    number: 5, text: "five", flag: false, list: ["x"], map: { b: "x" }, born: new Date(1000),
    place: new sdk.GeoPoint(3, 4),
  };
  const types = {
    level: "number", label: "text", flag: "flag", list: "list", map: "map", born: "born",
    place: "place",
  };
  for (const [field, type] of Object.entries(types)) {
    for (const [other, value] of Object.entries(values)) {
      const fresh = sdk.makePhone({ [field]: value });
      const mine = await sdk.again(first);
      mine.set("name", "changed");
      mine.set(field, value);
      if (other === type) {
        await sdk.save(fresh);
        await sdk.save(mine);
        continue;
      }
      await refused(`a new one whose ${field} is of ${other}`, () => sdk.save(fresh), 111);
      await refused(`${field} of ${other}`, () => sdk.save(mine), 111);
    }
  }
  const read = await sdk.again(first);
  check("and each keeps its type", [
    read.get("level"), read.get("label"), read.get("flag"), read.get("list"), read.get("map"),
    +read.get("born"), read.get("place").latitude,
  ], [5, "five", false, ["x"], { b: "x" }, 1000, 3]);
  for (const [what, change] of [
    ["increment of a text", (one) => one.increment("label")],
    ["increment of a list", (one) => one.increment("list")],
    ["add to a number", (one) => one.add("level", 1)],
    ["addUnique to a text", (one) => one.addUnique("label", "x")],
    ["remove from a map", (one) => one.remove("map", "x")],
  ]) {
    // The package would refuse fields that it knows: it does not know these.
    const blind = sdk.blind(first.id);
    change(blind);
    await refused(what, () => sdk.save(blind), 111);
    const fresh = sdk.makePhone();
    change(fresh);
    await refused(what + ", on a new one", () => sdk.save(fresh), 111);
  }
  const mine = await sdk.again(first);
  mine.unset("level");
  await sdk.save(mine);
  mine.set("level", "six");
  await refused("another type for what was unset", () => sdk.save(mine), 111);
  // Text among numbers would silently be outside of every range.
  const inRange = await sdk.installations().greaterThan("level", 0).count(sdk.options);
  check("ranges hold all that have it", inRange, 1);
  const user = sdk.makeUser({ username: unique("ann"), level: 1, deviceToken: token() });
  await sdk.save(user);
  await refused("a user's field", () => sdk.save(sdk.makeUser({
    username: unique("bob"), level: "one",
  })), 111);
}

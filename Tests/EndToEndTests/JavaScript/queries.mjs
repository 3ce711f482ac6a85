// Queries by every operator of LeanCloud's and Parse's packages, whose names are the same. The
// expected results are computed here, by plain JavaScript over the same data.

import { check } from "./support.mjs";

const CITIES = [
  ["Oslo", 59.91, 10.75], ["Bergen", 60.39, 5.32], ["Paris", 48.86, 2.35],
  ["Sydney", -33.87, 151.21], ["Suva", -18.14, 178.44],
];
const START = Date.UTC(2020, 0, 1);
const DAY = 86_400_000;
const COUNT = 60;
const TEXTS = [
  "a.b*c", "A.B*C", "line one\nline two", "(\\Q)", "^start$", "ÆØÅ æøå", "100% _sure_", "a\\Eb",
];

/// The fields of one installation; some are missing. A field has one type in all objects.
function record(number, sdk, users) {
  const [city, latitude, longitude] = CITIES[number % 5];
  const fields = {
    n: number, label: "Player " + String(number).padStart(2, "0"), level: number % 7,
    channels: [["Mets", 2], ["Giants", 3], ["Yanks-9", 5]]
      .filter(([, each]) => number % each === 0).map(([name]) => name),
    profile: { city, stats: { wins: number % 4 } },
  };
  if (number % 5 !== 2) fields.score = number / 4;
  if (number % 3 !== 0) fields.flag = number % 2 === 0;
  if (number % 5 !== 0) {
    fields.numbers = [number % 3, number % 4, number % 6].slice(0, number % 4);
    fields.born = new Date(START + number * DAY + number);
  }
  if (number % 6 !== 0) {
    fields.place = new sdk.GeoPoint(latitude + number / 100, longitude + number / 100);
  }
  if (number % 4 !== 1) fields.owner = users[number % 5];
  if (number % 7 === 0) fields.text = TEXTS[(number / 7) % TEXTS.length];
  return fields;
}

async function makeUsers(sdk) {
  const users = CITIES.map(([city, latitude, longitude], number) => sdk.makeUser({
    username: "user" + number, city, team: "t" + (number % 2),
    location: new sdk.GeoPoint(latitude, longitude), ...(number < 4 && { age: 20 + 10 * number }),
  }));
  await sdk.saveAll(users);
  return users;
}

/// Saves 60 installations and five identities, the data of every case.
export async function makeData(sdk) {
  const users = await makeUsers(sdk);
  const records = Array.from({ length: COUNT }, (_, number) => record(number, sdk, users));
  const made = records.map((fields) => sdk.makePhone(fields));
  await sdk.saveAll(made);
  return { users, records, made };
}

const value = (fields, path) =>
  path.split(".").reduce((held, part) => (held === undefined ? undefined : held[part]), fields);

function same(left, right) {
  if (left instanceof Date) return right instanceof Date && +left === +right;
  if (left?.id !== undefined) return left.id === right?.id;
  if (typeof left === "object" && left !== null) {
    return JSON.stringify(left) === JSON.stringify(right);
  }
  return left === right;
}

/// On an array, a test is true for any element or for the array itself.
const some = (test) => (held) =>
  held !== undefined && (test(held) || (Array.isArray(held) && held.some(test)));
const equals = (wanted) => some((each) => same(each, wanted));
const compares = (test, wanted) =>
  some((each) => each?.constructor === wanted.constructor && test(each, wanted));
const denied = (test) => (held) => !test(held);

function fieldCases(sdk, users) {
  const cases = [];
  const add = (title, key, build, test) =>
    cases.push([title, build, (fields) => test(value(fields, key))]);
  const pointOf = (number) =>
    new sdk.GeoPoint(CITIES[number % 5][1] + number / 100, CITIES[number % 5][2] + number / 100);
  for (const [key, wanted] of [
    ["label", "Player 07"], ["level", 3], ["score", 1.25], ["score", 4], ["flag", true],
    ["flag", false], ["born", new Date(START + 8 * DAY + 8)], ["owner", users[2]],
    ["profile.city", "Paris"], ["profile.stats.wins", 2], ["numbers", 2], ["channels", "Mets"],
    ["place", pointOf(1)], ["text", "a.b*c"], ["label", "Player"], ["level", "3"],
  ]) {
    add(`equalTo ${key} ${wanted}`, key, (q) => q.equalTo(key, wanted), equals(wanted));
    add(`notEqualTo ${key} ${wanted}`, key, (q) => q.notEqualTo(key, wanted),
      denied(equals(wanted)));
  }
  const whole = { city: "Oslo", stats: { wins: 1 } };
  add("equalTo an object", "profile", (q) => q.equalTo("profile", whole), equals(whole));
  for (const [name, test] of [
    ["lessThan", (a, b) => a < b], ["lessThanOrEqualTo", (a, b) => a <= b],
    ["greaterThan", (a, b) => a > b], ["greaterThanOrEqualTo", (a, b) => a >= b],
  ]) {
    for (const [key, wanted] of [
      ["level", 3], ["score", 2.5], ["label", "Player 20"], ["numbers", 2],
      ["born", new Date(START + 17 * DAY + 17)], ["profile.stats.wins", 2], ["label", 3],
    ]) {
      add(`${name} ${key}`, key, (q) => q[name](key, wanted), compares(test, wanted));
    }
  }
  for (const [key, wanted] of [
    ["level", [1, 5, 99]], ["label", ["Player 01", "Player 33"]], ["level", []],
    ["channels", ["Giants", "Yanks-9"]], ["owner", [users[0], users[3]]], ["numbers", [3, 5]],
    ["profile.city", ["Oslo", "Suva"]], ["born", [new Date(START + 3 * DAY + 3)]],
  ]) {
    const hit = (held) => wanted.some((each) => equals(each)(held));
    add(`containedIn ${key} ${wanted.length}`, key, (q) => q.containedIn(key, wanted), hit);
    add(`notContainedIn ${key} ${wanted.length}`, key, (q) => q.notContainedIn(key, wanted),
      denied(hit));
  }
  for (const [key, wanted] of [
    ["channels", ["Mets", "Giants"]], ["numbers", [1, 2]], ["numbers", [0]],
    ["label", ["Player 03"]],
  ]) {
    add(`containsAll ${key}`, key, (q) => q.containsAll(key, wanted),
      (held) => wanted.every((each) => equals(each)(held)));
  }
  for (const key of ["flag", "numbers", "profile.city", "profile.absent", "absent", "owner"]) {
    add(`exists ${key}`, key, (q) => q.exists(key), (held) => held !== undefined);
    add(`doesNotExist ${key}`, key, (q) => q.doesNotExist(key), (held) => held === undefined);
    add(`equalTo ${key} null`, key, (q) => q.equalTo(key, null), (held) => held === undefined);
    add(`notEqualTo ${key} null`, key, (q) => q.notEqualTo(key, null),
      (held) => held !== undefined);
  }
  const matches = (pattern) => some((each) => typeof each === "string" && pattern.test(each));
  for (const [key, pattern] of [
    ["label", /^Player [0-2]\d$/], ["label", /PLAYER 1/], ["label", /player 1/i],
    ["text", /^line two$/], ["text", /^line two$/m], ["text", /^LINE TWO$/im],
    ["text", /a\.b\*c/], ["text", /[ÆØÅ]/], ["channels", /^Yanks-/], ["label", /1|2/],
    ["text", /%|_/], ["level", /1/],
  ]) {
    add(`matches ${key} ${pattern}`, key, (q) => q.matches(key, pattern), matches(pattern));
  }
  add("matches, by a modifier", "label", (q) => q.matches("label", "PLAYER 1", "i"),
    matches(/player 1/i));
  for (const [key, text] of [
    ["label", "er 1"], ["text", "b*"], ["text", "\\E"], ["text", "(\\Q)"], ["text", "^start$"],
    ["text", "100%"], ["text", "å"],
  ]) {
    const held = (test) => some((each) => typeof each === "string" && test(each));
    add(`contains ${text}`, key, (q) => q.contains(key, text), held((each) => each.includes(text)));
    add(`startsWith ${text}`, key, (q) => q.startsWith(key, text),
      held((each) => each.startsWith(text)));
    add(`endsWith ${text}`, key, (q) => q.endsWith(key, text), held((each) => each.endsWith(text)));
  }
  add("several at once", "level",
    (q) => q.greaterThan("level", 1).lessThan("level", 5).notEqualTo("level", 3),
    (held) => held > 1 && held < 5 && held !== 3);
  return cases;
}

/// Cases over several fields, and over the results of other queries.
function queryCases(sdk, users) {
  const installations = () => sdk.installations();
  const people = () => sdk.users();
  const owner = (fields) => users.indexOf(fields.owner);
  const or = sdk.Query.or(
    installations().equalTo("level", 1), installations().equalTo("channels", "Giants"));
  return [
    ["or", or, (f) => f.level === 1 || f.channels.includes("Giants")],
    ["or of three, and more", sdk.Query.or(
      installations().equalTo("level", 1), installations().exists("text"),
      installations().lessThan("n", 3)).equalTo("channels", "Mets"),
    (f) => (f.level === 1 || f.text !== undefined || f.n < 3) && f.channels.includes("Mets")],
    ["and of or", sdk.Query.and(
      sdk.Query.or(installations().equalTo("level", 1), installations().equalTo("level", 2)),
      installations().equalTo("channels", "Mets")),
    (f) => [1, 2].includes(f.level) && f.channels.includes("Mets")],
    ["matchesQuery", installations().matchesQuery("owner", people().equalTo("city", "Oslo")),
      (f) => owner(f) === 0],
    ["doesNotMatchQuery",
      installations().doesNotMatchQuery("owner", people().equalTo("city", "Oslo")),
      (f) => owner(f) !== 0],
    ["matchesQuery with order and limit", installations().matchesQuery(
      "owner", people().exists("age").descending("age").limit(2)),
    (f) => [2, 3].includes(owner(f))],
    ["matchesQuery with skip", installations().matchesQuery(
      "owner", people().exists("age").ascending("age").skip(1).limit(2)),
    (f) => [1, 2].includes(owner(f))],
    ["matchesQuery by a place", installations().matchesQuery(
      "owner", people().near("location", new sdk.GeoPoint(60, 8)).limit(2)),
    (f) => [0, 1].includes(owner(f))],
    ["matchesKeyInQuery", installations().matchesKeyInQuery(
      "profile.city", "city", people().equalTo("team", "t1")),
    (f) => ["Bergen", "Sydney"].includes(f.profile.city)],
    ["doesNotMatchKeyInQuery", installations().doesNotMatchKeyInQuery(
      "profile.city", "city", people().equalTo("team", "t1")),
    (f) => !["Bergen", "Sydney"].includes(f.profile.city)],
    ["withinGeoBox", installations().withinGeoBox(
      "place", new sdk.GeoPoint(48, 2), new sdk.GeoPoint(61, 11)),
    (f) => f.place && f.place.latitude >= 48 && f.place.latitude <= 61
      && f.place.longitude >= 2 && f.place.longitude <= 11],
    ["createdAt", installations().greaterThan("createdAt", new Date(START)), () => true],
    ["updatedAt", installations().lessThan("updatedAt", new Date(START)), () => false],
    ["a long one, which goes as a batch", installations().containedIn(
      "label", Array.from({ length: 300 }, (_, n) => "Player " + (n + 30))), (f) => f.n >= 30],
  ];
}

export const numbers = (found) => found.map((one) => one.get("n"));
const sorted = (found) => numbers(found).sort((a, b) => a - b);

async function selects(sdk, title, query, wanted) {
  try {
    check(title, sorted(await query.limit(1000).find(sdk.options)), wanted);
    check("count: " + title, await query.count(sdk.options), wanted.length);
  } catch (error) {
    check(title, error.message, wanted);
  }
}

/// Every operator that both packages have.
export async function sharedQueries(sdk, { users, records, made }, more = []) {
  const wanted = (holds) => records.filter(holds).map((fields) => fields.n);
  for (const [title, build, holds] of [...fieldCases(sdk, users), ...more]) {
    await selects(sdk, title, build(sdk.installations()), wanted(holds));
  }
  for (const [title, query, holds] of queryCases(sdk, users)) {
    await selects(sdk, title, query, wanted(holds));
  }
  await nearest(sdk, records);
  await shapes(sdk, records, made);
}

async function nearest(sdk, records) {
  const oslo = new sdk.GeoPoint(59.91, 10.75);
  const distance = (fields) => oslo.radiansTo(fields.place);
  const within = (limit) => records.filter((f) => f.place && distance(f) <= limit)
    .sort((a, b) => distance(a) - distance(b)).map((f) => f.n);
  for (const [title, query, wanted] of [
    ["near", sdk.installations().near("place", oslo), within(Math.PI)],
    ["withinRadians", sdk.installations().withinRadians("place", oslo, 0.06), within(0.06)],
    ["withinMiles", sdk.installations().withinMiles("place", oslo, 250), within(250 / 3958.8)],
    ["withinKilometers", sdk.installations().withinKilometers("place", oslo, 500),
      within(500 / 6371)],
  ]) {
    check(title + " is more than nothing", wanted.length > 0);
    check(title + ", nearest first", numbers(await query.limit(1000).find(sdk.options)), wanted);
  }
}

/// Order, pages, keys and single objects.
async function shapes(sdk, records, made) {
  const { options } = sdk;
  const find = async (build) => numbers(await build(sdk.installations()).find(options));
  const all = records.map((fields) => fields.n);
  const by = (...keys) => [...records].sort((a, b) => {
    const key = keys.find((each) => each(a) !== each(b));
    return key === undefined ? 0 : key(a) < key(b) ? -1 : 1;
  }).map((f) => f.n);
  check("ascending", await find((q) => q.ascending("n")), all);
  check("descending", await find((q) => q.descending("label")), [...all].reverse());
  check("addDescending", await find((q) => q.ascending("level").addDescending("n")),
    by((f) => f.level, (f) => -f.n));
  check("addAscending", await find((q) => q.descending("level").addAscending("n")),
    by((f) => -f.level, (f) => f.n));
  for (const at of [0, 25, 50, 100]) {
    check("page " + at, await find((q) => q.ascending("n").skip(at).limit(25)),
      all.slice(at, at + 25));
  }
  const first = await sdk.installations().equalTo("channels", "Giants").descending("n")
    .first(options);
  check("first", first.get("n"), 57);
  check("first of nothing", await sdk.installations().equalTo("n", -1).first(options), undefined);
  check("get", (await sdk.installations().get(made[11].id, options)).get("label"), "Player 11");
  const some = await sdk.installations().select("label", "level").equalTo("n", 4).first(options);
  check("select", [some.get("label"), some.get("level"), some.has("n"), some.has("channels")],
    ["Player 04", 4, false, false]);
  check("select: id and times are always there",
    [typeof some.id, some.createdAt instanceof Date], ["string", true]);
  const whole = await sdk.installations().include("owner").equalTo("n", 3).first(options);
  check("include", [whole.get("owner").get("city"), whole.get("n")], ["Sydney", 3]);
  const seen = [];
  await sdk.installations().lessThan("n", 30).each((one) => seen.push(one.get("n")),
    { ...options, batchSize: 7 });
  check("each", seen.sort((a, b) => a - b), all.slice(0, 30));
}

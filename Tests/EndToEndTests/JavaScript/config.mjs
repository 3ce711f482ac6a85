// Remote Config by Firebase's packages for JavaScript: the Admin SDK and the SDK for web pages.

import { check, environment, main, until, vendor } from "./support.mjs";

const base = environment.CONFIG_URL;

async function fails(what, code, call) {
  let got = "nothing";
  try {
    await call();
  } catch (error) {
    got = error.code;
  }
  check(what, got, "remote-config/" + code);
}

function open(token) {
  process.env.FIREBASE_REMOTE_CONFIG_URL_BASE = base;
  const { initializeApp } = vendor("firebase-admin", "firebase-admin/app");
  const { getRemoteConfig } = vendor("firebase-admin", "firebase-admin/remote-config");
  const credential = { getAccessToken: async () => ({ access_token: token, expires_in: 3600 }) };
  const name = "app of " + token;
  return getRemoteConfig(initializeApp({ projectId: environment.PROJECT, credential }, name));
}

async function manage() {
  const config = open(environment.TOKEN);
  const empty = await config.getTemplate();
  check("nothing is published", [empty.version.versionNumber, empty.conditions, empty.parameters],
    ["0", [], {}]);
  empty.conditions.push({ name: "ios", expression: "device.os == 'ios'", tagColor: "BLUE" });
  empty.conditions.push({ name: "pro", expression: "app.customSignal['plan'].exactlyMatches(['pro'])" });
  Object.assign(empty.parameters, {
    welcome: {
      defaultValue: { value: "hello žluť 🐎" }, valueType: "STRING", description: "a welcome",
      conditionalValues: { ios: { value: "hi" }, pro: { value: "welcome back" } },
    },
    number: { defaultValue: { value: "5" }, valueType: "NUMBER" },
    flag: { defaultValue: { value: "TRUE" }, valueType: "BOOLEAN" },
    json: { defaultValue: { value: '{"a":[1]}' }, valueType: "JSON" },
    inApp: { defaultValue: { useInAppDefault: true } }, bare: {},
  });
  empty.parameterGroups["a group"] = {
    description: "of one", parameters: { grouped: { defaultValue: { value: "1" } } } };
  empty.version = { description: "the first" };
  const validated = await config.validateTemplate(empty);
  // The package removes the suffix again.
  check("validating: its ETag", validated.etag, empty.etag);
  check("validating stores nothing", (await config.getTemplate()).version.versionNumber, "0");
  const first = await config.publishTemplate(empty);
  check("its version", [first.version.versionNumber, first.version.updateType,
    first.version.updateOrigin, first.version.description, first.version.updateUser.email],
  ["1", "INCREMENTAL_UPDATE", "REST_API", "the first", "ci@" + environment.PROJECT]);
  check("its time", Math.abs(new Date(first.version.updateTime) - Date.now()) < 120_000);
  check("conditions", first.conditions, empty.conditions);
  check("a parameter", first.parameters.welcome, empty.parameters.welcome);
  check("types that were not sent", [first.parameters.inApp.valueType, first.parameters.bare.valueType],
    ["STRING", "STRING"]);
  check("a group", first.parameterGroups["a group"].parameters.grouped.defaultValue, { value: "1" });
  check("read again", (await config.getTemplate()).toJSON(), first.toJSON());
  const read = config.createTemplateFromJSON(JSON.stringify(first));
  await fails("an old ETag", "failed-precondition", () => config.publishTemplate(empty));
  check("by force", (await config.publishTemplate(empty, { force: true })).version.updateType,
    "FORCED_UPDATE");
  read.conditions[0].expression = "device.colour == 'green'";
  await fails("an expression", "invalid-argument", () => config.validateTemplate(read));
  check("an old version", (await config.getTemplateAtVersion(1)).version.versionNumber, "1");
  check("the same by a text", (await config.getTemplateAtVersion("1")).version.versionNumber, "1");
  const rolled = await config.rollback(1);
  check("a rollback", [rolled.version.versionNumber, rolled.version.updateType, rolled.version.rollbackSource],
    ["3", "ROLLBACK", "1"]);
  check("a rollback by a text", (await config.rollback("2")).version.versionNumber, "4");
  const numbers = ({ versions }) => versions.map((version) => version.versionNumber);
  check("versions", numbers(await config.listVersions()), ["4", "3", "2", "1"]);
  const page = await config.listVersions({ pageSize: 2, endVersionNumber: 3 });
  check("a page", numbers(page), ["3", "2"]);
  check("the next", numbers(await config.listVersions(
    { pageSize: 2, endVersionNumber: "3", pageToken: page.nextPageToken })), ["1"]);
  const hour = 3_600_000;
  check("of a time", numbers(await config.listVersions(
    { startTime: new Date(Date.now() - hour), endTime: new Date(Date.now() + hour).toUTCString() })).length, 4);
  check("of another", (await config.listVersions({ startTime: new Date(Date.now() + hour) })).versions ?? [], []);
  await fails("a version that is not there", "not-found", () => config.getTemplateAtVersion(99));
  await fails("a rollback to the current one", "invalid-argument", () => config.rollback(4));
  await fails("an unknown token", "unauthenticated", () => open("nobody").getTemplate());
}

async function server() {
  const config = open(environment.TOKEN);
  const template = await config.getServerTemplate({ defaultConfig: { greeting: "none", absent: 7 } });
  const plain = template.evaluate();
  check("defaults", [plain.getNumber("limit"), plain.getString("greeting"), plain.getNumber("absent")],
    [10, "hello", 7]);
  const gold = template.evaluate({ tier: "gold", randomizationId: "one" });
  check("a custom signal", [gold.getNumber("limit"), gold.getBoolean("everybody")], [100, true]);
  const vip = template.evaluate({ tier: "vip", randomizationId: "one" });
  check("an expression", vip.getNumber("limit"), 200);
  const again = config.initServerTemplate({ template: JSON.stringify(template) });
  check("stored and read again", again.evaluate({ tier: "gold" }).getNumber("limit"), 100);
  await template.load();
}

/// The SDK for web pages, in a stub of the parts of a page that it uses; Google's installations
/// service is replaced.
async function page() {
  Object.assign(globalThis, {
    window: globalThis, self: globalThis, navigator: { onLine: true, language: "de-CH" },
  });
  globalThis.FIREBASE_REMOTE_CONFIG_URL_BASE = base;
  vendor("fake-indexeddb", "fake-indexeddb/auto");
  const send = globalThis.fetch;
  const requests = [];
  globalThis.fetch = async (address, options) => {
    if (String(address.url ?? address).includes("firebaseinstallations")) {
      return new Response(JSON.stringify({
        name: "x", fid: "cFIDfidfidfidfidfidfid", refreshToken: "r",
        authToken: { token: "a.b.c", expiresIn: "604800s" },
      }), { status: 200, headers: { "content-type": "application/json" } });
    }
    requests.push(String(address.url ?? address));
    return send(address, options);
  };
  const { initializeApp } = vendor("firebase", "firebase/app");
  const {
    fetchAndActivate, getAll, getRemoteConfig, onConfigUpdate, setCustomSignals,
  } = vendor("firebase", "firebase/remote-config");
  const admin = open(environment.TOKEN);
  const openPage = (apiKey, name) => {
    const config = getRemoteConfig(initializeApp({
      apiKey, projectId: environment.PROJECT, appId: "1:123456789012:web:0a1b2c3d4e5f6073",
    }, name));
    config.settings.minimumFetchIntervalMillis = 0;
    return config;
  };
  const publish = async (welcome) => {
    const template = admin.createTemplateFromJSON(JSON.stringify({
      etag: "etag-0-0",
      conditions: [{ name: "pro", expression: "app.customSignal['plan'].exactlyMatches(['pro'])" }],
      parameters: { welcome: {
        defaultValue: { value: "hello" }, conditionalValues: { pro: { value: welcome } } } },
    }));
    return (await admin.publishTemplate(template, { force: true })).version.versionNumber;
  };
  const number = await publish("hi");

  const config = openPage(environment.API_KEY, "page");
  check("fetched and activated", await fetchAndActivate(config), true);
  check("a value", getAll(config).welcome.asString(), "hello");
  check("the same again is no change", await fetchAndActivate(config), false);
  // It treats a fetch of the same millisecond as fresh.
  await new Promise((resume) => setTimeout(resume, 5));
  await setCustomSignals(config, { plan: "pro", n: 5 });
  check("with signals", await fetchAndActivate(config), true);
  check("the signal's value", getAll(config).welcome.asString(), "hi");

  const updates = [];
  const stop = onConfigUpdate(config, {
    next: (update) => updates.push([...update.getUpdatedKeys()]),
    error: (error) => updates.push(error.code), complete: () => {},
  });
  await until("the stream is open", async () =>
    requests.some((address) => address.includes("streamFetchInvalidations")) ? true : undefined);
  check("the next version", await publish("welcome back"), String(Number(number) + 1));
  await until("it is told", async () => updates.length ? true : undefined);
  check("what is told", updates, [["welcome"]]);
  stop();
  check("and it has fetched that", await fetchAndActivate(config), true);
  check("its value", getAll(config).welcome.asString(), "welcome back");
  await fails("an unknown key", "fetch-status", async () => {
    try {
      await fetchAndActivate(openPage("nobody", "another"));
    } catch (error) {
      error.code = error.code.replace("remoteconfig/", "remote-config/");
      throw error;
    }
  });
}

await main({ manage, server, page });

// Segment's, RudderStack's and CloudEvents' packages, unchanged except for their address. A line
// "sent TYPE ID" is an object that must be stored once.

import { randomUUID } from "node:crypto";
import { check, environment, main, vendor } from "./support.mjs";

const url = environment.INGEST_URL;
const sent = (type, id) => console.log("sent", type, id);
const objectID = () => randomUUID().replaceAll("-", "").slice(0, 24);

async function segment() {
  const { Analytics } = vendor("@segment/analytics-node");
  const analytics = new Analytics({ writeKey: environment.APP_KEY, host: url });
  const failures = [];
  analytics.on("error", (error) => failures.push(error));
  const userId = "user-" + randomUUID();
  let done = 0;
  const told = (call, type, options) => {
    // Its own ids are "node-next-…" and not UUIDs; those of this test are.
    const messageId = randomUUID();
    analytics[call]({ ...options, messageId }, (error, context) => {
      done += 1;
      check(call + ": its fault", error, undefined);
      check(call + ": its id", context.event.messageId, messageId);
    });
    sent("Segment" + type, messageId);
  };
  for (let number = 0; number < 300; number += 1) {
    told("track", "Track", { userId, event: "Reading é🔔", properties: { number, value: 66.7 } });
  }
  told("identify", "Identify", { userId, traits: { email: "ann@example.com" } });
  told("group", "Group", { userId, groupId: "a-group", traits: {} });
  told("page", "Page", { userId, category: "Shop", name: "Start" });
  told("screen", "Screen", { anonymousId: "nobody", name: "Start" });
  told("alias", "Alias", { userId, previousId: "an-old-name" });
  for (let number = 0; number < 20; number += 1) {
    analytics.track({ userId, event: "With an id of its own" });
    sent("SegmentTrack", "*");
  }
  await analytics.closeAndFlush();
  check("failures", failures, []);
  check("calls that came back", done, 305);
}

async function rudder() {
  const RudderAnalytics = vendor("@rudderstack/rudder-sdk-node");
  const failures = [];
  for (const gzip of [true, false]) {
    const analytics = new RudderAnalytics(environment.APP_KEY, {
      dataPlaneUrl: url, gzip, flushAt: 50, errorHandler: (error) => failures.push(error),
    });
    const userId = "user-" + randomUUID();
    const told = (call, type, message) => new Promise((resolve) => {
      const messageId = randomUUID();
      sent("Segment" + type, messageId);
      analytics[call]({ ...message, messageId }, (error) => {
        check(`${call}, gzip ${gzip}: its fault`, error ?? undefined, undefined);
        resolve();
      });
    });
    const calls = [];
    for (let number = 0; number < 120; number += 1) {
      calls.push(told("track", "Track", {
        userId, event: "Reading é🔔", properties: { number, value: 66.7 }, timestamp: new Date(),
        context: { ip: "192.0.2.1" }, integrations: { All: true },
      }));
    }
    calls.push(
      told("identify", "Identify", { userId, traits: { email: "ann@example.com" } }),
      told("group", "Group", { userId, groupId: "a-group", traits: {} }),
      told("page", "Page", { userId, category: "Shop", name: "Start" }),
      told("screen", "Screen", { anonymousId: "nobody", name: "Start" }),
      told("alias", "Alias", { userId, previousId: "an-old-name" }),
    );
    await analytics.flush();
    await Promise.all(calls);
  }
  check("failures", failures, []);
}

/// The package for web pages, in a stub of the parts of a page that it uses.
async function analyticsNext() {
  const page = new URL("https://shop.example.com/start?utm_source=mail");
  const nothing = () => {};
  const store = new Map();
  const storage = {
    getItem: (key) => store.get(key) ?? null, setItem: (key, value) => store.set(key, value),
    removeItem: (key) => store.delete(key),
  };
  const document = {
    cookie: "", referrer: "", title: "Shop", readyState: "complete", currentScript: null,
    addEventListener: nothing, removeEventListener: nothing, querySelector: () => null,
    querySelectorAll: () => [], getElementsByTagName: () => [], documentElement: {}, body: {},
  };
  Object.assign(globalThis, {
    window: globalThis, document, location: page, localStorage: storage, sessionStorage: storage,
    addEventListener: nothing, removeEventListener: nothing,
    navigator: { onLine: true, userAgent: "Test", language: "de-CH" },
  });
  const { AnalyticsBrowser } = vendor("@segment/analytics-next");
  const { host } = new URL(url);
  for (const delivery of ["standard", "batching"]) {
    const analytics = new AnalyticsBrowser();
    const failures = [];
    analytics.on("delivery_failure", (context) => failures.push(context.failedDelivery()));
    analytics.load({
      writeKey: environment.APP_KEY,
      cdnSettings: { integrations: { "Segment.io": {
        apiKey: environment.APP_KEY, apiHost: host + "/v1", protocol: "http",
      } } },
    }, {
      disableClientPersistence: true,
      integrations: { "Segment.io": {
        protocol: "http", deliveryStrategy: { strategy: delivery, config: { size: 3, timeout: 100 } },
      } },
    });
    const told = async (type, call) => {
      // Its ids begin with "ajs-next-".
      const context = await call();
      check(`${delivery}, ${type}: its id`, typeof context.event.messageId, "string");
      sent("Segment" + type, "*");
    };
    for (let number = 0; number < 7; number += 1) {
      await told("Track", () => analytics.track("Reading", { number, text: "ž 🐎" }));
    }
    await told("Identify", () => analytics.identify("ann-" + delivery, { plan: "pro" }));
    await told("Page", () => analytics.page("Shop", "Start", { p: 1 }));
    await told("Screen", () => analytics.screen("Start"));
    await told("Group", () => analytics.group("a-group", { name: "Bells" }));
    await told("Alias", () => analytics.alias("ann-" + delivery, "an-old-name"));
    await new Promise((resume) => setTimeout(resume, 500));
    check(delivery + ": failures", failures, []);
  }
}

async function cloudevents() {
  const { CloudEvent, HTTP, Mode, emitterFor, httpTransport } = vendor("cloudevents");
  const reading = { deviceId: "WX1278UIT", temperatureInFahrenheit: 66.7, windSpeedInMph: 2 };
  const event = (more) => new CloudEvent({
    type: "WeatherSensor", source: "/sensors/1278", id: objectID(), data: reading, ...more });
  const address = new URL(url + "/events");
  address.username = environment.APP_KEY;
  const emitters = {
    binary: emitterFor(httpTransport(address.href)),
    structured: emitterFor(httpTransport(address.href), { binding: HTTP, mode: Mode.STRUCTURED }),
  };
  for (const [name, emit] of Object.entries(emitters)) {
    for (let number = 0; number < 20; number += 1) {
      const one = event({ subject: "café", number });
      // It resolves for every status: a successful response of ours has no body.
      check(name, (await emit(one)).body, "");
      check(name + " again", (await emit(one)).body, "");
      sent("WeatherSensor", one.id);
    }
    const refused = JSON.parse((await emit(event({ data: { deviceId: 7 } }))).body).refused;
    check(name + ": what is refused", refused.map((one) => one.pointer), ["/deviceId"]);
    const one = event({ id: "reading " + name });
    for (let time = 0; time < 3; time += 1) check(name + ": its own id", (await emit(one)).body, "");
    sent("WeatherSensor", "*");
  }
  // In structured mode the package encodes bytes.
  const bytes = event({ data: new Uint8Array(Buffer.from(JSON.stringify(reading))) });
  check("bytes", (await emitters.structured(bytes)).body, "");
  sent("WeatherSensor", bytes.id);

  const headers = { Authorization: "Basic " + btoa(environment.APP_KEY + ":") };
  const post = async (message) => {
    const answer = await fetch(url + "/events", {
      method: "POST", headers: { ...message.headers, ...headers }, body: message.body });
    return [answer.status, await answer.text()];
  };
  const many = Array.from({ length: 100 }, () => event());
  const batch = {
    headers: { "content-type": "application/cloudevents-batch+json" },
    body: "[" + many.map((one) => HTTP.structured(one).body).join() + "]" };
  for (let time = 0; time < 2; time += 1) check("a batch", await post(batch), [204, ""]);
  for (const one of many) sent("WeatherSensor", one.id);
  check("a bare text", (await post(HTTP.binary(event({ data: "plain text" }))))[0], 400);
  check("an unknown type", (await post(HTTP.structured(event({ type: "Nobody.Declared" }))))[0], 404);
}

await main({
  "@segment/analytics-node": segment, "@segment/analytics-next": analyticsNext,
  "@rudderstack/rudder-sdk-node": rudder, cloudevents,
});

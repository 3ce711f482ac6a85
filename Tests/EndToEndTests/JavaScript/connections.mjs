// Clients that hold a connection of their own: our protocols by plain WebSockets and streams, and
// LeanCloud's packages with nothing changed but their server.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { check, environment, main, unique, until, vendor } from "./support.mjs";

const registration = environment.REGISTRATION_URL;
const nodes = environment.CONNECTION_URLS.split(",");
const app = environment.APP_ID;
const clientHeaders = {
  "Content-Type": "application/json", "X-LC-Id": app, "X-LC-Key": environment.APP_KEY,
};
const masterHeaders = { ...clientHeaders, "X-LC-Key": environment.MASTER_KEY + ",master" };
const WebSocket = vendor("ws");

async function call(method, path, body, headers = masterHeaders) {
  const response = await fetch(registration + path, {
    method, headers, body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${JSON.stringify(answer)}`);
  return answer;
}

async function register(channels, fields = {}) {
  const installation = unique("");
  const body = { deviceType: "web", installationId: installation, channels, ...fields };
  const { objectId } = await call("POST", "/1.1/installations", body, clientHeaders);
  return { installation, objectId };
}

let lastPush;
const push = async (channel, alert, fields = {}) => {
  const body = { channels: [channel], data: { alert }, ...fields };
  lastPush = (await call("POST", "/1.1/push", body)).objectId;
  return lastPush;
};

/// The push's record, once as many messages are stored and received.
const ledger = (id, delivered, received) => until(`${received} received of ${delivered}`, async () => {
  const record = await call("GET", `/v1/notifications/${id}`);
  return record.delivered === delivered && record.received === received ? record : undefined;
});
const delivered = (id, count) => until(`${count} delivered`, async () =>
  (await call("GET", `/v1/notifications/${id}`)).delivered === count || undefined);

/// A device that speaks `carillon.push.v1`.
class Device {
  received = [];
  refusals = [];
  goaways = [];
  logins = 0;

  constructor(installation, { acks = true, node = nodes[0], key = environment.APP_KEY } = {}) {
    Object.assign(this, { installation, acks, node, key });
  }

  open(node = this.node) {
    this.node = node;
    const socket = new WebSocket(node, "carillon.push.v1");
    this.socket = socket;
    this.isOpen = true;
    socket.on("open", () => this.send({
      type: "hello", app, key: this.key, installation: this.installation,
    }));
    socket.on("message", (text) => this.take(JSON.parse(text)));
    socket.on("error", () => {});
    socket.on("close", (code) => {
      this.isOpen = false;
      this.code = code;
      this.closed?.();
    });
    return this;
  }

  take(message) {
    switch (message.type) {
      case "ready":
        this.ready = message;
        this.logins += 1;
        break;
      case "push":
        this.received.push(message);
        if (this.acks) this.ack(message.id);
        break;
      case "refused": this.refusals.push(message); break;
      case "goaway": this.goaways.push(message); break;
    }
    this.last = message;
  }

  send(message) { this.socket.send(JSON.stringify(message)); }
  ack(...ids) { this.send({ type: "ack", ids }); }
  isReady() { return until("ready", () => this.ready); }

  /// The alerts that arrived, once there are so many.
  async alerts(count) {
    try {
      await until(`${count} pushes`, () => this.received.length >= count ? true : undefined);
    } catch (error) {
      // The push's record says which service holds it.
      const record = await call("GET", `/v1/notifications/${lastPush}`);
      const device = `${this.installation}, open: ${this.isOpen}, logins: ${this.logins}`;
      throw new Error(`${error.message}; ${device}; ${JSON.stringify(record)}`);
    }
    return this.received.map((one) => one.data.alert);
  }

  async close() {
    this.socket.close();
    await until("closed", () => !this.isOpen || undefined);
    return this;
  }
}

async function ownProtocol() {
  const channel = unique("c");
  const { installation } = await register([channel]);
  const first = new Device(installation).open();
  check("ready: nothing waits", (await first.isReady()).waiting, 0);
  check("ready: how often to ping", first.ready.pingSeconds > 0);
  const second = new Device(installation).open();
  await second.isReady();
  const id = await push(channel, "one");
  check("the first connection", await first.alerts(1), ["one"]);
  check("the second one", await second.alerts(1), ["one"]);
  check("the same id", first.received[0].id, second.received[0].id);
  check("the push's id", first.received[0].pushId, id);
  check("no expiry of its own", first.received[0].expiresAt, undefined);
  first.ack(first.received[0].id);
  const record = await ledger(id, 1, 1);
  check("one device", record.targeted, 1);
  console.log("received", id);
  const old = await call("GET", `/1.1/tables/Notifications/${id}`);
  check("LeanCloud's successes", [old.successes, old.lcSuccesses], [1, 1]);

  first.send({ type: "ping" });
  await until("a pong", () => first.last?.type === "pong" || undefined);
  first.send({ type: "opened", ids: [first.received[0].id] });
  await until("opened", async () =>
    (await call("GET", `/v1/notifications/${id}`)).opens === 1 || undefined);

  const wrong = new Device(installation, { key: "wrong-key-of-some-length" }).open();
  await until("a refusal", () => wrong.refusals[0]);
  check("a wrong key: do not retry", wrong.refusals[0].retry, false);
  await until("its close", () => !wrong.isOpen || undefined);
  check("its close code", wrong.code, 4100);
  const short = new Device("short").open();
  await until("a refusal", () => short.refusals[0]);
  await until("its close", () => !short.isOpen || undefined);
  check("a short id", short.code, 4103);
  // By an app's key a push by id reaches just this device.
  const other = await register([channel]);
  const third = new Device(other.installation).open();
  await third.isReady();
  const where = await call("POST", "/1.1/push", {
    where: { objectId: other.objectId }, data: { alert: "by where" },
  });
  check("by where", await third.alerts(1), ["by where"]);
  await ledger(where.objectId, 1, 1);
  check("not the others", first.received.length + second.received.length, 2);
}

async function offline() {
  const channel = unique("c");
  const { installation } = await register([channel]);
  const [texts, ids] = [[], []];
  for (let number = 1; number <= 70; number += 1) {
    texts.push("n" + number);
    ids.push(await push(channel, "n" + number));
    await delivered(ids.at(-1), 1);
  }
  // It takes none over: the window of 50 is all that it gets.
  const lazy = new Device(installation, { acks: false }).open();
  check("the oldest first, a window of them", await lazy.alerts(50), texts.slice(0, 50));
  lazy.ack(...lazy.received.slice(0, 10).map((one) => one.id));
  check("the next ones", await lazy.alerts(60), texts.slice(0, 60));
  await lazy.close();
  const again = new Device(installation).open();
  check("what it did not acknowledge, in order", await again.alerts(60), texts.slice(10));
  const seen = new Set(lazy.received.map((one) => one.id));
  check("repeats have the same id",
    again.received.slice(0, 50).every((one) => seen.has(one.id)));
  await again.close();
  // Its last acknowledgements are stored a moment later; until then the messages come again.
  for (const id of ids.slice(50)) await ledger(id, 1, 1);
  const marker = await push(channel, "marker");
  const last = new Device(installation).open();
  check("nothing is left but the marker", await last.alerts(1), ["marker"]);
  await ledger(marker, 1, 1);
  check("nothing came after it", last.received.length, 1);
}

async function expired() {
  const channel = unique("c");
  const { installation } = await register([channel]);
  const short = await push(channel, "short", { expiration_interval: 2 });
  await delivered(short, 1);
  const expiry = Date.now() + 2000;
  // The server's clock, as it decides.
  await until("the expiry", async () => {
    const { iso } = await call("GET", "/1.1/date");
    return Date.parse(iso) > expiry + 500 ? true : undefined;
  });
  await delivered(await push(channel, "long", { expiration_interval: 600 }), 1);
  await delivered(await push(channel, "last"), 1);
  const device = new Device(installation).open();
  check("the expired one never comes", await device.alerts(2), ["long", "last"]);
  check("an expiry of its own", Date.parse(device.received[0].expiresAt) > Date.now());
  check("the expired one was not received",
    (await call("GET", `/v1/notifications/${short}`)).received, 0);
}

/// Reads events until the response ends.
async function* events(response) {
  let text = "";
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n").filter((line) => !line.startsWith(":"));
      text = text.slice(end + 2);
      if (!lines.length) continue;
      yield Object.fromEntries(lines.map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
      }));
    }
  }
}

async function eventStream() {
  const base = nodes[0].replace(/^ws/, "http");
  const channel = unique("c");
  const installation = unique("");
  const basic = "Basic " + Buffer.from(`${app}:${environment.APP_KEY}`).toString("base64");
  const open = async (query, headers = {}) => {
    const abort = new AbortController();
    const response = await fetch(`${base}/v1/stream?installation=${installation}${query}`, {
      headers: { Authorization: basic, ...headers }, signal: abort.signal,
    });
    return { response, abort, events: events(response) };
  };
  const first = await open(`&register=1&channels=${channel},other`);
  check("its type", first.response.headers.get("content-type"), "text/event-stream");
  check("ready", (await first.events.next()).value.event, "ready");
  const ids = [];
  for (const text of ["one", "two", "three"]) ids.push(await push(channel, text));
  const seen = [];
  for (let count = 0; count < 3; count += 1) {
    const { event, id, data } = (await first.events.next()).value;
    seen.push({ event, id, ...JSON.parse(data) });
  }
  check("the events", seen.map((one) => [one.event, one.data.alert]).sort(),
    [["push", "one"], ["push", "three"], ["push", "two"]]);
  first.abort.abort();
  // All up to the second one.
  const second = await open("", { "Last-Event-ID": seen[1].id });
  check("ready again", (await second.events.next()).value.event, "ready");
  check("only the rest", (await second.events.next()).value.id, seen[2].id);
  second.abort.abort();
  const acks = (list, headers) => fetch(base + "/v1/stream/acks", {
    method: "POST", headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify({ installation, ids: list }),
  });
  const wrong = { Authorization: "Basic " + Buffer.from(`${app}:wrong-key`).toString("base64") };
  check("a wrong key", (await acks([seen[2].id], wrong)).status, 401);
  const answer = await acks([seen[2].id, seen[0].id], clientHeaders);
  check("acknowledged", [answer.status, await answer.json()], [200, { acknowledged: 1 }]);
  for (const id of ids) await ledger(id, 1, 1);
  check("a short id", (await fetch(`${base}/v1/stream?installation=short`,
    { headers: { Authorization: basic } })).status, 400);
}

/// LeanCloud's web push: a third party's package on LeanCloud's wire. Its router is a constant.
async function webPush() {
  const LCPush = vendor("leancloud-push");
  const request = createRequire(
    environment.NODE_CLIENTS + "/node_modules/leancloud-push/package.json")("request");
  const channel = unique("c");
  const installationId = LCPush.genInstallationId();
  const route = await call("GET", `/v1/route?appId=${app}&secure=0`);
  check("the router's nodes", nodes.includes(route.server) && nodes.includes(route.secondary));
  const client = new LCPush({
    appId: app, appKey: environment.APP_KEY,
    installation: { installationId, deviceType: "web", channels: [channel] },
  });
  client.server = { server: route.server, expires: new Date(Date.now() + 3_600_000) };
  client.request = request.defaults({
    baseUrl: registration + "/1.1",
    headers: {
      "X-AVOSCloud-Application-Id": app, "X-AVOSCloud-Application-Key": environment.APP_KEY,
    },
  });
  const messages = [];
  client.on("message", (message) => messages.push(message));
  await new Promise((resolve, reject) =>
    client.open((error) => error ? reject(error) : resolve()));
  const id = await push(channel, "to the web");
  await until("a message", () => messages[0]);
  check("its text", messages[0].alert, "to the web");
  check("its channel", messages[0]._channel, channel);
  await ledger(id, 1, 1);
  client.close();
}

/// Instant messaging and live queries are refused by their promises' errors.
async function refusals(name, makeRealtime) {
  const realtime = makeRealtime();
  const error = await realtime.createIMClient("tom").then(() => undefined, (failure) => failure);
  check(`${name}: a session is refused, ${error?.message}`, error?.code, 4100);
}

async function realtime4() {
  const { Realtime } = vendor("leancloud-realtime");
  await refusals("4", () => new Realtime({
    appId: app, appKey: environment.APP_KEY, RTMServers: nodes[0],
  }));
}

async function realtime5() {
  const { Realtime, setAdapters } = vendor("leancloud-realtime-5");
  const clients = createRequire(environment.NODE_CLIENTS + "/package.json");
  setAdapters(clients("@leancloud/platform-adapters-node"));
  await refusals("5", () => new Realtime({
    appId: app, appKey: environment.APP_KEY, server: registration,
  }));
}

async function liveQuery() {
  const { Realtime } = vendor("leancloud-realtime");
  const { LiveQueryPlugin } = vendor("leancloud-realtime-plugin-live-query");
  const realtime = new Realtime({
    appId: app, appKey: environment.APP_KEY, RTMServers: nodes[0], plugins: [LiveQueryPlugin],
  });
  const error = await realtime.createLiveQueryClient("lq-sub-1")
    .then(() => undefined, (failure) => failure);
  check(`a live query is refused, ${error?.message}`, error?.code, 4100);
}

/// Two nodes are replaced, one after the other; the test restarts each once it has ended.
async function drained() {
  const count = 1000;
  const channel = unique("c");
  const devices = [];
  const closings = [];
  const connect = async () => {
    const { installation } = await register([channel]);
    const { server, secondary } = await call("GET",
      `/v1/route?appId=${app}&installationId=${installation}&secure=0`);
    check("two nodes", server !== secondary);
    const device = new Device(installation, { node: server });
    // As a client does: the other node, and the first again if that does not answer.
    device.closed = () => {
      closings.push(performance.now());
      const next = device.node === server ? secondary : server;
      setTimeout(() => device.open(next), 20);
    };
    devices.push(device.open());
  };
  while (devices.length < count) await Promise.all(Array.from({ length: 20 }, connect));
  const on = (node) => devices.filter((one) => one.isOpen && one.node === node).length;
  const settled = (logins) => until("all are connected", () =>
    devices.every((one) => one.logins >= logins.get(one)) || undefined);
  await settled(new Map(devices.map((one) => [one, 1])));
  check("spread over both", on(nodes[0]) > count / 5 && on(nodes[1]) > count / 5);
  const ids = [];
  for (const [place, node] of nodes.entries()) {
    const wanted = new Map(devices.map((one) => [one, one.logins + (one.node === node ? 1 : 0)]));
    const moving = devices.filter((one) => one.node === node);
    process.kill(Number(environment.NODE_PIDS.split(",")[place]), "SIGTERM");
    // Beside the drain, to all of them.
    ids.push(await push(channel, "during " + place));
    await settled(wanted);
    // CONNECTION_DRAIN is a second here, of which a node takes what SHUTDOWN_GRACE allows.
    const [first, last] = [closings[0], closings[moving.length - 1]];
    check(`the closes are spread, ${last - first} ms`, last - first > 300);
    closings.length = 0;
    check("all that moved were told", moving.every((one) => one.goaways.length > 0));
    ids.push(await push(channel, "after " + place));
    // The test starts the node again, at the same address.
    await until("the node is back", () => fetch(node.replace(/^ws/, "http") + "/livez")
      .then((answer) => answer.ok || undefined, () => undefined));
  }
  for (const id of ids) await ledger(id, count, count);
  for (const device of devices) {
    const alerts = new Set(device.received.map((one) => one.data.alert));
    check("each has all", [...alerts].sort(), ["after 0", "after 1", "during 0", "during 1"]);
    const messages = new Set(device.received.map((one) => one.id));
    check("repeats have the same id", messages.size, 4);
    device.closed = undefined;
    device.socket.close();
  }
}

/// A page in Chromium, by its debugging protocol.
class Page {
  #socket;
  #calls = new Map();
  #last = 0;

  static async open(address, chromium, folder) {
    const browser = spawn(chromium, [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
      "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-port=0",
      "--user-data-dir=" + folder, "about:blank",
    ], { stdio: ["ignore", "ignore", "pipe"] });
    let words = "";
    browser.stderr.on("data", (text) => { words += text; });
    const debugging = await until("Chromium", () => /listening on ws:..([^/]+)/.exec(words)?.[1]);
    const opened = await fetch(`http://${debugging}/json/new?${encodeURIComponent(address)}`,
      { method: "PUT" });
    const page = new Page();
    page.browser = browser;
    page.#socket = new WebSocket((await opened.json()).webSocketDebuggerUrl);
    page.#socket.on("message", (text) => {
      const { id, result } = JSON.parse(text);
      page.#calls.get(id)?.(result);
    });
    await new Promise((resolve) => page.#socket.on("open", resolve));
    return page;
  }

  /// Returns the value of an expression in the page.
  async value(expression) {
    const id = this.#last += 1;
    const answer = new Promise((resolve) => this.#calls.set(id, resolve));
    this.#socket.send(JSON.stringify({
      id, method: "Runtime.evaluate", params: { expression, returnByValue: true },
    }));
    return (await answer)?.result?.value;
  }

  async close() {
    this.#socket.close();
    const ended = new Promise((resolve) => this.browser.on("exit", resolve));
    this.browser.kill();
    await ended;
  }
}

/// The example page, in a browser.
async function examplePage() {
  const channel = unique("c");
  const files = { "/": ["index.html", "text/html"], "/push.js": ["push.js", "text/javascript"] };
  const server = createServer((request, response) => {
    const [name, type] = files[new URL(request.url, "http://a").pathname] ?? [];
    response.writeHead(name ? 200 : 404, { "Content-Type": type ?? "text/plain" });
    response.end(name && readFileSync(
      new URL("../../../deploy/examples/web/" + name, import.meta.url)));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const query = new URLSearchParams({
    registration, app, key: environment.APP_KEY, channels: channel,
  });
  const folder = mkdtempSync(join(tmpdir(), "carillon-chromium-"));
  const page = await Page.open(
    `http://127.0.0.1:${server.address().port}/?${query}`, environment.CHROMIUM, folder);
  try {
    const state = (text) => until("the state " + text, async () =>
      (await page.value("document.getElementById('state')?.textContent")) === text || undefined);
    // Before the script runs, a click would send the empty form.
    await until("the page's script", async () =>
      (await page.value("Boolean(document.getElementById('form')?.onsubmit)")) || undefined);
    await state("not connected");
    await page.value("document.querySelector('button').click()");
    await state("connected");
    const id = await push(channel, "to a page");
    await until("the push on the page", async () =>
      (await page.value("document.querySelector('#pushes li div')?.textContent")) === "to a page"
        || undefined);
    await ledger(id, 1, 1);
    await page.value("document.querySelector('#pushes li').click()");
    await until("opened", async () =>
      (await call("GET", `/v1/notifications/${id}`)).opens === 1 || undefined);
  } finally {
    await page.close();
    server.close();
    // Chromium's other processes end a little later, and write files until then.
    await until("the profile is removed", () => {
      try {
        rmSync(folder, { recursive: true, force: true });
        return true;
      } catch {
        return undefined;
      }
    });
  }
}

await main({
  "carillon.push.v1": ownProtocol, offline, expired, "server-sent events": eventStream,
  "leancloud-push": webPush, "leancloud-realtime 4": realtime4, "leancloud-realtime 5": realtime5,
  "live query": liveQuery, drained, "the example page": examplePage,
});

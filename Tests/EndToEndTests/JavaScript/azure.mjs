// Every call of Azure's JavaScript package: installations, sends of every format, schedules,
// templates and telemetry; an unsupported call gets a refusal that the package reports at once.

import {
  check, Devices, environment, main, refused, token, unique, until, vendor,
} from "./support.mjs";

const azure = vendor("@azure/notification-hubs");
const calls = vendor("@azure/notification-hubs", "@azure/notification-hubs/api");
const host = environment.REGISTRATION_TLS_URL.replace("https://", "");

const words = (name, key) =>
  `Endpoint=sb://${host}/;SharedAccessKeyName=${name};SharedAccessKey=${key}`;

const connect = (name, key, hub = environment.APP_ID) =>
  new azure.NotificationHubsClient(words(name, key), hub);

const hub = connect("DefaultFullSharedAccessSignature", environment.MASTER_KEY);
const listener = connect("DefaultListenSharedAccessSignature", environment.APP_KEY);

const devices = new Devices();
const makers = {
  apns: azure.createAppleInstallation, gcm: azure.createFcmLegacyInstallation,
  fcmv1: azure.createFcmV1Installation, wns: azure.createWindowsInstallation,
};

const uri = (channel) => `${environment.CHANNEL_ORIGIN}/wns/?token=${channel}`;

/// Registers a device of that name and returns its installation's id.
async function register(name, platform, fields = {}) {
  const installationId = unique("device-");
  const channel = devices.add(name, platform === "apns" ? token() : unique(platform + "-channel-"));
  const installation = makers[platform]({
    installationId, tags: [], ...fields, pushChannel: platform === "wns" ? uri(channel) : channel,
  });
  await listener.createOrUpdateInstallation(installation);
  return { installationId, channel };
}

const apple = (text, headers) => azure.createAppleNotification({
  body: azure.createAppleNotificationBody({ aps: { alert: text }, k: "v" }),
  ...(headers && { headers }),
});
const gcm = (text) => azure.createFcmLegacyNotification({
  body: azure.createFirebaseLegacyNotificationBody({ data: { text } }),
});
const fcmV1 = (text) => azure.createFcmV1Notification({
  body: azure.createFirebaseV1NotificationBody({ message: { data: { text } } }),
});

async function over(id) {
  return until("the send " + id, async () => {
    const details = await hub.getNotificationOutcomeDetails(id);
    const isOver = ["Completed", "NoTargetFound", "Cancelled"].includes(details.state);
    return isOver ? details : undefined;
  });
}

/// Sends by `send(text)`, waits until it has ended, and checks the telemetry and the devices.
async function sent(what, hearers, send, counts) {
  const text = `${what} ${unique("")}`;
  const answer = await send(text);
  check(what + ": its answer",
    [answer.state, typeof answer.notificationId, answer.location.startsWith("https://" + host),
      typeof answer.trackingId, typeof answer.correlationId],
    ["Enqueued", "string", true, "string", "string"]);
  const details = await over(answer.notificationId);
  check(what + ": its state", details.state, hearers.length ? "Completed" : "NoTargetFound");
  check(what + ": its id", details.notificationId, answer.notificationId);
  if (counts) {
    const success = (each) => each?.find((one) => one.state === "Success")?.count ?? 0;
    check(what + ": its counts", Object.fromEntries(Object.keys(counts)
      .map((key) => [key, success(details[key + "OutcomeCounts"])])), counts);
  }
  return { details, got: await devices.heard(what, text, hearers) };
}

async function installations() {
  const installationId = unique("device-");
  const whole = azure.createAppleInstallation({
    installationId, pushChannel: "AbCd12", tags: ["news", "user:1"], userId: "u@1",
    pushVariables: { a: "b" },
    templates: { t: { body: '{"aps":{"alert":"$(m)"}}', headers: {}, tags: ["x"] } },
  });
  const answer = await listener.createOrUpdateInstallation(whole);
  check("its answer's ids", [typeof answer.trackingId, typeof answer.correlationId],
    ["string", "string"]);
  const read = await listener.getInstallation(installationId);
  check("read back", [read.installationId, read.platform, read.pushChannel, read.tags, read.userId,
    read.pushVariables, read.pushChannelExpired, read.templates.t.body,
    read.templates.t.tags.sort()],
  [installationId, "apns", "AbCd12", ["news", "user:1"], "u@1", { a: "b" }, false,
    whole.templates.t.body, ["t", "x"]]);
  await listener.createOrUpdateInstallation(azure.createAppleInstallation({
    installationId, pushChannel: "beef",
  }));
  const replaced = await listener.getInstallation(installationId);
  check("replaced, not added to",
    [replaced.pushChannel, replaced.tags, replaced.userId, replaced.templates],
    ["beef", undefined, undefined, undefined]);
  const browser = { endpoint: "https://push.example/x", p256dh: "p", auth: "a" };
  for (const [platform, make, pushChannel] of [
    ["adm", azure.createAdmInstallation, unique("adm-")],
    ["baidu", azure.createBaiduInstallation, unique("baidu-")],
    ["xiaomi", azure.createXiaomiInstallation, unique("xiaomi-")],
    ["browser", azure.createBrowserInstallation, browser],
    ["gcm", azure.createFcmLegacyInstallation, unique("gcm-")],
    ["fcmv1", azure.createFcmV1Installation, unique("fcm-")],
    ["wns", azure.createWindowsInstallation, uri("x")],
  ]) {
    const id = unique("device-");
    await hub.createOrUpdateInstallation(make({ installationId: id, pushChannel, tags: ["a"] }));
    const kept = await hub.getInstallation(id);
    check("kept: " + platform,
      [kept.platform.toLowerCase(), kept.pushChannel, kept.tags], [platform, pushChannel, ["a"]]);
    await hub.deleteInstallation(id);
  }
  await listener.deleteInstallation(installationId);
  await listener.deleteInstallation(installationId);
  const error = await refused("what is gone", () => listener.getInstallation(installationId), 404);
  check("and its text", error?.message.includes("Installation not found"));
  await refused("a patch of what is gone", () => listener.updateInstallation(installationId,
    [{ op: "add", path: "/tags", value: "x" }]), 404);
  for (const [what, fields] of [
    ["a tag that is none", { tags: ["a b"] }], ["a platform that is none", { platform: "amiga" }],
    ["a token that is none", { pushChannel: "x-y" }],
  ]) {
    await refused(what, () => hub.createOrUpdateInstallation({
      installationId: unique("device-"), platform: "apns", pushChannel: token(), ...fields,
    }), 400);
  }
}

async function patches() {
  const { installationId } = await register("phone", "apns", { tags: ["a", "b"] });
  const template = JSON.stringify({ body: '{"aps":{"alert":"$(m)"}}', tags: ["t1"] });
  async function patched(what, list, pick, wanted) {
    const answer = await listener.updateInstallation(installationId, list);
    check(`${what}: its answer`, typeof answer.trackingId, "string");
    check(what, pick(await listener.getInstallation(installationId)), wanted);
  }
  const tags = (one) => one.tags;
  await patched("add a tag", [{ op: "add", path: "/tags", value: "c" }], tags, ["a", "b", "c"]);
  await patched("add one that is there", [{ op: "add", path: "/tags", value: "c" }], tags,
    ["a", "b", "c"]);
  await patched("add several", [{ op: "add", path: "/tags", value: '["d","e"]' }], tags,
    ["a", "b", "c", "d", "e"]);
  await patched("remove one", [{ op: "remove", path: "/tags/a" }], tags, ["b", "c", "d", "e"]);
  await patched("replace all", [{ op: "replace", path: "/tags", value: '["f"]' }], tags, ["f"]);
  await patched("remove all", [{ op: "remove", path: "/tags" }], tags, undefined);
  await patched("a user", [{ op: "add", path: "/userId", value: "u1" }], (one) => one.userId, "u1");
  await patched("another user", [{ op: "replace", path: "/userId", value: "u2" }],
    (one) => one.userId, "u2");
  await patched("no user", [{ op: "remove", path: "/userId" }], (one) => one.userId, undefined);
  const channel = token();
  await patched("a channel", [{ op: "replace", path: "/pushChannel", value: channel }],
    (one) => one.pushChannel, channel);
  await patched("a template", [{ op: "add", path: "/templates/t", value: template }],
    (one) => one.templates.t.tags.sort(), ["t", "t1"]);
  const body = '{"aps":{"alert":"$(n)"}}';
  await patched("its body", [{ op: "replace", path: "/templates/t/body", value: body }],
    (one) => one.templates.t.body, body);
  await patched("its tags", [{ op: "add", path: "/templates/t/tags", value: "t2" }],
    (one) => one.templates.t.tags.sort(), ["t", "t1", "t2"]);
  await patched("no template", [{ op: "remove", path: "/templates/t" }],
    (one) => one.templates, undefined);
  await patched("several at once", [
    { op: "add", path: "/tags", value: "x" }, { op: "add", path: "/tags", value: "y" },
    { op: "remove", path: "/tags/x" },
  ], tags, ["y"]);
  await patched("a variable", [{ op: "add", path: "/pushVariables/v", value: "1" }],
    (one) => one.pushVariables, { v: "1" });
  for (const [what, list] of [
    ["an unknown path", [{ op: "add", path: "/nothing", value: "x" }]],
    ["an unknown operation", [{ op: "move", path: "/tags", value: "x" }]],
    ["one bad of two", [{ op: "add", path: "/tags", value: "lost" },
      { op: "add", path: "/nothing", value: "x" }]],
    ["a tag that is none", [{ op: "add", path: "/tags", value: "a b" }]],
  ]) await refused(what, () => listener.updateInstallation(installationId, list), 400);
  check("and nothing changed", tags(await listener.getInstallation(installationId)), ["y"]);
}

/// RFC 6902: `-` is the place after the last element, not a name.
async function tagAtTheEnd() {
  const { installationId } = await register("phone", "apns", { tags: ["a"] });
  await listener.updateInstallation(installationId,
    [{ op: "add", path: "/tags/-", value: "vip" }]);
  check("added at the end", (await listener.getInstallation(installationId)).tags, ["a", "vip"]);
  await listener.updateInstallation(installationId, [
    { op: "add", path: "/tags/-", value: "x" }, { op: "add", path: "/tags/-", value: "vip" },
  ]);
  check("and once each", (await listener.getInstallation(installationId)).tags, ["a", "vip", "x"]);
  await sent("to the tag", ["phone"],
    (text) => hub.sendNotification(apple(text), { tagExpression: "vip && x" }));
  await sent("to a tag that is no name", [],
    (text) => hub.sendNotification(apple(text), { tagExpression: "-" }));
  await devices.nothingElse();
}

/// A send of one platform's format reaches only that platform.
async function formats() {
  await register("iphone", "apns");
  await register("droid", "fcmv1");
  await register("pc", "wns");
  const phone = await sent("to Apple", ["iphone"], (text) => hub.sendBroadcastNotification(
    apple(text, {
      "apns-push-type": "alert", "apns-priority": "5", "apns-collapse-id": "c1",
      "apns-topic": environment.APNS_TOPIC,
    })), { apns: 1, fcmV1: 0, wns: 0 });
  const { headers, body } = phone.got.iphone;
  check("to Apple, at APNs", [
    headers["apns-push-type"], headers["apns-priority"], headers["apns-collapse-id"],
    headers["apns-topic"], body.k,
  ], ["alert", "5", "c1", environment.APNS_TOPIC, "v"]);
  const expiry = Math.floor(Date.now() / 1000) + 3600;
  const expiring = await sent("with an end", ["iphone"], (text) => hub.sendBroadcastNotification(
    apple(text, { "ServiceBusNotification-Apns-Expiry": new Date(expiry * 1000).toISOString() })));
  check("with an end, at APNs", expiring.got.iphone.headers["apns-expiration"], String(expiry));
  const droid = await sent("to Android", ["droid"],
    (text) => hub.sendBroadcastNotification(fcmV1(text)), { apns: 0, fcmV1: 1, wns: 0 });
  check("to Android, at FCM", Object.keys(droid.got.droid.body.message.data), ["text"]);
  const toast = (text) => `<toast><visual><binding template="ToastText01"><text id="1">${text}`
    + "</text></binding></visual></toast>";
  const tile = (text) => `<tile><visual><binding template="TileText1"><text id="1">${text}`
    + "</text></binding></visual></tile>";
  for (const [kind, make] of [
    ["toast", (text) => azure.createWindowsToastNotification({ body: toast(text) })],
    ["tile", (text) => azure.createWindowsTileNotification({ body: tile(text) })],
    ["raw", (text) => azure.createWindowsRawNotification({ body: text })],
    ["toast", (text) => azure.createWindowsNotification(
      { body: toast(text), headers: { "X-WNS-Type": "wns/toast" } })],
  ]) {
    const pc = await sent(`to Windows as ${kind}`, ["pc"],
      (text) => hub.sendBroadcastNotification(make(text)), { apns: 0, fcmV1: 0, wns: 1 });
    check(`to Windows as ${kind}, at WNS`, pc.got.pc.headers["x-wns-type"], "wns/" + kind);
  }
  const badge = await hub.sendBroadcastNotification(azure.createWindowsBadgeNotification({
    body: azure.createWindowsBadgeNotificationBody({ value: 7 }),
  }));
  await over(badge.notificationId);
  const last = (await devices.received("pc")).pop();
  check("to Windows as badge, at WNS",
    [last.headers["x-wns-type"], last.body.includes('value="7"')], ["wns/badge", true]);
  await devices.heard("to Windows as badge", "<badge", ["pc"]);
  for (const [platform, make] of [
    ["adm", azure.createAdmNotification], ["baidu", azure.createBaiduNotification],
    ["browser", azure.createBrowserNotification], ["xiaomi", azure.createXiaomiNotification],
  ]) {
    await refused("to " + platform,
      () => hub.sendBroadcastNotification(make({ body: { data: { a: "b" } } })), 501);
  }
  await devices.nothingElse();
}

/// A backend that sends in both of FCM's formats reaches each phone once.
async function fcmFormats() {
  const legacy = await register("legacy", "gcm", { tags: ["news"] });
  const modern = await register("modern", "fcmv1", { tags: ["news"] });
  const news = { tagExpression: "news" };
  for (const [what, make, hearer, counts] of [
    ["gcm", gcm, "legacy", { fcm: 1, fcmV1: 0 }], ["fcmv1", fcmV1, "modern", { fcm: 0, fcmV1: 1 }],
  ]) {
    await sent(`to all in ${what}`, [hearer],
      (text) => hub.sendBroadcastNotification(make(text)), counts);
    await sent(`to a tag in ${what}`, [hearer],
      (text) => hub.sendNotification(make(text), news), counts);
  }
  const both = unique("in both formats ");
  const answers = [
    await hub.sendNotification(gcm(both), news), await hub.sendNotification(fcmV1(both), news),
  ];
  for (const answer of answers) await over(answer.notificationId);
  await devices.heard("in both formats", both, ["legacy", "modern"]);
  check("read back", [
    (await hub.getInstallation(legacy.installationId)).platform.toLowerCase(),
    (await hub.getInstallation(modern.installationId)).platform.toLowerCase(),
  ], ["gcm", "fcmv1"]);
  // A device that moves to the newer platform is reached by the newer format only.
  await listener.createOrUpdateInstallation(azure.createFcmV1Installation({
    installationId: legacy.installationId, pushChannel: legacy.channel, tags: ["news"],
  }));
  await sent("in gcm, after it moved", [], (text) => hub.sendNotification(gcm(text), news));
  await sent("in fcmv1, after it moved", ["legacy", "modern"],
    (text) => hub.sendNotification(fcmV1(text), news));
  await devices.nothingElse();
}

async function sends() {
  const first = await register("first", "apns", { tags: ["news", "sports"], userId: "u-1" });
  await register("second", "apns", { tags: ["news", "muted"], userId: "u-2" });
  await register("third", "apns", { tags: ["weather"] });
  await register("droid", "fcmv1", { tags: ["news"] });
  const to = (tagExpression, options = {}) =>
    (text) => hub.sendNotification(apple(text), { tagExpression, ...options });
  await sent("to all of Apple", ["first", "second", "third"],
    (text) => hub.sendBroadcastNotification(apple(text)), { apns: 3, fcmV1: 0 });
  const tagged = await sent("to a tag", ["first", "second"], to("news"), { apns: 2 });
  check("its telemetry", [
    tagged.details.targetPlatforms, tagged.details.enqueueTime instanceof Date,
    tagged.details.endTime >= tagged.details.startTime, tagged.details.location.length > 0,
    JSON.parse(tagged.details.notificationBody).k,
  ], ["apple", true, true, true, "v"]);
  for (const [expression, hearers] of [
    ["news && !muted", ["first"]], ["sports || weather", ["first", "third"]],
    ["(news && muted) || weather", ["second", "third"]], ["!news", ["third"]],
    ["news&&(sports||muted)&&!weather", ["first", "second"]],
    ["weather || news && muted", ["second", "third"]],
    [`$InstallationId:{${first.installationId}}`, ["first"]],
    [`$InstallationId:{${first.installationId}} && news`, ["first"]],
    ["$UserId:{u-2}", ["second"]], ["$UserId:{u-2} || weather", ["second", "third"]],
    [azure.createTagExpression(["sports", "weather"]), ["first", "third"]],
    ["unknown", []], [undefined, []],
  ]) await sent(`to ${expression}`, hearers, to(expression));
  // The package's functions, from which the client's methods are made.
  const context = calls.createClientContext(
    words("DefaultFullSharedAccessSignature", environment.MASTER_KEY), environment.APP_ID);
  await sent("by a function", ["third"],
    (text) => calls.sendNotification(context, apple(text), { tagExpression: "weather" }));
  check("a read by a function",
    (await calls.getInstallation(context, first.installationId)).tags, ["news", "sports"]);
  await sent("to a tag, of Android", ["droid"],
    (text) => hub.sendNotification(fcmV1(text), { tagExpression: "news" }));
  await sent("not as a test", ["first", "second"], to("news", { enableTestSend: false }));

  // Direct sends need no installation; they also reach an existing one.
  const stranger = devices.add("stranger", token());
  await sent("direct", ["stranger"],
    (text) => hub.sendNotification(apple(text), { deviceHandle: stranger }));
  await sent("direct to several", ["first", "stranger"], (text) => hub.sendNotification(
    apple(text), { deviceHandle: [first.channel, stranger] }), { apns: 2 });
  const droidByHand = devices.add("by hand", unique("fcm-"));
  await sent("direct, to Android", ["by hand"],
    (text) => hub.sendNotification(fcmV1(text), { deviceHandle: droidByHand }));
  const pcByHand = devices.add("pc by hand", unique("wns-channel-"));
  await sent("direct, to Windows", ["pc by hand"], (text) => hub.sendNotification(
    azure.createWindowsRawNotification({ body: text }),
    { deviceHandle: uri(pcByHand) }));
  await refused("direct to nobody",
    () => hub.sendNotification(apple("refused"), { deviceHandle: [] }), 400);
  const test = unique("as a test ");
  const outcome = await hub.sendNotification(apple(test),
    { tagExpression: "news", enableTestSend: true });
  check("as a test", [outcome.successCount, outcome.failureCount,
    outcome.results.map((one) => one.applicationPlatform)], [2, 0, ["apple", "apple"]]);
  await devices.heard("as a test", test, ["first", "second"]);

  for (const expression of ["", "a &&", "(a", "a b", "!"]) {
    await refused(`the expression "${expression}"`,
      () => hub.sendNotification(apple("refused"), { tagExpression: expression }), 400);
  }
  await refused("what is too large", () => hub.sendBroadcastNotification(
    apple("x".repeat(70_000))), 413);
  await refused("what is no JSON", () => hub.sendBroadcastNotification(
    azure.createAppleNotification({ body: "{" })), 400);
  await refused("a send that may only listen",
    () => listener.sendBroadcastNotification(apple("refused")), 401, 403);
  await refused("telemetry of what never was",
    () => hub.getNotificationOutcomeDetails("none"), 404);
  await devices.nothingElse();
}

async function templates() {
  const alert = (body, more = {}) => ({ alert: { body, headers: {}, ...more } });
  await register("plain", "apns", {
    tags: ["news"], templates: alert('{"aps":{"alert":"$(title)","badge":"#(count)"}}'),
  });
  await register("polite", "apns", {
    templates: alert(`{"aps":{"alert":"{'Dear you: ' + $(title)}"}}`,
      { tags: ["news"], headers: { "apns-priority": "5" } }),
  });
  await register("droid", "fcmv1", {
    tags: ["news"], templates: alert('{"message":{"data":{"short":".(title, 60)"}}}'),
  });
  await register("pc", "wns", {
    tags: ["news"], templates: alert('<toast><visual><binding template="ToastText01">'
      + '<text id="1">$(title)</text></binding></visual></toast>',
    { headers: { "X-WNS-Type": "wns/toast" } }),
  });
  await register("bare", "apns", { tags: ["news"] });
  const filling = (title, count = "3") =>
    azure.createTemplateNotification({ body: { title, count } });
  const filled = await sent("to templates", ["plain", "polite", "droid", "pc"],
    (text) => hub.sendNotification(filling(text), { tagExpression: "news" }),
    { apns: 2, fcmV1: 1, wns: 1 });
  const { plain, polite } = filled.got;
  check("to templates, at APNs", [
    plain.body.aps.badge, polite.body.aps.alert.startsWith("Dear you: to templates"),
    polite.headers["apns-priority"],
  ], [3, true, "5"]);
  await sent("to templates of all", ["plain", "polite", "droid", "pc"],
    (text) => hub.sendBroadcastNotification(filling(text)));
  await sent("by the name of a template", ["plain", "polite", "droid", "pc"],
    (text) => hub.sendNotification(filling(text), { tagExpression: "alert" }));
  await sent("natively", ["plain", "polite", "bare"],
    (text) => hub.sendBroadcastNotification(apple(text)));
  await refused("words that are no object", () => hub.sendBroadcastNotification(
    azure.createTemplateNotification({ body: "[]" })), 400);
  await devices.nothingElse();
}

async function schedules() {
  await register("phone", "apns", { tags: ["news"] });
  await register("other", "apns");
  const news = { tagExpression: "news" };
  const soon = (milliseconds) => new Date(Date.now() + milliseconds);
  await sent("soon, to a tag", ["phone"],
    (text) => hub.scheduleNotification(soon(1500), apple(text), news));
  await sent("soon, to all", ["phone", "other"],
    (text) => hub.scheduleBroadcastNotification(soon(1500), apple(text)));
  const later = await hub.scheduleNotification(soon(3_600_000), apple("never"), news);
  const state = async () => (await hub.getNotificationOutcomeDetails(later.notificationId)).state;
  check("one that waits", await state(), "Enqueued");
  const answer = await hub.cancelScheduledNotification(later.notificationId);
  check("its cancel's answer", typeof answer.trackingId, "string");
  check("one that was taken back", await state(), "Cancelled");
  await refused("a cancel of what is over",
    () => hub.cancelScheduledNotification(later.notificationId), 404);
  await refused("a cancel of what never was", () => hub.cancelScheduledNotification("none"), 404);
  await refused("too far ahead", () => hub.scheduleBroadcastNotification(
    soon(8 * 86_400_000), apple("refused")), 400);
  await devices.heard("one that was taken back", "never", []);
  await devices.nothingElse();
}

async function registrations() {
  const phone = devices.add("phone", token());
  const tags = ["news", "user:1"];
  const native = { deviceToken: phone.toUpperCase(), tags };
  const made = await hub.createRegistration(azure.createAppleRegistrationDescription(native));
  check("created", [made.kind, made.deviceToken, made.tags, typeof made.registrationId],
    ["Apple", phone.toUpperCase(), tags, "string"]);
  const registrationId = await hub.createRegistrationId();
  const template = await hub.createOrUpdateRegistration(azure.createAppleTemplateRegistrationDescription({
    registrationId, deviceToken: phone.toUpperCase(), tags: ["news"],
    bodyTemplate: '{"aps":{"alert":"$(text)"}}', apnsHeaders: { "apns-priority": "5" },
  }));
  check("upserted", [template.registrationId, template.bodyTemplate],
    [registrationId, '{"aps":{"alert":"$(text)"}}']);
  // The package removes the id from its argument.
  const updated = await hub.updateRegistration({ ...made, tags: ["news", "vip"] });
  check("updated", [updated.tags, updated.etag === made.etag], [["news", "vip"], false]);
  await refused("an ETag that was", () => hub.updateRegistration({ ...made }), 412);
  const got = await hub.getRegistration(made.registrationId);
  check("read", [got.tags, got.etag], [["news", "vip"], updated.etag]);
  const ids = async (pages) => {
    const found = [];
    for await (const one of pages) found.push(one.registrationId);
    return found.sort();
  };
  const both = [made.registrationId, registrationId].sort();
  check("listed in pages of one", await ids(hub.listRegistrations({ top: 1 })), both);
  check("listed by channel", await ids(hub.listRegistrationsByChannel(
    { kind: "apple", deviceToken: phone })), both);
  check("listed by tag", await ids(hub.listRegistrationsByTag("vip")), [made.registrationId]);
  check("listed by a tag that none has", await ids(hub.listRegistrationsByTag("a#b")), []);
  await sent("a native send", ["phone"], (text) => hub.sendNotification(apple(text),
    { tagExpression: "news" }), { apns: 1 });
  await sent("a template send", ["phone"], (text) => hub.sendNotification(
    azure.createTemplateNotification({ body: { text } }), { tagExpression: "news" }), { apns: 1 });
  await hub.deleteRegistration(made.registrationId);
  await hub.deleteRegistration(registrationId, { etag: template.etag });
  await refused("what is deleted", () => hub.getRegistration(made.registrationId), 404);
  check("listed once all are deleted", await ids(hub.listRegistrations()), []);
}

async function otherCalls() {
  const dead = await register("dead", "apns", { tags: ["dead"] });
  const rules = [{ provider: "apns", token: dead.channel, status: 410, reason: "Unregistered" }];
  await fetch(environment.SIMULATOR_URL + "/rules", {
    method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(rules),
  });
  const answer = await hub.sendNotification(apple("nobody"), { tagExpression: "dead" });
  await over(answer.notificationId);
  const url = await hub.getFeedbackContainerUrl();
  const line = await until("the dead channel is listed", async () => {
    const text = await (await fetch(url)).text();
    return text ? JSON.parse(text.split("\n")[0]) : undefined;
  });
  check("getFeedbackContainerUrl", [line.InstallationId, line.PnsHandle],
    [dead.installationId, dead.channel]);

  const job = { type: "ExportRegistrations", outputContainerUrl: "https://example.com/x" };
  for (const [what, call] of [
    ["submitNotificationHubJob", () => hub.submitNotificationHubJob(job)],
    ["beginSubmitNotificationHubJob", () => hub.beginSubmitNotificationHubJob(job)],
    ["getNotificationHubJob", () => hub.getNotificationHubJob("1")],
    ["listNotificationHubJobs", () => hub.listNotificationHubJobs()],
  ]) {
    const error = await refused(what, call, 501);
    check(what + " says so", error?.message.includes("not supported"));
  }
  const id = "none";
  for (const [what, client] of [
    ["a wrong key", connect("DefaultFullSharedAccessSignature", "wrong")],
    ["an unknown key's name", connect("RootManageSharedAccessKey", environment.MASTER_KEY)],
    ["an unknown hub", connect("DefaultFullSharedAccessSignature", environment.MASTER_KEY,
      unique("nobody-"))],
  ]) await refused(what, () => client.getInstallation(id), 401);
  const shouted = connect("DefaultFullSharedAccessSignature", environment.MASTER_KEY,
    environment.APP_ID.toUpperCase());
  await refused("a hub without case", () => shouted.getInstallation(id), 404);
}

await main({
  installations, patches, formats, sends, templates, schedules, registrations, "other calls": otherCalls,
  "fcm formats": fcmFormats, "a tag at the end": tagAtTheEnd,
});

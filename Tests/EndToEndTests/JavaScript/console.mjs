// The console in Chromium: every page in both themes and three languages, and pushes sent from it.

import {
  check, Devices, environment, main, token, unique, until, vendor,
} from "./support.mjs";

const { chromium } = vendor("playwright-core");
const axe = vendor("axe-core", "axe-core/axe.min.js").source;

const registration = environment.REGISTRATION_URL;
const app = environment.APP_ID;
const console_ = registration + "/console";
const devices = new Devices();

/// Waits until the phone has been notified, and returns the notifications.
const notified = (phone) => until("the push at the phone", async () => {
  const found = await devices.received(phone);
  return found.length ? found : undefined;
});

/// Opens a browser that reports what a page must not do.
async function open(options = {}) {
  const browser = await chromium.launch({
    executablePath: environment.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  const context = await browser.newContext({ locale: "en-GB", ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => {
    // The status of a refused form is the page's answer.
    const isStatus = /the server responded with a status of 4/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !isStatus) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(registration)) faults.push("another host: " + request.url());
  });
  return { browser, context, page, faults };
}

async function signIn(page, key = environment.MASTER_KEY) {
  await page.goto(console_ + "/sign-in");
  await page.fill("#app", app);
  await page.fill("#key", key);
  await page.click("form.card button");
}

/// Registers a phone at APNs' simulator, and returns its id.
async function phone(fields = {}) {
  const deviceToken = token();
  const response = await fetch(registration + "/1.1/installations", {
    method: "POST",
    headers: {
      "Content-Type": "application/json", "X-LC-Id": app, "X-LC-Key": environment.APP_KEY,
    },
    body: JSON.stringify({
      deviceType: "ios", deviceToken, apnsTopic: environment.APNS_TOPIC, ...fields,
    }),
  });
  check("a phone is registered", response.status, 201);
  const id = (await response.json()).objectId;
  devices.add(id, deviceToken);
  return id;
}

/// The pages of an app: those of one push, one device and one draft included.
async function pagesOf(page, device, push) {
  await page.goto(`${console_}/${app}/send?device=${device}`);
  await page.fill("#text", "a draft");
  await page.click("button[value=save]");
  const draft = new URL(page.url()).searchParams.get("draft");
  await named(page, device);
  return [
    "", "/send", `/send?draft=${draft}`, `/send/${draft}/review`, "/pushes", "/pushes?q=none",
    `/pushes/${push}`, "/devices", "/devices?by=channel&q=news", `/devices/${device}`,
    `/devices/${device}/delete`, "/explain", `/explain?installation=${device}`,
    `/explain?push=${push}&installation=${device}`, "/devices/restore", "/identities/reader",
    "/dead-letters", "/dead-letters?reason=none", "/dead-letters/replay",
    await link(page, "/dead-letters", /dead-letters\/.*\d$/), "/health", "/credentials",
    "/credentials?count=devices", ...await credentialPages(page), "/audit",
    "/pushes?status=done",
    "/settings", "?range=24h", "?range=7d", `/pushes/${environment.CHARTED_PUSH}`,
    ...await importPages(page), ...await servicePages(page),
  ].filter(Boolean);
}

/// Gives a device and filters of both lists a name, so that the pages have them.
async function named(page, device) {
  await page.goto(`${console_}/${app}/devices/${device}`);
  await page.fill("#test #name", "Ann’s phone");
  await page.click("#test button");
  check("the device has a name", await page.textContent("#flash"), "It is saved.");
  for (const path of ["/pushes?status=done", "/devices?by=channel&q=news"]) {
    await page.goto(`${console_}/${app}${path}`);
    await page.click("#list summary");
    await page.fill("#list #name", "The usual");
    await page.click("#list details button");
    check("the filter has a name", await page.textContent("#flash"), "It is saved.");
    check("it is a link", await page.getAttribute("main nav .links a", "href"), `/console/${app}${path}`);
  }
}

/// The forms of credentials, and the removal of a stored one.
async function credentialPages(page) {
  const removal = await link(page, "/credentials", /credentials\/apns\/remove$/);
  return [
    ...["apns", "apns-certificate", "fcm", "wns", "mpns"].map((kind) => "/credentials/" + kind),
    `/credentials/apns?name=${environment.APNS_TOPIC}`, `${removal}?name=${environment.APNS_TOPIC}`,
  ];
}

/// The pages of imports, with one whose columns are to be mapped.
async function importPages(page) {
  await page.goto(`${console_}/${app}/import`);
  await page.selectOption("#format", "csv");
  await page.setInputFiles("#file", {
    name: "devices.csv", mimeType: "text/csv", buffer: Buffer.from(`os,token,member\nios,${token()},ann\n`),
  });
  await page.click("main form button");
  check("the file is stored", await page.textContent("#flash"), "The file is stored. Nothing is imported yet.");
  const job = new URL(page.url()).pathname.split("/").pop();
  await Promise.all([page.waitForNavigation(), page.click("button[value=dry-run]")]);
  await until("the dry run", async () => {
    await page.reload();
    return await page.$("#dry-run") ?? undefined;
  });
  return ["/import", `/import/${job}`, `/import/${job}/stop`];
}

/// The first address on a page below the app's that matches, without the app's own.
async function link(page, path, pattern) {
  await page.goto(`${console_}/${app}${path}`);
  const links = await page.$$eval("main a", (all) => all.map((one) => new URL(one.href).pathname));
  const prefix = `/console/${app}`;
  return links.map((one) => one.slice(prefix.length)).find((one) => pattern.test(one));
}

/// The pages of the services, with those of one version, pool, identity and payload that are stored.
async function servicePages(page) {
  const version = await link(page, "/config/firebase/versions?before=3", /versions\/\d+$/);
  const pool = await link(page, "/sync", /sync\/./);
  const identity = pool && await link(page, pool, /sync\/.+\/./);
  const payload = await link(page, "/secure", /secure\/.+\/delete$/);
  return [
    "/config", "/config/firebase", "/config/firebase?q=none", "/config/firebase?count=devices", "/config/firebase/edit",
    "/config/firebase/versions", "/config/firebase-server", "/config/firebase-server/edit",
    version, version && version + "/rollback", "/sync", pool, identity, "/secure",
    "/secure?by=identity&q=nobody", payload, "/ingest", "/ingest/PushOpened", "/connections",
  ].filter(Boolean);
}

async function sent(page, text) {
  const id = await phone({ channels: ["news"], identity: "reader" });
  await page.goto(`${console_}/${app}/send?device=${id}`);
  await page.fill("#text", text);
  await page.click("button[value=review]");
  await page.click("button[value=send]");
  const push = new URL(page.url()).pathname.split("/").pop();
  await notified(id);
  return { id, push };
}

const everything = { resultTypes: ["violations"] };
/// A theme changes the colours alone, and a language the words.
const colours = { ...everything, runOnly: ["color-contrast"] };
const words = {
  ...everything,
  runOnly: ["cat.aria", "cat.forms", "cat.language", "cat.name-role-value", "cat.text-alternatives"],
};

/// Every page in both themes, three languages, two widths.
async function everyPage() {
  const { browser, page, faults } = await open();
  await signIn(page);
  const { id, push } = await sent(page, "to every page");
  const pages = await pagesOf(page, id, push);
  for (const [language, theme, audits] of [
    ["en", "light", [[360, everything], [1360, everything], [1360, colours, "dark"]]],
    ["zh-Hans", "dark", [[360], [1360, words]]], ["pt-BR", "system", [[360], [1360, words]]],
  ]) {
    await page.goto(`${console_}/${app}`);
    await page.selectOption("select[name=theme]", theme);
    await page.selectOption("select[name=language]", language);
    await page.click("form.look button");
    for (const path of pages) {
      const response = await page.goto(`${console_}/${app}${path}`);
      const look = `${path} ${language}`;
      check(look + ": its status", response.status(), 200);
      check(look + ": its language", await page.getAttribute("html", "lang"), language);
      check(look + ": its theme", await page.getAttribute("html", "data-theme"), theme);
      if (language === "en") await page.$$eval("main .chart ~ details, #list > details, main nav ~ details", (all) => all.forEach((one) => { one.open = true; }));
      // The policy forbids foreign script: the tool's own is evaluated, not inserted.
      await page.evaluate(axe + "; 0");
      for (const [width, audit, other] of audits) {
        await page.setViewportSize({ width, height: 900 });
        if (other) await page.evaluate((name) => {
          document.documentElement.dataset.theme = name;
          document.getAnimations().forEach((one) => one.finish());
        }, other);
        check(`${look} ${width}: nothing to scroll sideways`, await page.evaluate(() =>
          document.documentElement.scrollWidth <= window.innerWidth));
        if (!audit) continue;
        const found = await page.evaluate((options) => globalThis.axe.run(document, options), audit);
        check(`${look} ${width} ${other ?? theme}: axe`, found.violations.map((violation) =>
          [violation.id, violation.nodes.map((node) => node.html.slice(0, 200))]), []);
      }
    }
  }
  check("faults of the pages", faults, []);
  await browser.close();
}

/// A push is written, reviewed and sent by keyboard alone.
async function keyboard() {
  const { browser, page, faults } = await open();
  const id = await phone();
  await signIn(page);
  const to = async (selector) => {
    for (let step = 0; step < 120; step += 1) {
      if (await page.evaluate((wanted) => document.activeElement?.matches(wanted), selector)) return;
      await page.keyboard.press("Tab");
    }
    throw new Error("the keyboard does not reach " + selector);
  };
  await to("a[href$='/send']");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/send");
  await to("input[name=who]");
  await page.keyboard.press("ArrowDown");
  await to("#installations");
  await page.keyboard.type(id);
  await to("#text");
  await page.keyboard.type("by keyboard");
  await to("button[value=review]");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/review");
  await to("button[value=send]");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/pushes/*");
  const [notification] = await notified(id);
  check("its text", JSON.stringify(notification).includes("by keyboard"));
  check("faults of the pages", faults, []);
  await browser.close();
}

/// Without the script the same works, and a second press of the button sends nothing.
async function withoutScript() {
  const { browser, page } = await open({ javaScriptEnabled: false });
  await signIn(page, "wrong key");
  check("a wrong key is refused", await page.textContent("#problem"),
    "The app or its master key is wrong.");
  await signIn(page);
  const id = await phone({ city: "Oslo" });
  await page.goto(`${console_}/${app}/send`);
  await page.click("button[value=review]");
  check("nobody is chosen at first", (await page.textContent("[role=alert]")).trim().startsWith(
    "Choose who gets the push."));
  await page.check("#who-some");
  await page.click("button[value=add]");
  await page.fill("input[name=f0]", "city");
  await page.fill("input[name=v0]", "Oslo");
  await page.fill("#text", "without a script");
  await page.click("button[value=count]");
  check("the count", (await page.textContent("#count")).includes("1 device"));
  await page.click("button[value=review]");
  check("the number", await page.textContent("h1"), "Send to 1 device?");
  const review = page.url();
  await page.click("button[value=send]");
  const first = page.url();
  await page.goto(review);
  await page.click("button[value=send]");
  check("a second press finds the first push", page.url(), first);
  await notified(id);
  await page.goto(first);
  await until("the push is done", async () => {
    await page.reload();
    return (await page.textContent("h1")).includes("Done") || undefined;
  });
  check("sent once", (await devices.received(id)).length, 1);
  await page.goto(`${console_}/${app}/devices/${id}/delete`);
  await page.click("button.danger");
  const gone = await page.goto(`${console_}/${app}/devices/${id}`);
  check("the device is gone", gone.status(), 404);
  // The audit is written a moment after the response.
  for (const act of ["send/:draft/review", "devices/:id/delete"]) {
    await until("in the audit: " + act, async () => {
      await page.goto(`${console_}/${app}/audit`);
      return (await page.textContent("#list")).includes("POST /console/:app/" + act) || undefined;
    });
  }
  await page.click(".who form button");
  const after = await page.goto(`${console_}/${app}/pushes`);
  check("signed out", new URL(after.url()).pathname, "/console/sign-in");
  await browser.close();
}

/// A parameter's value as a client fetches it.
async function fetched(name) {
  const response = await fetch(
    `${environment.CONFIG_URL}/v1/projects/${app}/namespaces/firebase:fetch?key=${environment.APP_KEY}`,
    {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ app_instance_id: unique("console"), app_id: "1:1:web:1" }),
    });
  check("a client fetches", response.status, 200);
  return (await response.json()).entries?.[name];
}

/// Edits the template: a new parameter with this value, up to the review.
async function edited(page, name, value) {
  await page.goto(`${console_}/${app}/config/firebase/edit`);
  const template = JSON.parse(await page.inputValue("#template"));
  template.parameters[name] = { defaultValue: { value } };
  await page.fill("#template", JSON.stringify(template));
  await page.click("button[value=review]");
}

const publish = "form[action$='/publish'] button:not([value])";

/// A template is published and rolled back, and of two people who publish at once the second is told.
async function config() {
  const { browser, context, page, faults } = await open();
  await signIn(page);
  await page.goto(`${console_}/${app}/config/firebase/edit`);
  const base = Number(await page.inputValue("input[name=base]"));
  await page.fill("#template", `{"parameters": {"a": {"defaultValue": {"value": 1}}}}`);
  await page.click("button[value=review]");
  check("an invalid template is refused",
    (await page.textContent("#template-error")).includes("parameter a"));
  check("what was typed stays", (await page.inputValue("#template")).includes('"a"'));

  const name = unique("console_");
  await edited(page, name, "first");
  check("the difference", (await page.textContent("main")).includes("1 added, 0 removed, 0 changed"));
  check("its parameter", (await page.textContent("tbody")).includes(name));
  await page.click("button[value=edit]");
  check("back in the editor", (await page.inputValue("#template")).includes(name));
  await page.click("button[value=review]");
  await page.click(publish);
  check("it says so", await page.textContent("#flash"), "The template is published.");
  await until("clients get it", async () => await fetched(name) === "first" || undefined);

  // Two people edit the same version.
  const other = await context.newPage();
  await edited(page, unique("mine_"), "1");
  await edited(other, unique("theirs_"), "1");
  const rollback = await context.newPage();
  await rollback.goto(`${console_}/${app}/config/firebase/versions/${base}/rollback`);
  await other.click(publish);
  await page.click(publish);
  check("the second is refused", await page.textContent("h1"), "Changed meanwhile");
  const between = await page.textContent("main");
  check("who published", between.includes("master-key"));
  check("what they published", between.includes("theirs_"));
  check("its own change", between.includes("mine_"));
  check("what it would remove", between.includes("1 added, 1 removed, 0 changed"));
  await rollback.click("button.danger");
  check("a rollback is refused likewise", await rollback.textContent("h1"), "Changed meanwhile");
  await rollback.click("main a.btn");
  check("compared again", (await rollback.textContent("main")).includes("theirs_"));
  await rollback.click("button.danger");
  check("it says so", await rollback.textContent("#flash"),
    "The old template is published as a new version.");
  await until("clients get the old one", async () => await fetched(name) === undefined || undefined);
  await page.goto(`${console_}/${app}/audit`);
  const acts = await page.textContent("#list");
  check("the publish is in the audit", acts.includes("POST /console/:app/config/:ns/publish"));
  check("its review is not", !acts.includes("POST /console/:app/config/:ns/edit"));
  check("faults of the pages", faults, []);
  await browser.close();
}

/// The content of a secure payload is deleted, and its reader does not get it any more.
async function secure() {
  const { browser, page, faults } = await open();
  const identity = unique("console-");
  const asMaster = {
    "Content-Type": "application/json", "X-LC-Id": app, "X-LC-Key": environment.MASTER_KEY + ",master",
  };
  const secret = await (await fetch(`${environment.SECURE_URL}/v1/identities/${identity}/secret`, {
    method: "PUT", headers: asMaster, body: "{}",
  })).json();
  const { Id: id } = await (await fetch(`${environment.SECURE_URL}/api/notifications`, {
    method: "POST", headers: asMaster, body: JSON.stringify({ identity, payload: "for one reader" }),
  })).json();
  const read = async () => (await fetch(`${environment.SECURE_URL}/${app}/api/notifications/${id}`, {
    headers: { Authorization: "Basic " + btoa(`${secret.identity}:${secret.secret}`) },
  })).status;
  check("its reader gets it", await read(), 200);
  await signIn(page);
  await page.goto(`${console_}/${app}/secure?by=identity&q=${identity}`);
  const list = await page.textContent("#list");
  check("it is listed, as read", list.includes(String(id)) && list.includes("Read"));
  check("without its content", !(await page.content()).includes("for one reader"));
  await page.click("#list a.danger");
  await page.click("button.danger");
  check("it says so", await page.textContent("#flash"), "The content is deleted.");
  check("its reader does not get it any more", await read(), 404);
  await page.goto(`${console_}/${app}/secure?by=id&q=${id}`);
  check("its state", (await page.textContent("#list")).includes("Deleted"));
  check("nothing to delete", await page.$$("#list a.danger"), []);
  check("faults of the pages", faults, []);
  await browser.close();
}

/// The acts of the services' pages.
async function services() {
  await config();
  await secure();
}

await main({ "every page": everyPage, keyboard, "without the script": withoutScript, services });

// The shared parts of the scenarios: the packages, checks, and the devices' notifications at the
// simulator.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { inspect, isDeepStrictEqual } from "node:util";

export const environment = process.env;

const clients = createRequire(environment.NODE_CLIENTS + "/package.json");
const pinned = JSON.parse(readFileSync(new URL("package.json", import.meta.url))).dependencies;

/// Loads one of the packages, which must be of the version in package.json.
export function vendor(name, entry = name) {
  const loaded = clients(entry);
  const file = environment.NODE_CLIENTS + "/node_modules/" + name + "/package.json";
  // An alias names the package that it stands for: `npm:<package>@<version>`.
  const version = pinned[name]?.replace(/^npm:.*@/, "");
  check(name + ": its version", JSON.parse(readFileSync(file)).version, version);
  return loaded;
}

let problems = 0;
let checked = 0;

/// Checks a promise: a broken one is a line on standard error, and the exit status is 1.
export function check(what, got, ...wants) {
  const wanted = wants.length ? wants[0] : true;
  checked += 1;
  if (isDeepStrictEqual(got, wanted)) return;
  problems += 1;
  const show = (value) => inspect(value, { depth: 6, breakLength: Infinity, maxArrayLength: 70 });
  console.error(`${what}: got ${show(got)}, wanted ${show(wanted)}`);
}

/// Expects a call to fail by one of these codes (`code`, or the HTTP status of Azure's errors).
export async function refused(what, call, ...codes) {
  try {
    await call();
  } catch (error) {
    const code = error.statusCode ?? error.code;
    const known = typeof code === "number" && code > 0;
    check(`${what}: its code, ${error.message}`, known && (!codes.length || codes.includes(code)));
    return error;
  }
  check(`${what} is refused`, false);
  return undefined;
}

export const token = () => randomBytes(32).toString("hex");
export const unique = (prefix) => prefix + randomBytes(10).toString("hex");

/// Polls until there is an answer.
export async function until(what, ask) {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const value = await ask();
    if (value !== undefined) return value;
    if (performance.now() > deadline) throw new Error("not within a minute: " + what);
    await new Promise((resume) => setTimeout(resume, 20));
  }
}

/// The devices of one scenario, and the notifications of each.
export class Devices {
  #names = new Map();
  #received = [];
  #next = 0;
  #expected = new Map();

  /// Gives the device of that token, or of the channel that ends with it, a name.
  add(name, token) {
    this.#names.set(token, name);
    this.#expected.set(name, 0);
    return token;
  }

  get names() {
    return [...this.#expected.keys()];
  }

  async #update() {
    const answer = await fetch(`${environment.SIMULATOR_URL}/received?after=${this.#next}`);
    const { received, next, dropped } = await answer.json();
    if (dropped) throw new Error(`the simulator has dropped ${dropped}`);
    this.#next = next;
    for (const one of received) {
      const known = [...this.#names.keys()].find(
        (token) => one.token === token || one.path.endsWith(token));
      if (known) this.#received.push({ ...one, name: this.#names.get(known) });
    }
  }

  /// Returns the notifications of a device, oldest first.
  async received(name) {
    await this.#update();
    return this.#received.filter((one) => one.name === name);
  }

  /// Expects a finished push with the text `text` to have reached just these devices, once each;
  /// returns their notifications by name.
  async heard(what, text, hearers) {
    await this.#update();
    const rung = this.#received.filter((one) => {
      const body = typeof one.body === "string" ? one.body : JSON.stringify(one.body);
      return body.includes(text);
    });
    check(`${what}: who got it`, rung.map((one) => one.name).sort(), [...hearers].sort());
    check(`${what}: that it was right`, rung.filter((one) => one.status !== 200), []);
    for (const name of hearers) this.#expected.set(name, this.#expected.get(name) + 1);
    return Object.fromEntries(rung.map((one) => [one.name, one]));
  }

  /// Expects that no device got anything unexpected.
  async nothingElse() {
    await this.#update();
    const counts = new Map([...this.#expected.keys()].map((name) => [name, 0]));
    for (const one of this.#received) counts.set(one.name, counts.get(one.name) + 1);
    check("each device got what it was sent", counts, this.#expected);
  }
}

/// Runs the scenario that the command line names.
export async function main(scenarios) {
  try {
    await scenarios[process.argv[2]]();
  } catch (error) {
    problems += 1;
    console.error("the scenario did not go on:", error);
  }
  console.log(JSON.stringify({ checked, problems }));
  // The packages may keep connections and timers.
  process.exit(problems ? 1 : 0);
}

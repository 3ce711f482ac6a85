// Registers this browser as an installation, and shows the pushes that arrive over `carillon.push.v1`.
// Everything that the protocol needs is in `PushConnection`; the rest is the page.

/** Waits that grow from one to sixty seconds, half of each by chance. */
const pause = (attempt) => {
  const limit = Math.min(60_000, 1000 * 2 ** attempt);
  return limit / 2 + Math.random() * limit / 2;
};

/** Creates the installation, or updates its channels. Its id is a secret of this browser. */
export async function register({ registration, app, key, installation, channels }) {
  const response = await fetch(`${registration}/1.1/installations`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-LC-Id": app, "X-LC-Key": key },
    body: JSON.stringify({ deviceType: "web", installationId: installation, channels }),
  });
  if (!response.ok) throw new Error(`registration: ${response.status} ${await response.text()}`);
}

/** Asks registration for the nodes of this device: the first, and another one for when it fails. */
export async function findNodes({ registration, app, installation }) {
  const secure = registration.startsWith("https:") ? 1 : 0;
  const query = new URLSearchParams({ appId: app, installationId: installation, secure });
  const response = await fetch(`${registration}/v1/route?${query}`);
  if (!response.ok) throw new Error(`no connection node: ${response.status}`);
  const { server, secondary } = await response.json();
  return [server, secondary];
}

/** A connection that stays: it comes back after every close, acknowledges, and drops repeats. */
export class PushConnection {
  #device;
  #nodes;
  #handlers;
  #socket = null;
  #timers = new Set();
  #attempt = 0;
  #isStopped = false;
  /** The ids of the last messages; a repeat has the same one. */
  #known = [];

  /**
   * @param device `{app, key, installation, secret?}`
   * @param nodes addresses, tried in turn
   * @param handlers `{push(message), state(text)}`; a push is acknowledged when `push` has returned
   */
  constructor(device, nodes, handlers) {
    [this.#device, this.#nodes, this.#handlers] = [device, nodes, handlers];
    this.#connect();
  }

  /** Reports that the user opened a push. */
  opened(id) { this.#send({ type: "opened", ids: [id] }); }

  stop() {
    this.#isStopped = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#socket?.close();
  }

  #connect() {
    if (this.#isStopped) return;
    this.#handlers.state("connecting");
    const node = this.#nodes[this.#attempt % this.#nodes.length];
    const socket = new WebSocket(node, "carillon.push.v1");
    let wait = null;
    let pings = null;
    this.#socket = socket;
    socket.onopen = () => this.#send({ type: "hello", ...this.#device });
    socket.onmessage = async ({ data }) => {
      const message = JSON.parse(data);
      switch (message.type) {
        case "ready":
          this.#attempt = 0;
          this.#handlers.state("connected");
          pings = setInterval(() => this.#send({ type: "ping" }), message.pingSeconds * 1000);
          break;
        case "push":
          await this.#take(message);
          break;
        case "refused":
          this.#isStopped = !message.retry;
          this.#handlers.state(`refused: ${message.error}`);
          break;
        case "goaway":
          wait = message.reconnectAfterMs;
          break;
      }
    };
    socket.onclose = () => {
      clearInterval(pings);
      if (this.#isStopped) return;
      this.#handlers.state("disconnected");
      this.#after(wait ?? pause(this.#attempt), () => this.#connect());
      this.#attempt += 1;
    };
  }

  async #take(message) {
    if (!this.#known.includes(message.id)) {
      await this.#handlers.push(message);
      this.#known = [...this.#known.slice(-199), message.id];
    }
    this.#send({ type: "ack", ids: [message.id] });
  }

  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #after(milliseconds, work) {
    const timer = setTimeout(() => { this.#timers.delete(timer); work(); }, milliseconds);
    this.#timers.add(timer);
  }
}

// The page.

const form = document.getElementById("form");
const state = document.getElementById("state");
const pushes = document.getElementById("pushes");
let connection = null;

/** The id of this browser's installation, made once. */
function installationID() {
  let id = localStorage.getItem("carillon.installation");
  if (!id) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    id = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    localStorage.setItem("carillon.installation", id);
  }
  return id;
}

function show(push) {
  const item = document.createElement("li");
  item.dataset.id = push.id;
  const alert = push.data.alert;
  const text = document.createElement("div");
  text.textContent = typeof alert === "object" ? alert?.body ?? "" : alert ?? "(no alert)";
  const time = document.createElement("time");
  time.dateTime = push.sentAt;
  time.textContent = new Date(push.sentAt).toLocaleString();
  const data = document.createElement("pre");
  data.textContent = JSON.stringify(push.data, null, 1);
  item.append(text, time, data);
  item.onclick = () => connection?.opened(push.id);
  pushes.prepend(item);
}

// Fields of the form may be given in the query: ?registration=…&app=…&key=…&channels=…
for (const [name, value] of new URLSearchParams(location.search)) {
  const field = form.elements.namedItem(name);
  if (field) field.value = value;
}

form.onsubmit = async (event) => {
  event.preventDefault();
  connection?.stop();
  const fields = Object.fromEntries(new FormData(form));
  const device = {
    app: fields.app.trim(), key: fields.key.trim(), installation: installationID(),
  };
  const registration = fields.registration.replace(/\/+$/, "");
  const channels = fields.channels.split(",").map((name) => name.trim()).filter(Boolean);
  try {
    state.textContent = "registering";
    await register({ ...device, registration, channels });
    const nodes = fields.connection
      ? [fields.connection.replace(/^http/, "ws")]
      : await findNodes({ ...device, registration });
    connection = new PushConnection(device, nodes, {
      push: show,
      state: (text) => { state.textContent = text; },
    });
  } catch (error) {
    state.textContent = error.message;
  }
};

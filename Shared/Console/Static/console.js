// The console's script. It saves reloads; every page works without it.
//
//   data-swap="#id"   on a form: send it, and replace that element by the response's
//   data-also="#id"   on such a form: replace that element, too
//   data-on="input"   on such a form: also after a change, once nothing was typed for 400 ms
//   data-act="count"  on such a form: the value of "do" for that
//   data-live="5"     on an element with an id: renew it every 5 s, until the response has no data-live
//   data-copy="#id"   on a button: copy that element's text
//   data-focus="#id"  on a link: move the focus there
//   data-keep         on a form: ask before unsent input is lost

"use strict";

const running = new Map();

/** Requests a page and returns it if it has an element with this id; the last request for an id wins. */
async function request(address, id, options = {}) {
  running.get(id)?.abort();
  const control = new AbortController();
  running.set(id, control);
  try {
    const response = await fetch(address, { ...options, signal: control.signal, credentials: "same-origin" });
    if (!response.ok && response.status !== 422) throw new Error(String(response.status));
    // A session that ended shows another page: follow it, as a browser would.
    if (response.redirected && !new URL(response.url).pathname.startsWith(new URL(address, location).pathname)) {
      location.assign(response.url);
      return null;
    }
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return page.getElementById(id) ? page : null;
  } finally {
    if (running.get(id) === control) running.delete(id);
  }
}

/** Replaces an element; an element that has the focus keeps it. */
function replace(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  old.replaceWith(fresh);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  prepare(fresh);
}

function say(text) {
  const voice = document.getElementById("voice");
  if (voice) voice.textContent = text;
}

async function swap(form, act) {
  const id = form.dataset.swap.slice(1);
  const data = new URLSearchParams(new FormData(form));
  if (act) data.set("do", act);
  const isGet = form.method === "get";
  const address = isGet ? `${form.action.split("?")[0]}?${data}` : form.action;
  try {
    const page = await request(address, id, isGet ? {} : { method: "POST", body: data });
    if (!page) return;
    for (const each of [id, form.dataset.also?.slice(1)]) {
      const [old, fresh] = [document.getElementById(each), page.getElementById(each)];
      if (old && fresh) replace(old, fresh);
    }
    if (isGet) history.pushState({}, "", address);
    else say(document.getElementById(id).textContent.trim().slice(0, 120));
  } catch (error) {
    if (error.name !== "AbortError") form.dataset.failed = "yes";
  }
}

function renew(element) {
  const seconds = Number(element.dataset.live);
  let wait = seconds;
  const again = () => setTimeout(async () => {
    const old = document.getElementById(element.id);
    if (!old || !old.dataset.live) return;
    // Nothing moves under a reader's focus, and a hidden page costs nothing.
    if (document.hidden || old.contains(document.activeElement)) return again();
    try {
      const page = await request(location.href, element.id);
      wait = seconds;
      if (page) {
        const fresh = page.getElementById(element.id);
        if (fresh.dataset.live) return replace(old, fresh);
        // The end changes more than this element, such as the buttons above it.
        return replace(document.getElementById("main"), page.getElementById("main"));
      }
      if (!document.getElementById(element.id)) return;
      // The page has become another one, such as the first device's.
      return location.reload();
    } catch {
      wait = Math.min(wait * 2, 60);
    }
    again();
  }, wait * 1000);
  again();
}

function prepare(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.onclick = async () => {
      const text = document.querySelector(button.dataset.copy)?.textContent ?? "";
      await navigator.clipboard?.writeText(text);
      say(button.textContent);
    };
  }
  const live = root.matches?.("[data-live]") ? [root, ...root.querySelectorAll("[data-live]")] : root.querySelectorAll("[data-live]");
  for (const element of live) renew(element);
  for (const link of root.querySelectorAll("[data-focus]")) {
    link.onclick = (event) => {
      const field = document.querySelector(link.dataset.focus);
      if (!field) return;
      event.preventDefault();
      field.closest("details")?.setAttribute("open", "");
      (field.matches("fieldset") ? field.querySelector("input") : field).focus();
    };
  }
  for (const form of root.querySelectorAll("form[data-keep]")) {
    let isChanged = false;
    form.addEventListener("input", () => { isChanged = true; });
    form.addEventListener("submit", () => { isChanged = false; });
    addEventListener("beforeunload", (event) => { if (isChanged) event.preventDefault(); });
  }
  for (const form of root.querySelectorAll("form[data-swap]")) {
    form.addEventListener("submit", (event) => {
      const act = event.submitter?.value;
      if (form.method === "post" && act !== form.dataset.act) return;
      event.preventDefault();
      swap(form, act);
    });
    if (form.dataset.on === "input") {
      let timer = 0;
      form.addEventListener("input", () => {
        clearTimeout(timer);
        timer = setTimeout(() => swap(form, form.dataset.act), 400);
      });
    }
  }
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.key !== "/") return;
  const search = document.querySelector("input[type=search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
});

addEventListener("popstate", () => location.reload());
prepare(document);

/** The bar above the answers: saved conversations, a new one, and what writes the answers. */

import { call, get, path, url } from "./api.js";
import { current, go } from "./address.js";
import { askName } from "./dialogs.js";
import { counted, h, notice, refill } from "./dom.js";
import { generatorMenu } from "./generators.js";

const MAX_SHOWN = 100;

/** Parts of the address that belong to a conversation. */
const NOTHING = { thread: undefined, turn: undefined, q: undefined, word: undefined, cell: undefined };

/** Begin a new conversation. */
export const startNew = () => go(NOTHING);

class Threads extends HTMLElement {
  /** @type {any[]} */ threads = [];
  problem = "";
  isOpen = false;
  /** @type {Set<string>} */ deleted = new Set();

  connectedCallback() {
    this.setAttribute("role", "region");
    this.setAttribute("aria-label", "Conversations");
    this.toggle = h("button", { class: "quiet small", "aria-expanded": false, "aria-controls": "threads", onclick: () => this.open(!this.isOpen) }, "Conversations ▾");
    this.fresh = h("button", { class: "small", onclick: startNew }, "New conversation");
    this.list = h("ul", { id: "threads", hidden: true });
    this.append(h("div", { class: "talkbar" }, this.toggle, this.fresh, generatorMenu()), this.list);
    this.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.isOpen) return;
      event.stopPropagation(); // which would close the page
      this.open(false);
      this.toggle?.focus();
    });
    window.addEventListener("view", () => this.show());
    window.addEventListener("conversation", () => this.load());
    this.load();
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this.isOpen = isOpen;
    if (isOpen) this.load(); // others may have asked meanwhile
    this.show();
  }

  async load() {
    try {
      this.threads = await get("threads");
      this.problem = "";
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
    }
    this.show();
    window.dispatchEvent(new CustomEvent("threads"));
  }

  /** Saved conversations with at least one answer, the latest first. */
  get shown() {
    return this.threads.filter((one) => one.length && !this.deleted.has(one.id));
  }

  show() {
    const { thread, q } = current();
    if (this.fresh) this.fresh.hidden = !thread && !q;
    this.toggle?.setAttribute("aria-expanded", String(this.isOpen));
    if (!this.list) return;
    this.list.hidden = !this.isOpen;
    if (!this.isOpen) return;
    const { shown } = this;
    refill(this.list, ...shown.slice(0, MAX_SHOWN).map((one) => this.entry(one, one.id === thread)),
      shown.length > MAX_SHOWN ? h("li", { class: "soft small" }, `${shown.length - MAX_SHOWN} older ones: see “visar threads”`) : null,
      this.problem ? h("li", { class: "small" }, h("span", { class: "bad", role: "alert" }, this.problem), h("button", { class: "link", onclick: () => this.load() }, "Try again")) : null,
      shown.length || this.problem ? null : h("li", { class: "soft small" }, "Your questions and answers are kept here."));
  }

  /** @param {any} one @param {boolean} isCurrent */
  entry(one, isCurrent) {
    const visit = () => {
      this.isOpen = false;
      go({ ...NOTHING, thread: one.id, document: undefined, collection: undefined, shown: undefined, page: undefined });
    };
    const rename = () => askName("Rename conversation", { label: "Name of the conversation", value: one.name, action: "Rename" }, async (name) => {
      await call("PATCH", `threads/${path(one.id)}`, { name });
      this.load().then(() => this.toggle?.focus()); // the button that was used is replaced
    });
    const file = (/** @type {string} */ format, /** @type {string} */ text) => h("a", { href: url(`threads/${path(one.id)}/export?format=${format}`), download: "", "aria-label": `Export ${one.name} as ${text}` }, `${text} ↓`);
    const asked = new Date(one.updated).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
    return h("li", {},
      h("button", { class: "entry", "aria-current": isCurrent, onclick: visit }, one.name, h("div", { class: "soft small" }, `${counted(one.length, "question")} · ${asked}`)),
      h("span", { class: "acts small" },
        h("button", { class: "link", "aria-label": `Rename ${one.name}`, onclick: rename }, "Rename"), file("markdown", "Markdown"), file("html", "HTML"),
        h("button", { class: "link", "aria-label": `Delete ${one.name}`, onclick: () => this.forget(one) }, "Delete")));
  }

  /** Hide a conversation now, and delete it unless the user changes their mind. @param {any} one */
  forget(one) {
    this.deleted.add(one.id);
    if (current().thread === one.id) startNew();
    const restore = () => {
      this.deleted.delete(one.id);
      this.show();
    };
    const remove = () => call("DELETE", `threads/${path(one.id)}`).then(() => this.load(), (error) => {
      restore();
      notice(error.message);
    });
    this.show();
    notice(`Deleted “${one.name}”.`, { action: "Undo", run: restore, done: remove });
  }
}

customElements.define("visar-threads", Threads);

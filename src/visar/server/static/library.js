/** The library: documents, files that are being added, and collections. */

import { call, get, path, url } from "./api.js";
import { current, go } from "./address.js";
import { arrange, counted, h, notice, refill } from "./dom.js";
import { attempt, queueItems } from "./queue.js";
import { Uploads } from "./uploads.js";

const DOCUMENTS_PER_REQUEST = 1000;
const DOCUMENTS_SHOWN = 200;
const QUEUE_SHOWN = 50;
const RECONNECT_MILLISECONDS = 5000;

class Library extends HTMLElement {
  /** By id, oldest first. @type {Map<string, any>} */ documents = new Map();
  /** @type {any[]} */ collections = [];
  /** @type {Map<string, any>} */ jobs = new Map();
  /** @type {Set<string>} */ removed = new Set();
  uploads = new Uploads(() => this.show(), (job) => this.jobs.set(job.id, this.jobs.get(job.id) ?? job));
  isLoaded = false;
  problem = "";
  filter = "";
  limit = DOCUMENTS_SHOWN;

  connectedCallback() {
    this.setAttribute("aria-label", "Library");
    this.setAttribute("role", "complementary");
    this.build();
    this.loading = this.load();
    this.follow();
    window.addEventListener("view", () => this.show());
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      attempt(this.drop(event.dataTransfer));
    });
  }

  build() {
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true, class: "hidden", id: "files" }));
    input.addEventListener("change", () => {
      this.uploads.add([...(input.files ?? [])]);
      input.value = ""; // so that the same file can be selected again
    });
    const filter = /** @type {HTMLInputElement} */ (h("input", { class: "filter", type: "search", placeholder: "Find a document", "aria-label": "Find a document by name" }));
    filter.addEventListener("input", () => {
      this.filter = filter.value.toLowerCase();
      this.limit = DOCUMENTS_SHOWN;
      this.show();
    });
    this.lost = h("p", { class: "small bad", role: "status" });
    this.list = h("ul");
    this.groups = h("ul");
    this.append(
      h("h2", { class: "label" }, "Library"), this.lost, filter, this.list,
      h("label", { class: "drop", for: "files" }, input, "Drop files or a folder here, or click to choose"),
      h("h2", { class: "label" }, "Collections"), this.groups);
  }

  async load() {
    try {
      const documents = new Map();
      for (let offset = 0, part; !part || part.length === DOCUMENTS_PER_REQUEST; offset += part.length) {
        part = await get(`documents?offset=${offset}&limit=${DOCUMENTS_PER_REQUEST}`);
        for (const one of part) documents.set(one.id, one);
      }
      this.collections = await get("collections");
      this.documents = documents;
      this.problem = "";
    } catch (error) {
      this.problem = /** @type {Error} */ (error).message;
    }
    this.isLoaded = true;
    this.changed();
  }

  changed() {
    this.show();
    window.dispatchEvent(new CustomEvent("library"));
  }

  /** Follow the jobs of the server. */
  follow() {
    const events = new EventSource(url("jobs/events"));
    const { lost } = this;
    events.addEventListener("job", (event) => {
      const job = JSON.parse(event.data);
      const before = this.jobs.get(job.id);
      this.jobs.set(job.id, job);
      if (job.state === "done" && before && before.state !== "done") attempt(this.added(job.document));
      else this.show();
    });
    events.addEventListener("forgotten", (event) => {
      this.jobs.delete(JSON.parse(event.data).id);
      this.show();
    });
    events.onopen = () => {
      if (!lost?.textContent) return;
      lost.textContent = "";
      this.loading = this.load();
    };
    events.onerror = () => {
      if (lost) lost.textContent = "Connection lost. Reconnecting …";
      // The browser gives up when it gets an error page, such as that of a proxy.
      if (events.readyState === EventSource.CLOSED) setTimeout(() => this.follow(), RECONNECT_MILLISECONDS);
    };
  }

  /** @param {string} id */
  async added(id) {
    await this.loading;
    this.documents.set(id, await get(`documents/${path(id)}`));
    this.collections = await get("collections");
    this.changed();
  }

  /** @param {DataTransfer | null} transfer */
  async drop(transfer) {
    // Items are only there until the first await. Some are files without an entry.
    const items = [...(transfer?.items ?? [])].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
    /** @type {File[]} */ const files = [];
    const walk = async (/** @type {any} */ entry) => {
      if (entry.isFile) files.push(await new Promise((resolve, reject) => entry.file(resolve, reject)));
      else {
        const reader = entry.createReader();
        for (;;) {
          const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
          if (!part.length) break;
          for (const one of part) await walk(one);
        }
      }
    };
    for (const item of items) {
      if (item instanceof File) files.push(item);
      else if (item) await walk(item);
    }
    this.uploads.add(files);
  }

  /** Documents that match the filter and the selected collection, newest first. */
  matching() {
    const { collection } = current();
    return [...this.documents.values()].reverse().filter((one) => !this.removed.has(one.id) && one.name.toLowerCase().includes(this.filter) && (!collection || one.collections.includes(collection)));
  }

  show() {
    const { document: selected, collection } = current();
    const queue = queueItems(this.uploads, [...this.jobs.values()]);
    const documents = this.matching();
    const entries = [
      ...queue.slice(0, QUEUE_SHOWN),
      ...(queue.length > QUEUE_SHOWN ? [this.line(`${counted(queue.length - QUEUE_SHOWN, "more file")} in the queue`)] : []),
      ...documents.slice(0, this.limit).map((one) => ({ key: `document ${one.id}`, make: () => this.entry(one), refresh: (/** @type {HTMLElement} */ item) => item.firstElementChild?.setAttribute("aria-current", String(one.id === selected)) })),
    ];
    if (documents.length > this.limit) entries.push(this.more(documents.length - this.limit));
    if (this.problem) entries.push(this.line(this.problem, () => (this.loading = this.load())));
    else if (!this.isLoaded) entries.push(this.line("Loading …"));
    else if (!documents.length && (this.filter || !queue.length)) entries.push(this.line(this.filter ? "No document has this in its name." : "No documents yet."));
    if (!this.list || !this.groups) return;
    arrange(this.list, entries);
    const link = (/** @type {string} */ text, /** @type {() => void} */ act) => h("li", {}, h("button", { class: "link small", onclick: act }, text));
    refill(this.groups,
      ...this.collections.map((one) =>
        h("li", {}, h("button", { class: "entry", "aria-current": one.name === collection, onclick: () => go({ collection: one.name === collection ? undefined : one.name, document: undefined }) },
          one.name, h("div", { class: "soft small" }, counted(one.documents, "document"))))),
      collection ? link("Rename collection", () => this.rename(collection)) : null,
      collection ? link("Delete collection (documents are kept)", () => this.changeCollection("DELETE", path(collection), undefined, undefined)) : null,
      !collection && documents.length ? link(`New collection from ${counted(documents.length, "document")}`, () => this.collect(documents)) : null,
      this.documents.size ? null : h("li", { class: "line soft small" }, "Groups of documents that you search together."));
  }

  /** @param {string} text @param {() => void} [retry] */
  line(text, retry) {
    return { key: text, make: () => h("li", { class: `line small ${retry ? "bad" : "soft"}` }, h("span", { role: retry ? "alert" : null }, text), retry ? h("button", { class: "link", onclick: retry }, "Try again") : null) };
  }

  /** @param {number} count */
  more(count) {
    const show = () => {
      this.limit += DOCUMENTS_SHOWN;
      this.show();
    };
    return { key: "more", make: () => h("li", {}, h("button", { class: "link small", onclick: show })), refresh: (/** @type {HTMLElement} */ item) => { if (item.firstChild) item.firstChild.textContent = `Show more (${count.toLocaleString("en")} left)`; } };
  }

  /** @param {any} one */
  entry(one) {
    const open = () => go({ document: one.id, collection: undefined, shown: one.id, page: current().shown === one.id ? current().page : "1", q: undefined, word: undefined, cell: undefined });
    return h("li", { class: "row" },
      h("button", { class: "entry", onclick: open }, one.name, h("div", { class: "soft small" }, counted(one.pages, "page"), one.no_text ? h("span", { class: "bad" }, " · no text found") : null)),
      h("button", { class: "quiet small", "aria-label": `Remove ${one.name}`, onclick: () => this.removeDocument(one) }, "×"));
  }

  /** Hide a document now, and delete it unless the user changes their mind. @param {any} one */
  removeDocument(one) {
    const { document: selected, shown } = current();
    this.removed.add(one.id);
    if (selected === one.id) go({ document: undefined });
    if (shown === one.id) go({ shown: undefined, page: undefined });
    const restore = () => {
      this.removed.delete(one.id);
      this.changed();
    };
    const remove = async () => {
      try {
        await call("DELETE", `documents/${path(one.id)}`);
        this.documents.delete(one.id);
        this.collections = await get("collections");
        window.dispatchEvent(new CustomEvent("removed", { detail: one.id }));
      } finally {
        restore();
      }
    };
    this.changed();
    notice(`Removed ${one.name}.`, { action: "Undo", run: restore, done: () => attempt(remove()) });
  }

  /** @param {any[]} documents */
  collect(documents) {
    const name = window.prompt("Name of the collection")?.trim();
    if (name) this.changeCollection("PUT", `${path(name)}/documents`, { documents: documents.map((one) => one.id) }, name);
  }

  /** @param {string} collection */
  rename(collection) {
    const name = window.prompt("New name", collection)?.trim();
    if (name) this.changeCollection("PATCH", path(collection), { name }, name);
  }

  /** @param {string} method @param {string} where @param {unknown} body @param {string | undefined} collection the one to select afterwards */
  async changeCollection(method, where, body, collection) {
    try {
      await call(method, `collections/${where}`, body);
      await (this.loading = this.load());
      go({ collection, document: undefined });
    } catch (error) {
      notice(/** @type {Error} */ (error).message);
    }
  }
}

customElements.define("visar-library", Library);

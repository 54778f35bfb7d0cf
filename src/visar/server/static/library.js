/** The library: documents, those on their way, and collections. */

import { change, get, path, post, url } from "./api.js";
import { current, go } from "./address.js";
import { arrange, counted, h, notice, refill } from "./dom.js";
import { Uploads } from "./uploads.js";

const STAGES = { reading: "reading", ocr: "reading by OCR", encoding: "encoding" };

class Library extends HTMLElement {
  /** @type {any[]} */ documents = [];
  /** @type {any[]} */ collections = [];
  /** @type {Map<string, any>} */ jobs = new Map();
  uploads = new Uploads(() => this.show(), (job) => this.jobs.set(job.id, this.jobs.get(job.id) ?? job));
  /** @type {Set<string>} */ removed = new Set();
  filter = "";

  connectedCallback() {
    this.setAttribute("aria-label", "Library");
    this.setAttribute("role", "complementary");
    this.build();
    this.load();
    this.follow();
    window.addEventListener("view", () => this.show());
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      this.take(event.dataTransfer);
    });
  }

  build() {
    const input = /** @type {HTMLInputElement} */ (
      h("input", { type: "file", multiple: true, class: "hidden", id: "files" })
    );
    input.addEventListener("change", () => {
      this.uploads.add([...(input.files ?? [])]);
      input.value = ""; // so that the same file can be chosen again
    });
    const filter = /** @type {HTMLInputElement} */ (
      h("input", { class: "filter", type: "search", placeholder: "Find a document", "aria-label": "Find a document by its name" })
    );
    filter.addEventListener("input", () => {
      this.filter = filter.value.toLowerCase();
      this.show();
    });
    this.list = h("ul");
    this.groups = h("ul");
    this.append(
      h("h2", { class: "label" }, "Library"),
      filter,
      this.list,
      h("label", { class: "drop", for: "files" }, input, "Drop files or a folder here, or choose them"),
      h("h2", { class: "label" }, "Collections"),
      this.groups,
    );
  }

  async load() {
    try {
      [this.documents, this.collections] = await Promise.all([get("documents?limit=1000"), get("collections")]);
    } catch (error) {
      notice(/** @type {Error} */ (error).message);
    }
    this.show();
    this.dispatchEvent(new CustomEvent("loaded"));
  }

  follow() {
    const events = new EventSource(url("jobs/events"));
    events.addEventListener("job", (event) => {
      const job = JSON.parse(event.data);
      const before = this.jobs.get(job.id);
      this.jobs.set(job.id, job);
      if (job.state === "done" && before && before.state !== "done") this.load();
      else this.show();
    });
    events.addEventListener("forgotten", (event) => {
      this.jobs.delete(JSON.parse(event.data).id);
      this.show();
    });
    events.onerror = () => {
      this.classList.add("lost");
      // Browsers reconnect after a broken connection, but give up after a 503.
      if (events.readyState === EventSource.CLOSED) setTimeout(() => (this.load(), this.follow()), 3_000);
    };
    events.onopen = () => this.classList.remove("lost");
  }

  /** @param {DataTransfer | null} dropped */
  async take(dropped) {
    // Before anything is awaited: after that the items are gone. Some are files without an entry.
    const items = [...(dropped?.items ?? [])].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
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

  show() {
    const { document: chosen, collection } = current();
    /** @type {import("./dom.js").Item[]} */ const entries = [];
    for (const one of this.uploads.entries) {
      entries.push({ key: `upload ${one.id} ${one.problem}`, make: () => (one.problem ? this.refused(one, one.problem) : this.uploading(one)), refresh: (item) => progress(item, one.cancelled ? "cancelling" : one.share ? `sending, ${Math.round(one.share * 100)} %` : "waiting", one.share, 1) });
    }
    for (const job of [...this.jobs.values()].reverse()) {
      if (job.state === "done") continue;
      const busy = job.state === "waiting" || job.state === "running";
      entries.push({ key: `job ${job.id} ${busy || job.state} ${job.reason}`, make: () => this.job(job), refresh: busy ? (item) => progress(item, stage(job), job.pages_done, job.pages) : undefined });
    }
    for (const one of [...this.documents].reverse()) {
      if (this.removed.has(one.id) || !one.name.toLowerCase().includes(this.filter)) continue;
      if (collection && !one.collections.includes(collection)) continue;
      entries.push({ key: `document ${one.id}`, make: () => this.entry(one), refresh: (item) => item.firstElementChild?.setAttribute("aria-current", String(one.id === chosen)) });
    }
    const none = this.filter ? "No document has that in its name." : "Nothing here yet.";
    if (!entries.some((one) => one.key.startsWith("document")) && (this.filter || !entries.length)) entries.push({ key: none, make: () => h("li", { class: "soft small" }, none) });
    if (!this.list || !this.groups) return;
    arrange(this.list, entries);
    refill(this.groups,
      ...this.collections.map((one) =>
        h("li", {}, h("button", { class: "entry", "aria-current": one.name === collection, onclick: () => go({ collection: one.name === collection ? undefined : one.name, document: undefined }) },
          one.name, h("div", { class: "soft small" }, counted(one.documents, "document")))),
      ),
      ...(collection ? [h("li", {}, h("button", { class: "link small", onclick: () => this.dissolve(collection) }, "End this collection"))] : []),
      this.documents.length ? h("li", {}, h("button", { class: "link small", onclick: () => this.collect() }, collection ? "Rename this collection" : "New collection from the shown documents")) : h("li", { class: "soft small" }, "Groups of documents to ask at once."),
    );
  }

  /** @param {any} one */
  entry(one) {
    const open = () => go({ document: one.id, collection: undefined, shown: one.id, page: current().shown === one.id ? current().page : "1", q: undefined, word: undefined, cell: undefined });
    return h("li", { class: "row" },
      h("button", { class: "entry", onclick: open }, one.name, h("div", { class: "soft small" }, counted(one.pages, "page"))),
      h("button", { class: "quiet small", "aria-label": `Remove ${one.name}`, onclick: () => this.remove_(one) }, "×"));
  }

  /** @param {import("./uploads.js").Sending} one */
  uploading(one) {
    return h("li", { class: "entry" }, one.name,
      h("div", { class: "row small soft" }, h("span"), h("button", { class: "link", onclick: () => this.uploads.cancel(one) }, "Cancel")),
      h("progress", { "aria-label": `Sending ${one.name}` }));
  }

  /** @param {import("./uploads.js").Sending} one @param {string} why */
  refused(one, why) {
    const again = () => {
      this.uploads.forget(one);
      this.uploads.add([one.file]);
    };
    return h("li", { class: "entry" }, one.name, h("div", { class: "small bad" }, why),
      h("div", { class: "small" }, h("button", { class: "link", onclick: again }, "Try again"), h("button", { class: "link", "aria-label": `Dismiss ${one.name}`, onclick: () => this.uploads.forget(one) }, "Dismiss")));
  }

  /** @param {any} job */
  job(job) {
    const act = (/** @type {string} */ what, body = {}) => post(`jobs/${path(job.id, what)}`, body).catch((error) => notice(error.message));
    const entry = h("li", { class: "entry" }, job.name);
    if (job.state === "waiting" || job.state === "running") {
      entry.append(
        h("div", { class: "row small soft" }, h("span"), h("button", { class: "link", onclick: () => act("cancel") }, "Cancel")),
        h("progress", { "aria-label": `Adding ${job.name}` }));
      return entry;
    }
    const drop = h("button", { class: "link", "aria-label": `Dismiss ${job.name}`, onclick: () => change("DELETE", `jobs/${path(job.id)}`) }, "Dismiss");
    if (job.code === "password") {
      const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", class: "filter", "aria-label": `Password of ${job.name}`, placeholder: "Password", autocomplete: "off" }));
      const form = h("form", { class: "row" }, field, h("button", {}, "Open"));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        act("retry", { password: field.value });
      });
      entry.append(h("div", { class: "small bad" }, "encrypted: it needs a password"), form, drop);
      return entry;
    }
    const why = job.state === "cancelled" ? "cancelled" : job.reason;
    entry.append(h("div", { class: `small ${job.state === "failed" ? "bad" : "soft"}` }, why),
      h("div", { class: "small" }, h("button", { class: "link", onclick: () => act("retry") }, "Try again"), drop));
    return entry;
  }

  /** Gone from sight at once, from the index when there was time to think again. @param {any} one */
  remove_(one) {
    this.removed.add(one.id);
    this.show();
    notice(`${one.name} is removed.`, {
      action: "Undo",
      run: () => {
        this.removed.delete(one.id);
        this.show();
      },
      done: async () => {
        try {
          await change("DELETE", `documents/${path(one.id)}`);
        } catch (error) {
          this.removed.delete(one.id);
          notice(/** @type {Error} */ (error).message);
        }
        this.load();
      },
    });
  }

  /** Its documents stay, so nothing is asked. @param {string} collection */
  async dissolve(collection) {
    try {
      await change("DELETE", `collections/${path(collection)}`);
      await this.load();
      go({ collection: undefined });
    } catch (error) {
      notice(/** @type {Error} */ (error).message);
    }
  }

  async collect() {
    const { collection } = current();
    const name = window.prompt(collection ? "Its new name" : "Name of the collection", collection ?? "")?.trim();
    if (!name) return;
    try {
      if (collection) await change("PATCH", `collections/${path(collection)}`, { name });
      else {
        const shown = this.documents.filter((one) => one.name.toLowerCase().includes(this.filter));
        await change("PUT", `collections/${path(name)}/documents`, { documents: shown.map((one) => one.id) });
      }
      await this.load();
      go({ collection: name, document: undefined });
    } catch (error) {
      notice(/** @type {Error} */ (error).message);
    }
  }
}

/** @param {any} job */
function stage(job) {
  if (job.state === "waiting") return "waiting";
  const doing = STAGES[/** @type {keyof STAGES} */ (job.stage)] ?? "opening";
  return job.pages ? `${doing} page ${job.pages_done} of ${job.pages}` : doing;
}

/** @param {HTMLElement} item @param {string} said @param {number} done @param {number} all */
function progress(item, said, done, all) {
  const bar = item.querySelector("progress");
  const text = item.querySelector(".row > span");
  if (!bar || !text) return;
  text.textContent = said;
  Object.assign(bar, { max: Math.max(1, all), value: done });
}

customElements.define("visar-library", Library);

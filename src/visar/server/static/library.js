/** The library: documents, files that are being added, and collections. */

import { call, follow, get, path } from "./api.js";
import { current, go } from "./address.js";
import { arrange, counted, h, moreItem, notice, refill } from "./dom.js";
import { askName } from "./dialogs.js";
import { fileName } from "./names.js";
import { Queue, attempt } from "./queue.js";
import { Selection } from "./selection.js";
import { droppedFiles } from "./uploads.js";

const DOCUMENTS_PER_REQUEST = 1000;
const DOCUMENTS_SHOWN = 200;
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const byName = (/** @type {any} */ a, /** @type {any} */ b) => collator.compare(a.name, b.name);
/** Sort documents that stand in the order in which they were added. @type {Record<string, (documents: any[]) => any[]>} */
const SORTS = {
  Newest: (documents) => documents.reverse(),
  Name: (documents) => documents.sort(byName),
  Pages: (documents) => documents.sort((a, b) => b.pages - a.pages || byName(a, b)),
};

export class Library extends HTMLElement {
  /** By id, oldest first. @type {Map<string, any>} */ documents = new Map();
  /** @type {any[]} */ sorted = [];
  /** @type {any[]} */ collections = [];
  /** @type {Set<string>} */ removed = new Set();
  queue = new Queue(() => this.show(), (id) => attempt(this.added(id)));
  selection = new Selection(this);
  isLoaded = false;
  isLost = false;
  wasConnected = false;
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
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.classList.add("dragging");
    });
    // Leaving the page enters no other element.
    document.addEventListener("dragleave", (event) => this.classList.toggle("dragging", event.relatedTarget !== null));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      this.classList.remove("dragging");
      attempt(droppedFiles(event.dataTransfer).then((files) => this.queue.uploads.add(files)));
    });
    this.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.selection.isOn) return;
      event.stopImmediatePropagation(); // which would close the library, or the page
      this.selection.turn(false);
    });
  }

  build() {
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "file", multiple: true, class: "hidden", id: "files" }));
    input.addEventListener("change", () => {
      this.queue.uploads.add([...(input.files ?? [])]);
      input.value = ""; // so that the same file can be selected again
    });
    const filter = /** @type {HTMLInputElement} */ (h("input", { class: "filter", type: "search", placeholder: "Find a document", "aria-label": "Find a document by name" }));
    filter.addEventListener("input", () => {
      this.filter = filter.value.toLowerCase();
      this.limit = DOCUMENTS_SHOWN;
      this.show();
    });
    this.sort = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Sort documents", class: "small" }, ...Object.keys(SORTS).map((name) => h("option", {}, name))));
    if (Object.hasOwn(SORTS, localStorage.getItem("sort") ?? "")) this.sort.value = localStorage.getItem("sort") ?? "";
    this.sort.addEventListener("change", () => {
      localStorage.setItem("sort", this.sort?.value ?? "");
      this.list?.scrollTo(0, 0);
      this.sortDocuments();
      this.show();
    });
    this.select = h("button", { class: "link small", "aria-pressed": false, onclick: () => this.selection.turn(!this.selection.isOn) });
    this.banner = h("p", { class: "banner", role: "status" });
    document.querySelector("header")?.before(this.banner);
    this.list = h("ul", { class: "documents", "aria-label": "Documents" });
    this.groups = h("ul", { class: "collections" });
    this.append(
      h("div", { class: "heading" }, h("h2", { class: "label" }, "Library"), this.sort, this.select), filter,
      this.queue.summary, this.queue.list, this.selection.bar, this.list,
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
    this.sortDocuments();
    this.show();
    window.dispatchEvent(new CustomEvent("library"));
  }

  sortDocuments() {
    this.sorted = SORTS[this.sort?.value ?? "Newest"]([...this.documents.values()]);
  }

  /** Follow the jobs of the server. */
  follow() {
    const take = { job: (/** @type {any} */ job) => this.queue.take(job), forgotten: (/** @type {any} */ job) => this.queue.forget(job.id) };
    follow("jobs/events", take, (isConnected) => {
      if (isConnected && this.isLost) {
        this.loading = this.load();
        attempt(this.queue.forgetMissing());
      }
      this.isLost = !isConnected;
      this.wasConnected ||= isConnected; // without a token it never is, and isn't lost
      if (this.banner) this.banner.textContent = this.wasConnected && this.isLost ? "Connection lost. Reconnecting …" : "";
    });
  }

  /** @param {string} id */
  async added(id) {
    await this.loading;
    this.documents.set(id, await get(`documents/${path(id)}`));
    this.collections = await get("collections");
    this.changed();
  }

  /** Documents that match the filter and the selected collection, as they are sorted. */
  matching() {
    const { collection } = current();
    return this.sorted.filter((one) => !this.removed.has(one.id) && one.name.toLowerCase().includes(this.filter) && (!collection || one.collections.includes(collection)));
  }

  show() {
    const { list, selection, queue, select } = this;
    if (!list || !select) return;
    const { document: selected, collection } = current();
    const documents = this.matching();
    queue.show();
    const isEmpty = this.isLoaded && !this.problem && !this.documents.size && !queue.list.childElementCount;
    selection.show();
    /** @type {import("./dom.js").Item[]} */ const entries = documents.slice(0, this.limit).map((one) => ({ key: `document ${one.id}`, make: () => this.entry(one), refresh: (/** @type {HTMLElement} */ item) => this.refresh(item, one.id, selected) }));
    if (documents.length > this.limit) entries.push(moreItem((documents.length - this.limit).toLocaleString("en"), () => this.showMore()));
    if (this.problem) entries.push(this.line(this.problem, () => (this.loading = this.load())));
    else if (!this.isLoaded) entries.push(this.line("Loading …"));
    else if (!documents.length && this.filter) entries.push(this.line("No document has this in its name."));
    else if (!documents.length && !queue.list.childElementCount) entries.push(this.line("No documents yet."));
    arrange(list, entries);
    this.classList.toggle("bare", isEmpty);
    this.classList.toggle("selecting", selection.isOn);
    select.textContent = selection.isOn ? "Done" : "Select";
    select.setAttribute("aria-pressed", String(selection.isOn));
    this.showCollections(collection);
  }

  /** @param {string | undefined} collection the selected one */
  showCollections(collection) {
    const link = (/** @type {string} */ text, /** @type {() => void} */ act) => h("li", {}, h("button", { class: "link small", onclick: act }, text));
    refill(/** @type {HTMLElement} */ (this.groups),
      ...this.collections.map((one) =>
        h("li", {}, h("button", { class: "entry", "aria-current": one.name === collection, onclick: () => go({ collection: one.name === collection ? undefined : one.name, document: undefined }) },
          one.name, h("div", { class: "soft small" }, counted(one.documents, "document"))))),
      collection ? link("Rename collection", () => this.rename(collection)) : null,
      collection ? link("Delete collection (documents are kept)", () => this.removeCollection(collection)) : null,
      this.collections.length ? null : h("li", { class: "line soft small" }, "Groups of documents that you search together. Select documents to make one."));
  }

  /** @param {string} text @param {() => void} [retry] */
  line(text, retry) {
    return { key: text, make: () => h("li", { class: `line small ${retry ? "bad" : "soft"}` }, h("span", { role: retry ? "alert" : null }, text), retry ? h("button", { class: "link", onclick: retry }, "Try again") : null) };
  }

  showMore() {
    this.limit += DOCUMENTS_SHOWN;
    this.show();
  }

  /** @param {any} one */
  entry(one) {
    const { selection } = this;
    const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", "aria-label": `Select ${one.name}` }));
    box.addEventListener("click", (event) => selection.set(one.id, box.checked, event.shiftKey));
    const open = () => {
      if (selection.isOn) box.click();
      else go({ document: one.id, collection: undefined, shown: one.id, page: current().shown === one.id ? current().page : "1", q: undefined, word: undefined, cell: undefined });
    };
    const pages = counted(one.pages, "page");
    const problem = one.no_text ? " · no text found" : failedPages(one);
    return h("li", { class: "row" }, h("label", { class: "pick" }, box),
      h("button", { class: "entry", "aria-label": `${one.name} ${pages}${problem}`, onclick: open }, fileName(one.name), h("div", { class: "soft small" }, pages, h("span", { class: "bad" }, problem))),
      h("button", { class: "quiet small", "aria-label": `Remove ${one.name}`, onclick: () => this.removeDocuments([one]) }, "×"));
  }

  /** @param {HTMLElement} item @param {string} id @param {string | undefined} selected */
  refresh(item, id, selected) {
    item.querySelector(".entry")?.setAttribute("aria-current", String(id === selected));
    /** @type {HTMLInputElement} */ (item.querySelector("input")).checked = this.selection.ids.has(id);
  }

  /** Hide documents now, and delete them unless the user changes their mind. @param {any[]} documents */
  removeDocuments(documents) {
    const { document: selected, shown } = current();
    const ids = documents.map((one) => one.id);
    for (const id of ids) this.removed.add(id);
    if (selected && ids.includes(selected)) go({ document: undefined });
    if (shown && ids.includes(shown)) go({ shown: undefined, page: undefined });
    const restore = () => {
      for (const id of ids) this.removed.delete(id);
      this.changed();
    };
    const remove = async () => {
      try {
        for (const id of ids) {
          await call("DELETE", `documents/${path(id)}`);
          this.documents.delete(id);
          window.dispatchEvent(new CustomEvent("removed", { detail: id }));
        }
        this.collections = await get("collections");
      } finally {
        restore();
      }
    };
    this.changed();
    const name = documents.length === 1 ? documents[0].name : counted(documents.length, "document");
    notice(`Removed ${name}.`, { action: "Undo", run: restore, done: () => attempt(remove()) });
  }

  /** Hide a collection now, and delete it unless the user changes their mind. @param {string} collection */
  removeCollection(collection) {
    const before = this.collections;
    this.collections = before.filter((one) => one.name !== collection);
    go({ collection: undefined });
    const restore = () => {
      this.collections = before;
      this.changed();
    };
    const remove = () => call("DELETE", `collections/${path(collection)}`).finally(() => (this.loading = this.load()));
    notice(`Deleted ${collection}.`, { action: "Undo", run: restore, done: () => attempt(remove()) });
  }

  /** @param {string} collection */
  rename(collection) {
    askName("Rename collection", { label: "New name", value: collection, action: "Rename" }, async (name) => {
      await call("PATCH", `collections/${path(collection)}`, { name });
      await this.changedCollections(name);
    });
  }

  /** Load the collections again, and select one. @param {string | undefined} collection */
  async changedCollections(collection) {
    await (this.loading = this.load());
    go({ collection, document: undefined });
  }
}

customElements.define("visar-library", Library);

/** Name the pages of a document that could not be read or encoded; a blank page is neither. @param {any} one */
function failedPages(one) {
  const failed = [...new Set(one.invalid.filter((/** @type {any} */ page) => page.reason !== "no text was found").map((/** @type {any} */ page) => page.number))];
  if (!failed.length) return "";
  return ` · can't read page ${failed.slice(0, 3).join(", ")}${failed.length > 3 ? ", …" : ""}`;
}

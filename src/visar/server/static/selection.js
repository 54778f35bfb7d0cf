/** Documents selected in the library, and what can be done with them together. */

import { call, path } from "./api.js";
import { counted, h, notice, refill } from "./dom.js";
import { askName } from "./dialogs.js";

export class Selection {
  /** @type {Set<string>} */ ids = new Set();
  isOn = false;
  /** The document that was selected or deselected last; shift extends from it. */
  anchor = "";
  bar = h("div", { class: "selection", role: "group", "aria-label": "Selected documents", hidden: true });

  /** @param {import("./library.js").Library} library */
  constructor(library) {
    this.library = library;
  }

  /** Start selecting, or stop and forget the selection. @param {boolean} isOn */
  turn(isOn) {
    this.isOn = isOn;
    this.ids.clear();
    this.library.show();
  }

  /**
   * Select or deselect a document, or all from the last one to it.
   * @param {string} id @param {boolean} isSelected @param {boolean} isRange
   */
  set(id, isSelected, isRange) {
    const listed = this.library.matching().map((one) => one.id);
    const [from, to] = [isRange ? listed.indexOf(this.anchor) : -1, listed.indexOf(id)].sort((a, b) => a - b);
    for (const one of from < 0 ? [id] : listed.slice(from, to + 1)) {
      if (isSelected) this.ids.add(one);
      else this.ids.delete(one);
    }
    this.anchor = id;
    this.isOn = true;
    this.library.show();
  }

  show() {
    const { library, ids } = this;
    for (const id of ids) if (!library.documents.has(id) || library.removed.has(id)) ids.delete(id);
    this.bar.hidden = !this.isOn;
    if (!this.isOn) return;
    const matching = library.matching();
    const isAll = matching.length > 0 && matching.every((one) => ids.has(one.id));
    const all = () => {
      for (const one of matching) {
        if (isAll) ids.delete(one.id);
        else ids.add(one.id);
      }
      library.show();
    };
    const button = (/** @type {string} */ text, /** @type {() => void} */ act) => h("button", { class: "small", disabled: !ids.size, onclick: act }, text);
    refill(this.bar,
      h("span", { class: "small", role: "status" }, ids.size ? `${ids.size.toLocaleString("en")} selected` : "Select documents"),
      h("button", { class: "link small", disabled: !matching.length, onclick: all }, isAll ? "Deselect all" : `Select all ${matching.length.toLocaleString("en")}`),
      h("span", { class: "actions" }, button("Add to collection", () => this.collect()), button("Remove", () => this.remove())));
  }

  documents() {
    return [...this.library.documents.values()].filter((one) => this.ids.has(one.id));
  }

  collect() {
    const { library } = this;
    const documents = this.documents().map((one) => one.id);
    askName(`Add ${counted(documents.length, "document")} to a collection`, { label: "Name of a new collection", action: "Create", existing: library.collections }, async (name) => {
      await call("PUT", `collections/${path(name)}/documents`, { documents });
      this.turn(false);
      notice(`Added ${counted(documents.length, "document")} to ${name}.`);
      await library.changedCollections(name);
    });
  }

  remove() {
    const documents = this.documents();
    this.turn(false);
    this.library.removeDocuments(documents);
  }
}

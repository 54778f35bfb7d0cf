/** Find words in the document that the viewer shows. */

import { get, path } from "./api.js";
import { current } from "./address.js";
import { h, place } from "./dom.js";

const TYPING_MILLISECONDS = 200;

/** @typedef {{page: number, boxes: number[][]}} Match */

export class Find {
  /** Those that the server has placed: the first ones, if there are thousands. @type {Match[]} */ matches = [];
  /** Number of all matches by page. @type {Map<number, number>} */ counts = new Map();
  /** Position of the match that the viewer is at. */
  position = -1;
  /** Document and words that were searched for last. */
  key = "";
  timer = 0;

  /** The match that was scrolled to. @type {Match | undefined} */ scrolled;

  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    this.field = /** @type {HTMLInputElement} */ (h("input", { type: "search", class: "filter", placeholder: "Find in this document", "aria-label": "Find in this document", maxlength: 200, autocomplete: "off" }));
    this.status = h("span", { class: "small soft", role: "status" });
    const step = (/** @type {string} */ label, /** @type {string} */ text, /** @type {number} */ by) => h("button", { type: "button", class: "small", "aria-label": label, onclick: () => this.step(by) }, text);
    this.form = h("form", { class: "find", hidden: true }, this.field, step("Previous match", "↑", -1), step("Next match", "↓", 1), this.status);
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.field.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(), TYPING_MILLISECONDS);
    });
    this.field.addEventListener("keydown", (event) => {
      const { key } = this;
      if (event.key === "Enter") {
        this.search();
        if (key === this.key) this.step(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") this.show(false);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {boolean} isShown */
  show(isShown) {
    this.form.hidden = !isShown;
    if (isShown) {
      this.field.select();
      this.field.focus();
    } else this.viewer.stage?.focus();
    this.viewer.bar(); // which searches, too
  }

  /** Search the document, unless that was done for these words, and go to the first match from the shown page on. */
  async search() {
    const id = this.viewer.document?.id;
    const q = this.form.hidden ? "" : this.field.value.trim();
    const key = `${id} ${q}`;
    if (key === this.key) return;
    this.key = key;
    this.matches = [];
    this.counts = new Map();
    this.position = -1;
    this.say("");
    if (q && id) {
      this.say("Searching …");
      try {
        const found = await get(`documents/${path(id)}/find?${new URLSearchParams({ q })}`);
        if (key !== this.key) return;
        this.matches = found.flatMap((/** @type {any} */ { page, boxes }) => boxes.map((/** @type {number[][]} */ one) => ({ page, boxes: one })));
        this.counts = new Map(found.map((/** @type {any} */ one) => [one.page, one.count]));
        this.say(this.matches.length ? "" : "No matches");
        if (this.matches.length) this.step(1);
      } catch (error) {
        if (key !== this.key) return;
        this.say(/** @type {Error} */ (error).message);
      }
    }
    this.viewer.showFound();
  }

  /** Go to the next match, or the one before. @param {number} by */
  step(by) {
    const page = Number(current().page) || 1;
    const count = this.matches.length;
    if (!count) {
      this.key = ""; // the request may have failed
      this.search();
      return;
    }
    if (this.matches[this.position]?.page === page) this.position = (this.position + by + count) % count;
    // Another page was turned to: go on from there.
    else if (by > 0) this.position = Math.max(0, this.matches.findIndex((one) => one.page >= page));
    else this.position = (this.matches.filter((one) => one.page <= page).length - 1 + count) % count;
    this.viewer.open(this.matches[this.position].page, true);
    this.viewer.showFound();
  }

  /** @param {string} text */
  say(text) {
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  /** Mark the matches of a page on its sheet. @param {HTMLElement} sheet @param {number} page */
  mark(sheet, page) {
    for (const one of sheet.querySelectorAll(".match")) one.remove();
    const at = this.matches[this.position];
    for (const one of this.matches) {
      if (one.page === page) sheet.append(...one.boxes.map((box) => place(h("span", { class: one === at ? "match current" : "match" }), box)));
    }
    const all = [...this.counts.values()].reduce((sum, count) => sum + count, 0);
    if (all) this.say(`${(this.position + 1).toLocaleString("en")} of ${all.toLocaleString("en")}, ${this.counts.get(page) ?? 0} on this page`);
    const found = sheet.querySelector(".match.current");
    if (!found || at === this.scrolled) return;
    this.scrolled = at;
    found.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

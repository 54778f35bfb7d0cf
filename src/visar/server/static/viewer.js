/** The page viewer: the picture of a page, its text to select and find, the heat, and the passage found. */

import { get, path, post, url } from "./api.js";
import { current, go } from "./address.js";
import { copyText, h, place, refill } from "./dom.js";
import { Find } from "./find.js";
import { fileName } from "./names.js";
import { Strip } from "./strip.js";
import { paint, passageFrames } from "./views.js";

const ZOOMS = [0.5, 0.75, 1, 1.5, 2, 3];
const PUNCTUATION = /^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu;

export class Viewer extends HTMLElement {
  /** @type {any} */ document = null;
  /** @type {any} */ page = null;
  /** @type {import("./answer.js").Exchange | undefined} */ exchange;
  /** @type {any[]} */ words = [];
  /** @type {{key: string, patches: Promise<any>} | null} */ cache = null;
  turn = 0;
  zoom = 1;
  isInverted = false;
  hasStrip = false;
  key = "";
  find = new Find(this);
  strip = new Strip((page) => this.open(page, false));

  connectedCallback() {
    this.setAttribute("aria-label", "Page");
    this.setAttribute("role", "region");
    this.heading = h("div", { class: "title" });
    this.tools = h("div", { class: "tools" });
    this.sheet = h("div", { class: "sheet" });
    this.stage = h("div", { class: "stage", role: "region", tabindex: 0, "aria-label": "Page content" }, this.sheet);
    this.append(this.grip(), h("div", { class: "top" }, this.heading, this.tools, this.find.form, this.strip.list), this.stage);
    window.addEventListener("view", () => this.update());
    window.addEventListener("found", (event) => {
      this.exchange = /** @type {CustomEvent} */ (event).detail;
      this.words = [];
      this.mark();
      this.reach();
    });
    window.addEventListener("explained", (event) => {
      this.words = /** @type {CustomEvent} */ (event).detail?.words ?? [];
      this.bar();
      this.heat();
    });
    window.addEventListener("theme", () => this.heat());
    window.addEventListener("preview", (event) => this.heat(/** @type {CustomEvent} */ (event).detail));
    document.addEventListener("keydown", (event) => this.press(event));
    this.update();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (this.hidden || event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(target.tagName) || target.closest("dialog")) return;
    const steps = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, PageUp: -1, ArrowRight: 1, PageDown: 1 });
    if (event.key in steps) this.step(steps[event.key]);
    else if (event.key === "Escape") this.close();
    else if (event.key === "+" || event.key === "-") this.scale(event.key === "+" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  /** @param {number} by */
  step(by) {
    const page = Number(current().page) + by;
    if (this.document && page >= 1 && page <= this.document.pages) this.open(page, false);
  }

  /** Turn to a page. @param {number} page @param {boolean} replace the step back leads past it */
  open(page, replace) {
    if (String(page) !== current().page) go({ page: String(page) }, { replace });
  }

  close() {
    go({ shown: undefined, page: undefined });
  }

  /** @param {number} by */
  scale(by) {
    const index = ZOOMS.indexOf(this.zoom) + by;
    this.zoom = ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, index))];
    this.size();
  }

  async update() {
    const { shown, page } = current();
    this.hidden = !shown;
    const key = `${shown}/${page}`;
    if (!shown || key === this.key) {
      if (shown) this.heat();
      this.bar();
      return;
    }
    this.key = key;
    try {
      const document = this.document?.id === shown ? this.document : await get(`documents/${path(shown)}`);
      const content = await get(`documents/${path(shown)}/pages/${Number(page) || 1}`);
      if (this.key !== key) return;
      this.document = document;
      this.page = content;
      this.draw();
    } catch (error) {
      if (this.key !== key) return;
      if (this.document?.id !== shown) this.document = null;
      const retry = () => {
        this.key = "";
        this.update();
      };
      this.sheet?.replaceChildren(h("div", { class: "locked" }, h("p", { class: "bad", role: "alert" }, /** @type {Error} */ (error).message), h("p", {}, h("button", { onclick: retry }, "Try again"))));
    }
    this.bar();
    this.reach();
  }

  draw() {
    const { id, name } = this.document;
    const { number, words } = this.page;
    const image = h("img", { src: url(`documents/${path(id)}/pages/${number}/image`), alt: `Page ${number} of ${name}` });
    image.addEventListener("error", () => this.explainMissing());
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": "true" }));
    const layer = h("div", { class: "words" });
    for (const { text, box } of words) {
      const span = place(h("span", {}, `${text} `), box);
      span.style.fontSize = `${90 * (box[3] - box[1])}cqh`;
      layer.append(span);
    }
    this.sheet?.replaceChildren(image, this.canvas, layer);
    this.scrollTop = 0;
    this.size();
    this.mark();
    this.heat();
  }

  /** Say why there is no picture, and ask for the password if that is the reason. */
  async explainMissing() {
    const key = this.key;
    const { id, name } = this.document;
    const problem = await get(`documents/${path(id)}/pages/${this.page.number}/image`).then(() => null, (error) => error);
    if (key !== this.key || !this.sheet) return;
    if (problem?.code !== "password") {
      this.sheet.append(h("p", { class: "locked small bad", role: "alert" }, problem?.message ?? "Can't load the picture of this page."));
      return;
    }
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", class: "filter", "aria-label": `Password for ${name}`, placeholder: "Password", autocomplete: "off", required: true }));
    const message = h("p", { class: "small bad", role: "alert" });
    const form = h("form", { class: "locked" }, h("strong", {}, "This document is encrypted"), h("p", { class: "soft small" }, "Enter its password to see the pages. The server keeps the password in memory until it stops."), h("div", { class: "row" }, field, h("button", {}, "Unlock")), message);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await post(`documents/${path(id)}/unlock`, { password: field.value });
        this.draw();
        this.strip.id = "";
        window.dispatchEvent(new CustomEvent("view")); // loads the thumbnails, too
      } catch (error) {
        message.textContent = /** @type {any} */ (error).code === "password" ? "Wrong password." : /** @type {Error} */ (error).message;
        field.select();
      }
    });
    this.sheet.replaceChildren(form);
  }

  size() {
    if (!this.sheet || !this.page) return;
    this.sheet.style.width = `${100 * this.zoom}%`;
    this.sheet.style.aspectRatio = `${this.page.width} / ${this.page.height}`;
    this.sheet.classList.toggle("inverted", this.isInverted);
  }

  bar() {
    if (!this.heading || !this.tools) return;
    const close = h("button", { class: "quiet small", "aria-label": "Close the page", onclick: () => this.close() }, "×");
    if (!this.document) {
      refill(this.heading, h("span", { class: "end" }, close));
      this.tools.replaceChildren();
      this.showFound();
      return;
    }
    const { page, word } = current();
    const { id, name, pages } = this.document;
    const number = Number(page) || 1;
    const title = fileName(name, "h2");
    title.setAttribute("aria-label", name);
    const original = h("a", { href: `${url(`documents/${path(id)}/original`)}#page=${number}`, target: "_blank", rel: "noopener", class: "small" }, "Original ↗");
    refill(this.heading, title, original, close);
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: pages, value: number, "aria-label": "Page number" }));
    field.addEventListener("change", () => this.step(Number(field.value) - number));
    const overlay = (/** @type {string | undefined} */ value, /** @type {string} */ text) => h("button", { class: "small", "aria-pressed": word === value, onclick: () => go({ word: value }) }, text);
    const strongest = this.words.map((one, index) => ({ ...one, index })).filter((one) => !one.is_stop_word).sort((a, b) => b.influence - a.influence).slice(0, 2).sort((a, b) => a.index - b.index);
    const overlays = this.words.length ? [h("span", { class: "switch", role: "group", "aria-label": "Heat" }, overlay(undefined, "All words"), ...strongest.map((one) => overlay(String(one.index), one.text.replace(PUNCTUATION, ""))), overlay("off", "Off"))] : [];
    const toggle = (/** @type {string} */ text, /** @type {string} */ label, /** @type {boolean} */ isOn, /** @type {() => void} */ act) => h("button", { class: "small", "aria-label": label, "aria-pressed": isOn, onclick: act }, text);
    refill(this.tools,
      h("button", { "aria-label": "Previous page", onclick: () => this.step(-1) }, "‹"), field, h("span", { class: "soft small" }, `of ${pages}`),
      h("button", { "aria-label": "Next page", onclick: () => this.step(1) }, "›"),
      toggle("Find", "Find words", !this.find.form.hidden, () => this.find.show(this.find.form.hidden)),
      toggle("Pages", "Thumbnails of all pages", this.hasStrip, () => { this.hasStrip = !this.hasStrip; this.bar(); }),
      h("button", { class: "small", disabled: !this.page?.words.length, "aria-label": "Copy the text of this page", onclick: () => this.copy() }, "Copy"),
      h("span", { class: "end" }, ...overlays, h("button", { class: "small zoom", "aria-label": "Smaller", onclick: () => this.scale(-1) }, "−"), h("button", { class: "small zoom", "aria-label": "Larger", onclick: () => this.scale(1) }, "+"),
        toggle("◑", "Invert colors", this.isInverted, () => { this.isInverted = !this.isInverted; this.size(); this.bar(); })));
    this.find.search(); // another document may be shown
    this.showFound();
  }

  /** Show the matches on the page and in the strip. */
  showFound() {
    const page = Number(current().page) || 1;
    if (this.sheet) this.find.mark(this.sheet, this.page?.number ?? page);
    this.strip.show(this.hasStrip, this.document, page, this.find.counts);
  }

  /** Copy the text of the page, line by line. */
  copy() {
    /** @type {string[][]} */ const lines = [];
    for (const { text, line } of this.page.words) (lines[line] ??= []).push(text);
    const text = lines.filter(Boolean).map((line) => line.join(" ")).join("\n");
    copyText(text, `Copied the text of page ${this.page.number}.`);
  }

  /** Frame the best passage of the page. */
  mark() {
    this.sheet?.querySelectorAll(".spot").forEach((spot) => spot.remove());
    const search = this.exchange?.search;
    const hit = search?.pages.find((/** @type {any} */ one) => one.document === this.document?.id && one.page === this.page?.number);
    this.sheet?.append(...passageFrames(search, hit));
  }

  /** Bring the match of a search, or else the passage, into view. */
  reach() {
    (this.sheet?.querySelector(".match.current") ?? this.sheet?.querySelector(".spot"))?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Color the patches by their weight, or by how well they match one word. @param {string} [preview] the word under the pointer */
  async heat(preview) {
    const { canvas, exchange } = this;
    const { shown, page, word: selected } = current();
    const word = preview ?? selected;
    const context = canvas?.getContext("2d");
    const turn = (this.turn += 1);
    // The next page may be loading.
    if (!canvas || !context || this.document?.id !== shown || this.page?.number !== (Number(page) || 1)) return;
    const key = JSON.stringify(exchange?.body) + this.key;
    const isOff = !exchange?.search || word === "off" || !this.words.length;
    if (isOff || key !== this.cache?.key) context.clearRect(0, 0, canvas.width, canvas.height);
    if (isOff) return;
    // One request has the patches for all words.
    if (key !== this.cache?.key) this.cache = { key, patches: post("explain/patches", { ...exchange.search.query, document: this.document.id, page: this.page.number }) };
    const patches = await this.cache.patches.catch(() => null);
    if (!patches) this.cache = null;
    if (!patches || turn !== this.turn || canvas !== this.canvas) return;
    [canvas.width, canvas.height] = [900, Math.round((900 * this.page.height) / this.page.width)];
    paint(canvas, patches, word === undefined ? undefined : this.words[Number(word)]);
  }

  /** The edge that resizes the viewer. */
  grip() {
    const grip = h("button", { class: "grip", "aria-label": "Resize the page with the left and right arrow keys" });
    const set = (/** @type {number} */ width) => this.parentElement?.style.setProperty("--viewer", `${Math.round(Math.min(innerWidth - 620, Math.max(380, width)))}px`);
    grip.addEventListener("pointerdown", (event) => {
      grip.setPointerCapture(event.pointerId);
      grip.onpointermove = (move) => set(innerWidth - move.clientX);
    });
    grip.addEventListener("pointerup", () => { grip.onpointermove = null; });
    grip.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        set(this.clientWidth + (event.key === "ArrowLeft" ? 40 : -40));
        event.stopPropagation();
      }
    });
    return grip;
  }
}

customElements.define("visar-viewer", Viewer);

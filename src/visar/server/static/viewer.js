/** The page viewer: its picture, its words to select and find, the heat, and the cited passage. */

import { change, get, path, post, url } from "./api.js";
import { current, go } from "./address.js";
import { h, refill } from "./dom.js";
import { paint, spots } from "./views.js";

const ZOOMS = [0.5, 0.75, 1, 1.5, 2, 3];

class Viewer extends HTMLElement {
  /** @type {any} */ document = null;
  /** @type {any} */ page = null;
  /** @type {any} */ found = null;
  /** @type {any[]} */ words = [];
  /** @type {{key: string, patches: Promise<any>} | null} */ heated = null;
  turn = 0;
  zoom = 1;
  inverted = false;
  key = "";

  connectedCallback() {
    this.setAttribute("aria-label", "Page");
    this.setAttribute("role", "region");
    this.tools = h("div", { class: "tools" });
    this.sheet = h("div", { class: "sheet" });
    this.stage = h("div", { class: "stage", tabindex: 0, "aria-label": "The page" }, this.sheet);
    this.append(this.grip(), this.tools, this.stage);
    window.addEventListener("view", () => this.update());
    window.addEventListener("found", (event) => {
      this.found = /** @type {CustomEvent} */ (event).detail;
      this.words = [];
      this.mark();
    });
    window.addEventListener("explained", (event) => {
      this.words = /** @type {CustomEvent} */ (event).detail?.words ?? [];
      this.bar();
      this.heat();
    });
    window.addEventListener("theme", () => this.heat());
    window.addEventListener("peek", (event) => this.heat(/** @type {CustomEvent} */ (event).detail));
    document.addEventListener("keydown", (event) => this.press(event));
    this.update();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (this.hidden || event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(target.tagName)) return;
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
    if (this.document && page >= 1 && page <= this.document.pages) go({ page: String(page) });
  }

  close() {
    go({ shown: undefined, page: undefined });
  }

  /** @param {number} by */
  scale(by) {
    const place = ZOOMS.indexOf(this.zoom) + by;
    this.zoom = ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, place))];
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
      if (this.document?.id !== shown) this.document = await get(`documents/${path(shown)}`);
      const read = await get(`documents/${path(shown)}/pages/${Number(page) || 1}`);
      if (this.key !== key) return;
      this.page = read;
      this.draw();
    } catch (error) {
      this.sheet?.replaceChildren(h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    }
    this.bar();
  }

  draw() {
    const { id, name } = this.document;
    const { number, words } = this.page;
    const image = h("img", { src: url(`documents/${path(id)}/pages/${number}/image`), alt: `Page ${number} of ${name}` });
    image.addEventListener("error", () => this.explainMissing());
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { "aria-hidden": "true" }));
    const layer = h("div", { class: "words" });
    for (const one of words) {
      const [left, top, right, bottom] = one.box;
      const span = h("span", {}, `${one.text} `);
      Object.assign(span.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%`, fontSize: `${100 * (bottom - top) * 0.9}cqh` });
      layer.append(span);
    }
    this.layer = layer;
    this.sheet?.replaceChildren(image, this.canvas, layer);
    this.size();
    this.mark();
    this.heat();
  }

  /** Say why there is no picture; where a password is missing, ask for it. */
  async explainMissing() {
    const key = this.key;
    const { id, name } = this.document;
    const error = await get(`documents/${path(id)}/pages/${this.page.number}/image`).then(() => null, (reason) => reason);
    if (key !== this.key || !this.sheet) return;
    if (error?.code !== "password") {
      this.sheet.append(h("p", { class: "locked small bad" }, error?.message ?? "The picture of this page cannot be had."));
      return;
    }
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "password", class: "filter", "aria-label": `Password of ${name}`, placeholder: "Password", autocomplete: "off", required: true }));
    const said = h("p", { class: "small bad", role: "alert" });
    const form = h("form", { class: "locked" }, h("strong", {}, "This document is encrypted"), h("p", { class: "soft small" }, "Its words are in the index; its password shows the pages. The server keeps it in memory until it ends."), h("div", { class: "row" }, field, h("button", {}, "Unlock")), said);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await change("POST", `documents/${path(id)}/unlock`, { password: field.value });
        this.draw();
        window.dispatchEvent(new CustomEvent("view")); // thumbnails elsewhere come now, too
      } catch (reason) {
        said.textContent = /** @type {any} */ (reason).code === "password" ? "That is not its password." : /** @type {Error} */ (reason).message;
        field.select();
      }
    });
    this.sheet.replaceChildren(form);
  }

  size() {
    if (!this.sheet || !this.page) return;
    this.sheet.style.width = `${100 * this.zoom}%`;
    this.sheet.style.aspectRatio = `${this.page.width} / ${this.page.height}`;
    this.sheet.classList.toggle("inverted", this.inverted);
  }

  bar() {
    if (!this.document || !this.tools) return;
    const { page, word } = current();
    const number = Number(page) || 1;
    const field = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: this.document.pages, value: number, "aria-label": "Page number" }));
    field.addEventListener("change", () => this.step(Number(field.value) - number));
    const overlay = (/** @type {string | undefined} */ value, /** @type {string} */ text) => h("button", { class: "small", "aria-pressed": word === value, onclick: () => go({ word: value }) }, text);
    const strongest = this.words.map((one, place) => ({ ...one, place })).sort((a, b) => b.influence - a.influence).slice(0, 2).sort((a, b) => a.place - b.place);
    const overlays = this.words.length ? [h("span", { class: "switch", role: "group", "aria-label": "Heat" }, overlay(undefined, "All words"), ...strongest.map((one) => overlay(String(one.place), one.text)), overlay("off", "Off"))] : [];
    const original = h("a", { href: `${url(`documents/${path(this.document.id)}/original`)}#page=${number}`, target: "_blank", rel: "noopener", class: "small" }, "Original ↗");
    const invert = h("button", { class: "small", "aria-pressed": this.inverted, "aria-label": "Invert the page", onclick: () => { this.inverted = !this.inverted; this.size(); this.bar(); } }, "◑");
    refill(this.tools,
      h("button", { "aria-label": "Previous page", onclick: () => this.step(-1) }, "‹"), field, h("span", { class: "soft small" }, `of ${this.document.pages}`),
      h("button", { "aria-label": "Next page", onclick: () => this.step(1) }, "›"), original,
      h("span", { class: "end" }, ...overlays, h("button", { class: "small", "aria-label": "Smaller", onclick: () => this.scale(-1) }, "−"), h("button", { class: "small", "aria-label": "Larger", onclick: () => this.scale(1) }, "+"), invert,
        h("button", { class: "small", "aria-label": "Close the page", onclick: () => this.close() }, "×")));
  }

  /** Frame the passage that was found here, if the page is likely enough to trust it. */
  mark() {
    this.sheet?.querySelectorAll(".spot").forEach((spot) => spot.remove());
    const hit = this.found?.search?.pages.find((/** @type {any} */ one) => one.document === this.document?.id && one.page === this.page?.number);
    this.sheet?.append(...spots(this.found?.search, hit));
  }

  /** Colour the patches by their weight, or by how well they match one word. @param {string} [peeked] the word pointed at, if any */
  async heat(peeked) {
    const canvas = this.canvas;
    const word = peeked ?? current().word;
    const context = canvas?.getContext("2d");
    const turn = (this.turn += 1);
    if (!canvas || !context) return;
    const asked = JSON.stringify(this.found?.body) + this.key;
    if (asked !== this.heated?.key) context.clearRect(0, 0, canvas.width, canvas.height);
    if (!this.found?.search || word === "off" || !this.words.length) {
      context.clearRect(0, 0, canvas.width, canvas.height);
      return;
    }
    // The patches of a page are those of all words: they are asked for once.
    if (asked !== this.heated?.key) this.heated = { key: asked, patches: post("explain/patches", { ...this.found.body, document: this.document.id, page: this.page.number }) };
    const patches = await this.heated.patches.catch(() => null);
    if (!patches) this.heated = null;
    if (!patches || turn !== this.turn || canvas !== this.canvas) return;
    [canvas.width, canvas.height] = [900, Math.round((900 * this.page.height) / this.page.width)];
    paint(canvas, patches, word === undefined ? undefined : this.words[Number(word)]);
  }

  /** The edge that makes the viewer wider or narrower. */
  grip() {
    const grip = h("button", { class: "grip", "aria-label": "Width of the page: left and right arrow" });
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

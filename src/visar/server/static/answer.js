/** The question, its answer while it is written, and the pages it rests on. */

import { path, stream, url } from "./api.js";
import { current, go } from "./address.js";
import { h, refill } from "./dom.js";
import { answered, hits, question, sentence } from "./views.js";

class Answer extends HTMLElement {
  /** @type {any} */ search = null;
  /** @type {any} */ answer = null;
  /** @type {AbortController | null} */ running = null;
  /** @type {any[]} */ words = [];
  asked = "";
  text = "";

  connectedCallback() {
    window.addEventListener("view", () => this.update());
    this.update();
  }

  /** What a question is asked of, as the API takes it. */
  static body() {
    const { q, document, collection } = current();
    return { question: q, ...(document ? { documents: [document] } : {}), ...(collection ? { collection } : {}) };
  }

  async update() {
    const { q } = current();
    const body = Answer.body();
    const key = JSON.stringify(body);
    if (!q) {
      this.running?.abort();
      this.asked = "";
      this.tell(null);
      this.empty();
      return;
    }
    if (key === this.asked) {
      if (this.search) this.show();
      return;
    }
    this.asked = key;
    this.running?.abort();
    this.running = new AbortController();
    this.search = this.answer = null;
    this.text = "";
    this.tell(null);
    this.replaceChildren(h("h1", { class: "asked" }, q), h("p", { class: "card soft", role: "status" }, "Looking through the pages …"));
    try {
      await stream("ask/stream", body, (event, data) => this.take(event, data), this.running.signal);
    } catch (error) {
      if (/** @type {Error} */ (error).name === "AbortError") return;
      this.append(h("p", { class: "card bad", role: "alert" }, /** @type {Error} */ (error).message));
    }
  }

  /** @param {string} event @param {any} data */
  take(event, data) {
    if (event === "search") {
      this.search = data;
      const [best] = data.pages;
      // On a phone the page would cover the answer.
      if (best && !current().shown && !matchMedia("(max-width: 700px)").matches) go({ shown: best.document, page: String(best.page) }, { replace: true });
      this.tell(data);
    } else if (event === "text") this.text += data;
    else if (event === "answer") this.answer = data;
    this.show();
  }

  /** @param {any} found */
  tell(found) {
    window.dispatchEvent(new CustomEvent("found", { detail: { search: found, body: Answer.body() } }));
  }

  /** @param {any} explanation */
  shade(explanation) {
    this.words = explanation?.words ?? [];
    this.show();
  }

  empty() {
    const { document: chosen, collection } = current();
    const what = chosen ? "this document" : collection ? "this collection" : "your documents";
    this.replaceChildren(h("div", { class: "empty" },
      h("h1", {}, `Ask ${what} a question`),
      h("p", { class: "soft" }, "Drop PDFs, images or office files on the left. Each question gets as many pages as it needs, and you see why.")));
  }

  show() {
    const found = this.search;
    if (!found) return;
    const { shown, page, word } = current();
    const open = (/** @type {string} */ document, /** @type {number} */ number) => go({ shown: document, page: String(number) });
    refill(this,
      question(found.question, this.words, word, (chosen) => go({ word: chosen }), (peeked) => window.dispatchEvent(new CustomEvent("peek", { detail: peeked }))),
      this.answer ? answered(found, this.answer, open) : h("div", { class: "card" }, h("p", { class: "text" }, this.text || "…")),
      sentence(found),
      hits(found, (hit) => url(`documents/${path(hit.document)}/pages/${hit.page}/thumbnail`), (hit) => hit.document === shown && String(hit.page) === page, open));
  }
}

customElements.define("visar-answer", Answer);

/** The question, its answer while it is written, and the pages it rests on. */

import { path, stream, url } from "./api.js";
import { current, go } from "./address.js";
import { counted, h, refill } from "./dom.js";

/** A page is marked with its passage only where the page is at least possible. */
const TRUSTED = 0.15;

class Answer extends HTMLElement {
  /** @type {any} */ search = null;
  /** @type {any} */ answer = null;
  /** @type {AbortController | null} */ running = null;
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
    this.words = explanation?.words;
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
    refill(this, this.heading(), this.card(), this.sentence(), this.hits());
  }

  heading() {
    const { word } = current();
    if (!this.words?.length) return h("h1", { class: "asked" }, this.search.question);
    return h("h1", { class: "asked" }, ...this.words.flatMap((/** @type {any} */ one, /** @type {number} */ number) => {
      const chosen = word === String(number);
      const button = h("button", { "aria-pressed": chosen, title: "Show where this word matches", onclick: () => go({ word: chosen ? undefined : String(number) }) }, one.text);
      button.style.background = `color-mix(in srgb, var(--mark) ${Math.round(100 * one.influence)}%, transparent)`;
      return [button, " "];
    }));
  }

  card() {
    const answer = this.answer;
    if (!answer) return h("div", { class: "card" }, h("p", { class: "text" }, this.text || "…"));
    if (!answer.found) {
      return h("div", { class: "card" }, h("p", { class: "text" }, "Nothing in these documents speaks of this."),
        h("p", { class: "soft small" }, "What comes nearest is below, and is unlikely to help."));
    }
    if (answer.model) {
      return h("div", { class: "card" }, h("p", { class: "text" }, answer.text, ...answer.citations.filter((/** @type {any} */ one) => one.was_given).map((/** @type {any} */ one) => this.cite(one.document, one.page))),
        h("p", { class: "soft small" }, `Written by ${answer.model} from these pages.`));
    }
    const quotes = answer.passages.map((/** @type {any} */ one) => h("p", { class: "text" }, ...marked(one.text, one.answer), this.cite(one.document, one.page)));
    const weak = this.search.strength === "weak" ? h("p", { class: "small bad" }, "A weak match: the answer may not be in these documents.") : null;
    return h("div", { class: "card" }, weak, ...quotes, h("p", { class: "soft small" }, "Quoted from the pages. No language model was asked."));
  }

  /** @param {string} document @param {number} page */
  cite(document, page) {
    const several = this.search.documents.length > 1;
    const name = several ? `${this.search.documents.find((/** @type {any} */ one) => one.id === document)?.name ?? ""}, ` : "";
    return h("button", { class: "cite", onclick: () => go({ shown: document, page: String(page) }) }, `${name}p. ${page}`);
  }

  sentence() {
    const { k, pages_searched: all, strength } = this.search;
    const saved = 10 - k > 0 && all > 10 && strength !== "none" ? ` A fixed top 10 would read ${counted(10 - k, "page")} more.` : "";
    const said = strength === "none" ? `The nearest ${counted(k, "page")} of ${all}.` : `${k} of ${counted(all, "page")} ${k === 1 ? "is" : "are"} enough: one more would add little.`;
    return h("p", { class: "soft" }, `${said}${saved} ${this.search.seconds.toFixed(2)} s`);
  }

  hits() {
    const several = this.search.documents.length > 1;
    const { shown, page } = current();
    const items = this.search.pages.map((/** @type {any} */ hit) => {
      const chance = hit.likelihood ? [bar(hit.probability), h("span", { class: "soft small" }, hit.likelihood)] : [];
      const label = hit.label ? `, printed ${hit.label}` : "";
      return h("li", {}, h("button", { class: "hit", "aria-current": hit.document === shown && String(hit.page) === page, onclick: () => go({ shown: hit.document, page: String(hit.page) }) },
        h("img", { src: url(`documents/${path(hit.document)}/pages/${hit.page}/thumbnail`), alt: "", loading: "lazy" }),
        h("span", {}, h("strong", {}, `${several ? `${hit.name}, page` : "Page"} ${hit.page}`), h("span", { class: "soft small" }, label), ...chance, h("div", { class: "small" }, hit.snippet))));
    });
    const far = this.search.strength === "none";
    return h("ul", { class: `card hits ${far ? "nearest" : ""}`, "aria-label": far ? "What comes nearest" : "The pages it rests on" }, ...items);
  }
}

/** @param {number} probability */
function bar(probability) {
  const fill = h("i");
  fill.style.width = `${Math.round(100 * probability)}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/** @param {string} text @param {[number, number] | null} span */
function marked(text, span) {
  if (!span) return [text];
  const letters = [...text];
  const [first, last] = span;
  return [letters.slice(0, first).join(""), h("mark", {}, letters.slice(first, last).join("")), letters.slice(last).join("")];
}

customElements.define("visar-answer", Answer);
export { Answer, TRUSTED };

/** The question, its answer while it is written, and the pages it is based on. */

import { path, stream, url } from "./api.js";
import { current, go } from "./address.js";
import { h, refill } from "./dom.js";
import { answerCard, pageList, questionHeading, quoteCard, summaryLine } from "./views.js";

const MAX_EXCHANGES = 30;

/**
 * @typedef {object} Exchange a question and what is known of its answer
 * @property {{question: string, documents?: string[], collection?: string}} body the request
 * @property {AbortController} controller
 * @property {string} text the answer so far
 * @property {any} [search]
 * @property {any} [answer]
 * @property {any} [problem] an error, if the request failed
 * @property {Promise<any>} [explanation]
 */

/** The request of a view. @param {import("./address.js").View} view */
const requestOf = ({ q = "", document: id, collection }) => ({ question: q, ...(id ? { documents: [id] } : {}), ...(collection ? { collection } : {}) });

class Answer extends HTMLElement {
  /** By request, oldest first: going back shows an answer without asking again. @type {Map<string, Exchange>} */ exchanges = new Map();
  /** The one on display. @type {Exchange | undefined} */ exchange;
  /** @type {any[]} */ words = [];

  connectedCallback() {
    window.addEventListener("view", () => this.update());
    window.addEventListener("explained", (event) => {
      this.words = /** @type {CustomEvent} */ (event).detail?.words ?? [];
      this.show();
    });
    window.addEventListener("removed", (event) => {
      const isSearched = (/** @type {any} */ one) => one.id === /** @type {CustomEvent} */ (event).detail;
      for (const [key, one] of this.exchanges) if (one.search?.documents.some(isSearched)) this.exchanges.delete(key);
    });
    this.update();
  }

  /** Ask a question, even if it was asked before. @param {string} q */
  ask(q) {
    const key = JSON.stringify(requestOf({ ...current(), q }));
    this.exchanges.get(key)?.controller.abort();
    this.exchanges.delete(key);
    go({ q, shown: undefined, page: undefined, word: undefined, cell: undefined });
  }

  update() {
    const view = current();
    const body = requestOf(view);
    const exchange = view.q ? this.exchanges.get(JSON.stringify(body)) ?? this.request(body) : undefined;
    if (exchange !== this.exchange) {
      this.exchange = exchange;
      this.announce();
    }
    this.show();
  }

  /** @param {Exchange["body"]} body */
  request(body) {
    // One question at a time. A question that was left for a document is still answered.
    for (const [key, { answer, problem, controller }] of this.exchanges) {
      if (answer || problem) continue;
      controller.abort();
      this.exchanges.delete(key);
    }
    /** @type {Exchange} */ const exchange = { body, text: "", controller: new AbortController() };
    this.exchanges.set(JSON.stringify(body), exchange);
    const [oldest] = this.exchanges.keys();
    if (this.exchanges.size > MAX_EXCHANGES) this.exchanges.delete(oldest);
    stream("ask/stream", body, (event, data) => this.take(exchange, event, data), exchange.controller.signal).catch((error) => {
      if (error.name === "AbortError") return;
      exchange.problem = error;
      if (exchange === this.exchange) this.show();
    });
    return exchange;
  }

  /** @param {Exchange} exchange @param {string} event @param {any} data */
  take(exchange, event, data) {
    if (event === "search") exchange.search = data;
    else if (event === "answer") exchange.answer = data;
    else exchange.text += data;
    if (exchange !== this.exchange) return;
    const live = event === "text" && this.querySelector(".live");
    if (live) {
      live.textContent = exchange.text;
      live.classList.remove("soft");
      return;
    }
    const [best] = event === "search" ? data.pages : [];
    // On a phone the page would cover the answer.
    if (best && !current().shown && !matchMedia("(max-width: 700px)").matches) go({ shown: best.document, page: String(best.page) }, { replace: true });
    if (event === "search") this.announce();
    this.show();
  }

  /** Tell the other parts of the page which question is on display. */
  announce() {
    window.dispatchEvent(new CustomEvent("found", { detail: this.exchange }));
  }

  show() {
    if (!this.exchange) {
      this.showEmpty();
      return;
    }
    const { body, search, answer, problem, text } = this.exchange;
    if (!search) {
      refill(this, h("h1", { class: "question" }, body.question), problem ? this.problemCard() : h("p", { class: "card soft", role: "status" }, "Searching …"));
      return;
    }
    const { shown, page, word } = current();
    const open = (/** @type {string} */ id, /** @type {number} */ number) => go({ shown: id, page: String(number) });
    const picture = (/** @type {any} */ hit) => url(`documents/${path(hit.document)}/pages/${hit.page}/image`);
    refill(this,
      questionHeading(body.question, this.words, word, (selected) => go({ word: selected }), (preview) => window.dispatchEvent(new CustomEvent("preview", { detail: preview }))),
      problem ? this.problemCard() : null,
      problem && text ? h("div", { class: "card" }, h("p", { class: "text" }, text), h("p", { class: "small bad" }, "The answer broke off here.")) : null,
      problem ? quoteCard(search, search.strength === "none" ? [] : search.passages, open, picture) : null,
      answer ? answerCard(search, answer, open, picture) : null,
      answer || problem ? null : h("div", { class: "card" }, h("p", { class: `text live ${text ? "" : "soft"}` }, text || "Writing the answer …")),
      summaryLine(search),
      pageList(search, (hit) => url(`documents/${path(hit.document)}/pages/${hit.page}/thumbnail`), (hit) => hit.document === shown && String(hit.page) === page, open));
  }

  problemCard() {
    const { body, problem } = /** @type {Exchange} */ (this.exchange);
    const isMissing = problem.code === "not_found" && (body.documents || body.collection);
    return h("div", { class: "card problem" }, h("p", { class: "bad", role: "alert" }, problem.message),
      h("p", {}, h("button", { onclick: () => this.ask(body.question) }, "Try again"), isMissing ? h("button", { onclick: () => go({ document: undefined, collection: undefined, shown: undefined, page: undefined }) }, "Search all documents") : null));
  }

  /** Invite a question, and list those of this visit. */
  showEmpty() {
    const { document: selected, collection } = current();
    const subject = selected ? "this document" : collection ? "this collection" : "your documents";
    const links = [...this.exchanges.values()].reverse().map(({ body: { question, documents, collection } }) =>
      h("li", {}, h("button", { class: "link", onclick: () => go({ q: question, document: documents?.[0], collection, shown: undefined, page: undefined }) }, question)));
    refill(this, h("div", { class: "empty" },
      h("h1", {}, `Ask a question about ${subject}`),
      h("p", { class: "soft" }, selected || collection ? "" : "Add PDFs, images or Office files to the library. ", "ViSAR finds exactly the pages each question needs, and shows you why."),
      ...(links.length ? [h("h2", { class: "label" }, "Your questions"), h("ul", {}, ...links)] : [])));
  }
}

customElements.define("visar-answer", Answer);

/** The answer column: a conversation, or how to begin one. */

import { current, go } from "./address.js";
import { Conversation } from "./conversation.js";
import { h, refill } from "./dom.js";
import { FirstSteps, suggestions } from "./start.js";
import { startNew } from "./threads.js";
import { TurnView } from "./turn.js";

const RECENT_SHOWN = 5;

/** @typedef {{turn: import("./conversation.js").Turn, body: object, search?: any}} Exchange what "found" tells the other parts of the page: the question on display, and what was found */

/** The request of a view. @param {import("./address.js").View} view @param {string} question */
const requestOf = ({ document: id, collection }, question) => ({ question, ...(id ? { documents: [id] } : {}), ...(collection ? { collection } : {}) });

class Answer extends HTMLElement {
  /** By id: going back loads and asks nothing again. @type {Map<string, Conversation>} */ conversations = new Map();
  /** Those that a question began, by the question. @type {Map<string, Conversation>} */ begun = new Map();
  /** @type {Conversation | undefined} */ conversation;
  /** The question on display. @type {import("./conversation.js").Turn | undefined} */ turn;
  /** The passage on display, if a citation led to it. @type {{document: string, page: number, boxes: number[][]} | null} */ passage = null;
  /** @type {WeakMap<object, TurnView>} */ views = new WeakMap();
  /** Id of the conversation that is being loaded. */ loading = "";
  /** @type {any} */ problem = null;
  /** @type {any[]} */ words = [];
  /** @type {FirstSteps | null} */ first = null;
  isAsking = false;

  connectedCallback() {
    this.why = /** @type {HTMLElement} */ (document.querySelector("visar-why"));
    this.library = /** @type {any} */ (document.getElementById("library"));
    this.threads = /** @type {any} */ (document.querySelector("visar-threads"));
    window.addEventListener("view", () => this.update());
    window.addEventListener("explained", (event) => {
      this.words = /** @type {CustomEvent} */ (event).detail?.words ?? [];
      if (this.turn) this.showTurn(this.turn);
    });
    for (const event of ["library", "threads"]) window.addEventListener(event, () => this.conversation || this.show());
    this.update();
  }

  /**
   * Ask a question in the conversation on display, or in a new one. The last question again replaces its answer.
   * @param {string} question @param {boolean} [standalone] whether to search for it as it is
   */
  ask(question, standalone = false) {
    const view = current();
    const { conversation: before } = this;
    const isElsewhere = before?.collection && before.collection !== view.collection;
    const conversation = before && !isElsewhere ? before : this.begin();
    const turn = conversation.ask({ ...requestOf(view, question), ...(standalone ? { standalone } : {}) });
    if (!conversation.id) this.begun.set(question, conversation);
    this.isAsking = true;
    go(this.addressOf(conversation, turn));
  }

  begin() {
    return new Conversation((conversation, turn, change) => this.take(conversation, turn, change));
  }

  /** @param {Conversation} conversation @param {import("./conversation.js").Turn} turn */
  addressOf({ id, turns }, turn) {
    return { thread: id || undefined, turn: id ? String(turns.indexOf(turn) + 1) : undefined, q: turn.body.question, word: undefined, cell: undefined };
  }

  update() {
    const view = current();
    const { thread, q } = view;
    const conversation = thread ? this.conversations.get(thread) : q ? this.begun.get(q) : undefined;
    if (thread && !conversation) {
      if (this.loading !== thread) this.load(thread);
      return;
    }
    this.loading = "";
    if (!conversation && q) {
      this.conversation = undefined;
      this.ask(q);
      return;
    }
    const turns = conversation?.turns ?? [];
    const numbered = turns[Number(view.turn) - 1];
    const asked = q ? [numbered, ...[...turns].reverse()].find((one) => one?.body.question === q) : numbered ?? turns.at(-1);
    const isOther = conversation !== this.conversation;
    this.conversation = conversation;
    if (q && !asked) {
      this.ask(q);
      return;
    }
    const isNew = asked !== this.turn;
    if (isNew) {
      this.turn = asked;
      this.passage = null;
      this.announce();
    }
    if (isOther || isNew || !asked) this.show();
    else this.showTurn(asked);
    if (isNew && asked) this.reach(asked);
    this.isAsking = false;
  }

  /** @param {string} id */
  async load(id) {
    this.loading = id;
    this.problem = null;
    this.conversation = this.turn = undefined;
    this.announce();
    this.show();
    try {
      const conversation = await Conversation.load(id, (...change) => this.take(...change));
      this.conversations.set(id, conversation);
    } catch (error) {
      if (this.loading !== id) return;
      const { code } = /** @type {import("./api.js").ApiError} */ (error);
      if (code === "not_found" && current().q) go({ thread: undefined, turn: undefined }, { replace: true });
      else {
        this.problem = error;
        this.show();
      }
      return;
    }
    if (this.loading !== id) return;
    this.loading = "";
    const { document: selected, collection } = current();
    const conversation = this.conversations.get(id);
    const last = conversation?.turns.at(-1)?.body;
    // The next question is about the same documents as the last one.
    const scope = selected || collection ? {} : { document: last?.documents?.length === 1 ? last.documents[0] : undefined, collection: conversation?.collection ?? last?.collection };
    go(scope, { replace: true });
  }

  /** @param {Conversation} conversation @param {import("./conversation.js").Turn} turn @param {import("./conversation.js").Change} change */
  take(conversation, turn, change) {
    const isShown = conversation === this.conversation;
    if (change === "thread") {
      this.conversations.set(conversation.id, conversation);
      if (!isShown) return;
      go(this.addressOf(conversation, turn), { replace: true });
      this.show(); // it may say now that nothing is saved
      return;
    }
    if (change === "end" && turn.answer) window.dispatchEvent(new CustomEvent("conversation"));
    const view = this.views.get(turn);
    if (!isShown || !view) return;
    if (change === "text" && view.live) {
      view.write();
      return;
    }
    if (change === "search" && turn === this.turn) {
      const [best] = turn.search.pages;
      this.announce();
      // On a phone the page would cover the answer.
      if (best && !matchMedia("(max-width: 700px)").matches) go({ shown: best.document, page: String(best.page) }, { replace: true });
    }
    this.showTurn(turn);
  }

  /** Tell the other parts of the page which question is on display, and where its passages are. */
  announce() {
    const { turn, passage } = this;
    const search = turn?.search && passage ? framed(turn.search, passage) : turn?.search;
    window.dispatchEvent(new CustomEvent("found", { detail: turn && { turn, body: turn.search?.query ?? turn.body, search } }));
  }

  show() {
    const { conversation } = this;
    if (!conversation) {
      refill(this, ...this.beginning());
      return;
    }
    const { turns } = conversation;
    const elements = turns.map((turn) => {
      this.showTurn(turn);
      return this.viewOf(turn).element;
    });
    refill(this, conversation.isUnsaved ? h("p", { class: "soft small" }, "This conversation isn't saved: you may read and ask here, but not change anything. It ends when you close the page.") : null, ...elements);
  }

  /** @param {import("./conversation.js").Turn} turn */
  showTurn(turn) {
    const isCurrent = turn === this.turn;
    const view = this.viewOf(turn);
    view.show({ isCurrent, isLast: turn === this.conversation?.turns.at(-1), words: this.words });
    if (isCurrent && this.why && this.why.parentElement !== view.element) view.element.append(this.why);
  }

  /** @param {import("./conversation.js").Turn} turn */
  viewOf(turn) {
    const known = this.views.get(turn);
    if (known) return known;
    const view = new TurnView(turn, {
      open: (document, page, boxes) => this.open(turn, { document, page, boxes }),
      select: () => go(this.addressOf(/** @type {Conversation} */ (this.conversation), turn)),
      ask: (question, standalone) => this.ask(question, standalone),
      again: () => this.ask(turn.body.question, turn.body.standalone),
      stop: () => this.conversation?.stop(turn),
    });
    this.views.set(turn, view);
    return view;
  }

  /**
   * Open a page, and frame a passage on it.
   * @param {import("./conversation.js").Turn} turn @param {{document: string, page: number, boxes?: number[][]}} target
   */
  open(turn, { document, page, boxes }) {
    const isCurrent = turn === this.turn;
    if (!isCurrent && this.conversation) go(this.addressOf(this.conversation, turn));
    this.passage = boxes?.length ? { document, page, boxes } : null;
    this.announce();
    go({ shown: document, page: String(page) }, { replace: !isCurrent });
  }

  /** Bring a question into view: to the top if it was just asked. @param {import("./conversation.js").Turn} turn */
  reach(turn) {
    const { element } = this.viewOf(turn);
    if (turn === this.conversation?.turns[0] && !this.isAsking) return;
    const column = /** @type {HTMLElement} */ (this.parentElement);
    const { top } = element.getBoundingClientRect();
    const area = column.getBoundingClientRect();
    if (this.isAsking || top < area.top || top > area.bottom - 100) column.scrollTop += top - area.top - 16;
  }

  /** What there is without a conversation: how to begin, or why one can't be shown. @returns {HTMLElement[]} */
  beginning() {
    if (this.loading && !this.problem) return [h("p", { class: "card soft", role: "status" }, "Loading the conversation …")];
    if (this.loading) {
      const retry = () => {
        this.loading = "";
        this.update();
      };
      return [h("div", { class: "card problem" }, h("p", { class: "bad", role: "alert" }, this.problem.message), h("p", {}, h("button", { onclick: retry }, "Try again"), h("button", { onclick: startNew }, "New conversation")))];
    }
    const { document: selected, collection } = current();
    const { library } = this;
    const documents = [...(library?.documents.values() ?? [])];
    const isEmpty = library?.isLoaded && !library.problem && !documents.length;
    const subject = selected ? "this document" : collection ? "this collection" : "your documents";
    const searched = documents.filter((one) => (selected ? one.id === selected : !collection || one.collections.includes(collection)));
    const recent = (this.threads?.shown ?? []).slice(0, RECENT_SHOWN).map((/** @type {any} */ one) => h("li", {}, h("button", { class: "link", onclick: () => go({ thread: one.id, turn: undefined, q: undefined }) }, one.name)));
    if (isEmpty) this.first ??= new FirstSteps();
    else this.first = null;
    return [h("div", { class: "empty" },
      h("h1", {}, isEmpty ? "Ask your documents anything" : `Ask a question about ${subject}`),
      h("p", { class: "soft" }, "ViSAR finds exactly the pages each question needs, and shows you why."),
      this.first?.element, ...suggestions(searched, (question) => this.ask(question)),
      ...(recent.length ? [h("h2", { class: "label" }, "Recent conversations"), h("ul", {}, ...recent)] : []))];
  }
}

/** A result whose page has the frames of a passage. @param {any} search @param {{document: string, page: number, boxes: number[][]}} passage */
function framed(search, { document, page, boxes }) {
  const isHit = (/** @type {any} */ hit) => hit.document === document && hit.page === page;
  return { ...search, strength: "good", pages: search.pages.map((/** @type {any} */ hit) => (isHit(hit) ? { ...hit, boxes, probability: null } : hit)) };
}

customElements.define("visar-answer", Answer);

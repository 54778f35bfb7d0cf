/** A question of a conversation with its answer and pages, as it stands in the answer column. */

import { path, url } from "./api.js";
import { current, go } from "./address.js";
import { answerCard, doubt, quoteCard, writtenText } from "./answers.js";
import { isBusy } from "./conversation.js";
import { copyText, h, refill } from "./dom.js";
import { startNew } from "./threads.js";
import { pageList, questionHeading, shadedWords, summaryLine } from "./views.js";

/**
 * @typedef {object} Actions what the buttons of a turn do
 * @property {(document: string, page: number, boxes?: number[][]) => void} open
 * @property {() => void} select shows the pages of the turn, and why they were chosen
 * @property {(question: string, standalone?: boolean) => void} ask
 * @property {() => void} again
 * @property {() => void} stop
 */

/** @typedef {{isCurrent: boolean, isLast: boolean, words: any[]}} State the words are those of the explanation, once it is known */

export class TurnView {
  isEditing = false;
  frame = 0;
  /** The answer while it is written. @type {HTMLElement | null} */ live = null;
  /** Kept, so that what was typed stays. @type {HTMLElement | null} */ form = null;

  /** @param {import("./conversation.js").Turn} turn @param {Actions} actions */
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.part = h("div", { class: "parts" });
    this.element = h("section", { class: "turn", "aria-label": turn.body.question }, this.part);
    /** @type {State} */ this.state = { isCurrent: false, isLast: false, words: [] };
  }

  /** @param {State} [state] */
  show(state = this.state) {
    this.state = state;
    const { turn, actions } = this;
    const { search } = turn;
    this.live = null;
    refill(this.part, this.heading(), search ? this.searched() : null, ...this.answer(), this.tools(),
      ...(search && state.isCurrent ? [
        summaryLine(search),
        pageList(search, (hit) => url(`documents/${path(hit.document)}/pages/${hit.page}/thumbnail`), (hit) => hit.document === current().shown && String(hit.page) === current().page, actions.open),
      ] : []));
  }

  get isRewritten() {
    const { search, body } = this.turn;
    return search && search.query.question !== body.question;
  }

  /** The words of the question, if they are known and were searched. */
  get words() {
    return this.state.isCurrent && this.turn.search ? this.state.words : [];
  }

  heading() {
    const { word } = current();
    return questionHeading(this.turn.body.question, this.isRewritten ? [] : this.words, word, selectWord, previewWord);
  }

  /** What a follow-up was rewritten to. */
  searched() {
    if (!this.isRewritten) return null;
    if (this.isEditing) return (this.form ??= this.editor());
    const asked = this.turn.search.query.question;
    const edit = () => {
      this.isEditing = true;
      this.show();
      this.form?.querySelector("input")?.focus();
    };
    return h("p", { class: "searched small soft" }, "Searched for: ", h("span", { class: "question" }, ...(this.words.length ? shadedWords(this.words, current().word, selectWord, previewWord) : [asked])),
      h("button", { class: "link", "aria-label": "Edit what was searched for", onclick: edit }, "Edit"));
  }

  editor() {
    const field = /** @type {HTMLInputElement} */ (h("input", { class: "filter", "aria-label": "Search for", maxlength: 4000, required: true, value: this.turn.search.query.question }));
    const close = () => {
      this.isEditing = false;
      this.form = null;
      this.show();
      /** @type {HTMLElement | null} */ (this.part.querySelector(".searched > .link"))?.focus();
    };
    const form = h("form", { class: "row searched" }, field, h("button", { class: "small" }, "Ask this"), h("button", { class: "small", type: "button", onclick: close }, "Cancel"));
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const question = field.value.trim();
      if (!question) return;
      close();
      this.actions.ask(question, true);
    });
    return form;
  }

  /** The answer, or what there is of it. @returns {HTMLElement[]} */
  answer() {
    const { turn, actions } = this;
    const { search, answer, problem, text, isStopped } = turn;
    if (isBusy(turn)) {
      this.live = search ? h("div", { class: "live" }, h("p", { class: "text soft" }, "Writing the answer …")) : null;
      if (text) this.write();
      return [h("div", { class: "card" }, this.live ?? h("p", { class: "soft", role: "status" }, "Searching …"))];
    }
    const draft = text && !answer ? plainly(text) : null;
    if (isStopped) return [h("div", { class: "card" }, draft, h("p", { class: "small soft", role: "status" }, search ? "Stopped." : "Stopped before anything was found."))];
    if (problem) {
      return [this.problemCard(), ...(draft ? [h("div", { class: "card" }, draft, h("p", { class: "small bad" }, "The answer broke off here."))] : []),
        ...(search ? [quoteCard(search, search.strength === "none" ? [] : search.passages, actions.open, picture)] : [])];
    }
    return [answerCard(search, answer, actions.open, picture),
      ...(answer.problem && text && text !== answer.text ? [h("details", { class: "card" }, h("summary", { class: "soft small" }, "What was written before"), plainly(text))] : [])];
  }

  /** Show the text that was written so far, at most once for each frame of the screen. */
  write() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.live?.replaceChildren(plainly(this.turn.text));
    });
  }

  tools() {
    const { turn, actions, state } = this;
    const button = (/** @type {string} */ text, /** @type {() => void} */ act) => h("button", { class: "quiet small", onclick: act }, text);
    if (isBusy(turn)) return h("p", { class: "acts" }, button("Stop", actions.stop));
    return h("p", { class: "acts" },
      turn.answer?.text ? button("Copy", () => copyText(copied(turn.answer))) : null,
      state.isLast && !turn.problem ? button("Ask again", actions.again) : null,
      turn.search && !state.isCurrent ? button("Pages and reasons", actions.select) : null);
  }

  problemCard() {
    const { body, problem } = this.turn;
    const isMissing = problem.code === "not_found";
    const everywhere = () => {
      go({ document: undefined, collection: undefined, shown: undefined, page: undefined });
      this.actions.again();
    };
    return h("div", { class: "card problem" }, h("p", { class: "bad", role: "alert" }, problem.message),
      h("p", {},
        problem.code === "token" ? h("button", { onclick: () => location.reload() }, "Sign in") : h("button", { onclick: this.actions.again }, "Try again"),
        isMissing && (body.documents || body.collection) ? h("button", { onclick: everywhere }, "Search all documents") : null,
        isMissing && current().thread ? h("button", { onclick: startNew }, "New conversation") : null));
  }
}

const selectWord = (/** @type {string | undefined} */ word) => go({ word });

const previewWord = (/** @type {string | undefined} */ word) => window.dispatchEvent(new CustomEvent("preview", { detail: word }));

const picture = (/** @type {any} */ hit) => url(`documents/${path(hit.document)}/pages/${hit.page}/image`);

/** Text whose citations aren't known yet. @param {string} text */
function plainly(text) {
  const numbers = text.match(/\[\d+\]/g) ?? [];
  return writtenText(text, (index) => h("span", { class: "cite" }, numbers[index]));
}

/** An answer as text, with the pages it cites. @param {any} answer */
function copied({ text, citations, passages, search, problem }) {
  const name = (/** @type {any} */ page) => `${search.pages.find((/** @type {any} */ hit) => hit.document === page.document)?.name ?? ""}, page ${page.page}`;
  const cited = citations.map((/** @type {any} */ one) => `[${one.number}] ${one.document === null ? `page ${one.label}` : name(one)}${doubt(one) ? ` (${doubt(one)})` : ""}`);
  const lines = citations.length && !problem ? cited : passages.map(name);
  return `${text}\n\n${[...new Set(lines)].join("\n")}\n`;
}

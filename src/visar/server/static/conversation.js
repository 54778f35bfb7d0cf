/** A conversation: its questions and answers, how they are asked, and where they are kept. */

import { ApiError, get, path, post, stream } from "./api.js";
import { chosenGenerator } from "./generators.js";

/** Number of turns that are sent for a follow-up if the conversation can't be saved. */
const MAX_TURNS_SENT = 6;
/** Ids of conversations that the server doesn't keep begin with this. */
const UNSAVED = "unsaved-";
/** Errors that say that nothing can be saved, though questions can be asked. */
const CANT_SAVE = ["read_only", "disk_full"];

/**
 * @typedef {object} Body
 * @property {string} question
 * @property {string[]} [documents]
 * @property {string} [collection]
 * @property {boolean} [standalone] whether to search for the question as it is
 */

/**
 * @typedef {object} Turn a question and what is known of its answer
 * @property {Body} body the request
 * @property {AbortController} controller
 * @property {string} text the answer so far
 * @property {any} [search]
 * @property {any} [answer]
 * @property {any} [problem] an error, if the request failed
 * @property {boolean} [isStopped]
 * @property {Promise<any>} [explanation] the request for it
 * @property {any} [explained] the explanation
 */

/** @typedef {"thread" | "search" | "text" | "end"} Change what is new: the id of the conversation, or a part of a turn */

/** @param {Body} body @returns {Turn} */
const newTurn = (body) => ({ body, text: "", controller: new AbortController() });

/** @param {Turn} turn */
export const isBusy = (turn) => !turn.answer && !turn.problem && !turn.isStopped;

export class Conversation {
  id = "";
  name = "";
  /** The only collection that it is about. @type {string | undefined} */ collection;
  /** @type {Turn[]} */ turns = [];

  /** @param {(conversation: Conversation, turn: Turn, change: Change) => void} changed */
  constructor(changed) {
    this.changed = changed;
  }

  get isUnsaved() {
    return this.id.startsWith(UNSAVED);
  }

  /**
   * Read a conversation that was saved, or kept by the browser for this visit.
   * @param {string} id @param {Conversation["changed"]} changed
   */
  static async load(id, changed) {
    const found = id.startsWith(UNSAVED) ? JSON.parse(sessionStorage.getItem(id) ?? "null") : await get(`threads/${path(id)}`);
    if (!found) throw new ApiError("This conversation wasn't saved. Ask again in a new one.", "not_found");
    const conversation = new Conversation(changed);
    Object.assign(conversation, { id, name: found.name ?? "", collection: found.collection ?? undefined });
    for (const { question, answer } of found.exchanges) {
      const { documents, collection } = answer.search.query;
      conversation.turns.push({ ...newTurn({ question, ...(documents ? { documents } : {}), ...(collection ? { collection } : {}) }), search: answer.search, answer, text: answer.text });
    }
    return conversation;
  }

  /** Ask a question. The last one is replaced if it is the same. @param {Body} body */
  ask(body) {
    const last = this.turns.at(-1);
    if (last) this.stop(last);
    const turn = newTurn(body);
    if (last?.body.question === body.question) this.turns.pop();
    this.turns.push(turn);
    this.follow(turn);
    return turn;
  }

  /** @param {Turn} turn */
  stop(turn) {
    if (!isBusy(turn)) return;
    turn.isStopped = true;
    turn.controller.abort();
    this.changed(this, turn, "end");
  }

  /** @param {Turn} turn */
  async follow(turn) {
    try {
      await this.send(turn);
    } catch (error) {
      if (turn.isStopped) return;
      turn.problem = error;
    }
    if (turn.isStopped) return;
    this.keep();
    this.changed(this, turn, "end");
  }

  /** @param {Turn} turn @returns {Promise<void>} */
  async send(turn) {
    const take = (/** @type {string} */ event, /** @type {any} */ data) => {
      if (turn.isStopped) return;
      if (event === "search") turn.search = data;
      else if (event === "answer") turn.answer = data;
      else turn.text += data;
      if (event !== "answer") this.changed(this, turn, event === "search" ? "search" : "text");
    };
    try {
      if (!this.id) this.named(turn, (await post("threads", {})).id);
      const generator = await chosenGenerator();
      const before = this.isUnsaved ? { history: this.before(turn) } : { thread: this.id };
      if (!turn.isStopped) await stream("ask/stream", { ...turn.body, ...before, ...(generator ? { generator } : {}) }, take, turn.controller.signal);
    } catch (error) {
      if (this.isUnsaved || !CANT_SAVE.includes(/** @type {ApiError} */ (error).code)) throw error;
      this.named(turn, `${UNSAVED}${Date.now()}`);
      await this.send(turn);
    }
  }

  /** @param {Turn} turn @param {string} id */
  named(turn, id) {
    this.id = id;
    this.changed(this, turn, "thread");
  }

  /** Return what was asked and answered before a turn, as a follow-up needs it. @param {Turn} turn */
  before(turn) {
    const answered = this.turns.slice(0, this.turns.indexOf(turn)).filter((one) => one.answer);
    return answered.slice(-MAX_TURNS_SENT).map(({ search, answer }) => ({ question: search.query.question, answer: answer.text }));
  }

  /** Keep a conversation that the server doesn't save, so that the page can be loaded again. */
  keep() {
    if (!this.isUnsaved) return;
    const exchanges = this.turns.filter((one) => one.answer).map(({ body, answer }) => ({ question: body.question, answer }));
    try {
      sessionStorage.setItem(this.id, JSON.stringify({ exchanges }));
    } catch {
      // It is too large, or the browser allows no storage: then it ends with the visit.
    }
  }
}

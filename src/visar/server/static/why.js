/** Why these pages: the relevance of every page, how much the best ones overlap, and the cost of stopping. */

import { path, post, url } from "./api.js";
import { current, go } from "./address.js";
import { h } from "./dom.js";
import { reasons } from "./views.js";

class Why extends HTMLElement {
  /** @type {import("./conversation.js").Turn | undefined} */ turn;
  /** @type {import("./matrix.js").SimilarityMap | null} */ matrix = null;

  constructor() {
    super();
    window.addEventListener("found", (event) => this.load(/** @type {CustomEvent} */ (event).detail?.turn));
    window.addEventListener("view", () => this.matrix?.set(current()));
    window.addEventListener("theme", () => this.matrix?.draw());
  }

  /** @param {import("./conversation.js").Turn | undefined} turn */
  async load(turn) {
    const isShown = turn === this.turn && this.matrix;
    this.turn = turn;
    if (!isShown) {
      this.hidden = true;
      this.matrix = null;
    }
    if (!turn?.search || turn.search.pages_searched < 2) {
      this.announce(null);
      return;
    }
    // Without a wait if it is known: the page viewer can't load another page meanwhile.
    if (turn.explained) {
      if (!isShown) this.show(turn, turn.explained);
      this.announce(turn.explained);
      return;
    }
    this.announce(null);
    try {
      turn.explained = await (turn.explanation ??= post("explain", turn.search.query));
      if (turn !== this.turn) return;
      this.show(turn, turn.explained);
      this.announce(turn.explained);
    } catch (error) {
      delete turn.explanation;
      if (turn !== this.turn) return;
      this.replaceChildren(h("div", { class: "card problem" }, h("p", { class: "soft", role: "alert" }, "Can't explain the choice of pages. ", /** @type {Error} */ (error).message), h("p", {}, h("button", { onclick: () => this.load(turn) }, "Try again"))));
      this.hidden = false;
    }
  }

  /** @param {import("./conversation.js").Turn} turn @param {any} explanation */
  show({ search }, explanation) {
    const pageOf = (/** @type {any} */ page) => ({ document: page.document, page: page.page });
    const { element, matrix } = reasons(search, explanation, (id, page) => go({ shown: id, page: String(page) }), {
      picture: (page) => url(`documents/${path(page.document)}/pages/${page.page}/image?dpi=72`),
      pairs: (first, second) => post("explain/pair", { ...search.query, first: pageOf(first), second: pageOf(second) }),
      change: go,
    });
    this.replaceChildren(element);
    this.hidden = false;
    this.matrix = matrix;
    matrix.set(current());
  }

  /** @param {any} explanation */
  announce(explanation) {
    window.dispatchEvent(new CustomEvent("explained", { detail: explanation }));
  }
}

customElements.define("visar-why", Why);

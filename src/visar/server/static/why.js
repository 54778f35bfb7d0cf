/** Why these pages: the relevance of every page, how much the best ones overlap, and the cost of stopping. */

import { path, post, url } from "./api.js";
import { current, go } from "./address.js";
import { h } from "./dom.js";
import { reasons } from "./views.js";

class Why extends HTMLElement {
  /** @type {import("./answer.js").Exchange | undefined} */ exchange;
  /** @type {import("./matrix.js").SimilarityMap | null} */ matrix = null;

  connectedCallback() {
    window.addEventListener("found", (event) => this.load(/** @type {CustomEvent} */ (event).detail));
    window.addEventListener("view", () => this.matrix?.set(current()));
    window.addEventListener("theme", () => this.matrix?.draw());
  }

  /** @param {import("./answer.js").Exchange | undefined} exchange */
  async load(exchange) {
    this.exchange = exchange;
    this.hidden = true;
    this.matrix = null;
    this.announce(null);
    if (!exchange?.search || exchange.search.pages_searched < 2) return;
    const { search } = exchange;
    try {
      const explanation = await (exchange.explanation ??= post("explain", search.query));
      if (exchange !== this.exchange) return;
      this.announce(explanation);
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
    } catch (error) {
      delete exchange.explanation;
      if (exchange !== this.exchange) return;
      this.replaceChildren(h("div", { class: "card problem" }, h("p", { class: "soft", role: "alert" }, "Can't explain the choice of pages. ", /** @type {Error} */ (error).message), h("p", {}, h("button", { onclick: () => this.load(exchange) }, "Try again"))));
      this.hidden = false;
    }
  }

  /** @param {any} explanation */
  announce(explanation) {
    window.dispatchEvent(new CustomEvent("explained", { detail: explanation }));
  }
}

customElements.define("visar-why", Why);

/** Why these pages: the activity of every page, how alike the best are, and the cost of stopping. */

import { bytes, path, post, url } from "./api.js";
import { current, go } from "./address.js";
import { h } from "./dom.js";
import { reasons } from "./views.js";

class Why extends HTMLElement {
  /** @type {AbortController | null} */ running = null;
  /** @type {import("./matrix.js").SimilarityMap | null} */ map = null;

  connectedCallback() {
    window.addEventListener("found", (event) => this.load(/** @type {CustomEvent} */ (event).detail));
    window.addEventListener("view", () => this.map?.set(current()));
    window.addEventListener("theme", () => this.map?.draw());
  }

  /** @param {{search: any, body: any}} found */
  async load({ search, body }) {
    this.running?.abort();
    this.hidden = true;
    this.map = null;
    this.tell(null);
    if (!search || search.pages_searched < 2) return;
    this.running = new AbortController();
    const { signal } = this.running;
    try {
      const explanation = await post("explain", body, signal);
      const matrix = new Float32Array(await bytes("explain/matrix", body, signal));
      if (signal.aborted) return;
      this.tell(explanation);
      const place = (/** @type {any} */ page) => ({ document: page.document, page: page.page });
      const { element, map } = reasons(search, explanation, matrix, (document, page) => go({ shown: document, page: String(page) }), {
        picture: (page) => url(`documents/${path(page.document)}/pages/${page.page}/image?dpi=72`),
        pairs: (first, second) => post("explain/pair", { ...body, first: place(first), second: place(second) }, signal),
        change: go,
      });
      this.replaceChildren(element);
      this.hidden = false;
      this.map = map;
      map.set(current());
    } catch (error) {
      if (/** @type {Error} */ (error).name === "AbortError") return;
      this.replaceChildren(h("p", { class: "card soft" }, "The reasons could not be had: ", /** @type {Error} */ (error).message));
      this.hidden = false;
    }
  }

  /** @param {any} explanation */
  tell(explanation) {
    window.dispatchEvent(new CustomEvent("explained", { detail: explanation }));
  }
}

customElements.define("visar-why", Why);

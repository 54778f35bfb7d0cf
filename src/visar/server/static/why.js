/** Why these pages: the activity of every page, how alike the best are, and the cost of stopping. */

import { bytes, post } from "./api.js";
import { go } from "./address.js";
import { h } from "./dom.js";
import { reasons } from "./views.js";

class Why extends HTMLElement {
  /** @type {AbortController | null} */ running = null;

  connectedCallback() {
    window.addEventListener("found", (event) => this.load(/** @type {CustomEvent} */ (event).detail));
  }

  /** @param {{search: any, body: any}} found */
  async load({ search, body }) {
    this.running?.abort();
    this.hidden = true;
    this.tell(null);
    if (!search || search.pages_searched < 2) return;
    this.running = new AbortController();
    const { signal } = this.running;
    try {
      const explanation = await post("explain", body, signal);
      const matrix = new Float32Array(await bytes("explain/matrix", body, signal));
      if (signal.aborted) return;
      this.tell(explanation);
      this.replaceChildren(reasons(search, explanation, matrix, (document, page) => go({ shown: document, page: String(page) })));
      this.hidden = false;
    } catch (error) {
      if (/** @type {Error} */ (error).name !== "AbortError") this.replaceChildren(h("p", { class: "card soft" }, "The reasons could not be had: ", /** @type {Error} */ (error).message));
    }
  }

  /** @param {any} explanation */
  tell(explanation) {
    window.dispatchEvent(new CustomEvent("explained", { detail: explanation }));
  }

}

customElements.define("visar-why", Why);

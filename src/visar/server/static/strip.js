/** A strip of small pictures of all pages, loaded as they come into view. */

import { path, url } from "./api.js";
import { h } from "./dom.js";

export class Strip {
  id = "";
  page = 0;
  /** @type {HTMLElement[]} */ pages = [];
  list = h("ol", { class: "strip", "aria-label": "Pages", hidden: true });
  observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) this.load(/** @type {HTMLElement} */ (target));
  }, { root: this.list, rootMargin: "0px 200px" });

  /** @param {(page: number) => void} open */
  constructor(open) {
    this.open = open;
  }

  /** @param {boolean} isShown @param {any} document @param {number} page @param {Map<number, number>} counts matches by page */
  show(isShown, document, page, counts) {
    const wasHidden = this.list.hidden;
    this.list.hidden = !isShown || !document;
    if (this.list.hidden) return;
    // Pictures that could not be had are tried again when the strip is shown again.
    if (wasHidden || document.id !== this.id) this.fill(document);
    this.pages.forEach((one, index) => {
      const isCurrent = index + 1 === page;
      const count = counts.get(index + 1) ?? 0;
      const button = /** @type {HTMLElement} */ (one.firstChild);
      button.setAttribute("aria-current", String(isCurrent));
      // Tab reaches the strip once; the arrow keys turn its pages.
      button.tabIndex = isCurrent ? 0 : -1;
      if (button.dataset.count === String(count)) return;
      button.dataset.count = String(count);
      button.setAttribute("aria-label", count ? `Page ${index + 1}, ${count} found` : `Page ${index + 1}`);
    });
    const current = this.pages[page - 1];
    if (page === this.page) return;
    this.page = page;
    if (this.list.contains(window.document.activeElement)) /** @type {HTMLElement} */ (current?.firstChild)?.focus({ preventScroll: true });
    if (current) this.list.scrollTo({ left: current.offsetLeft - (this.list.clientWidth - current.clientWidth) / 2 });
  }

  /** @param {any} document */
  fill(document) {
    this.id = document.id;
    this.page = 0;
    this.observer.disconnect();
    this.pages = Array.from({ length: document.pages }, (_, index) => h("li", {}, h("button", { onclick: () => this.open(index + 1) }, String(index + 1))));
    this.list.replaceChildren(...this.pages);
    for (const one of this.pages) this.observer.observe(one);
  }

  /** @param {HTMLElement} item */
  load(item) {
    this.observer.unobserve(item);
    const image = h("img", { src: url(`documents/${path(this.id)}/pages/${this.pages.indexOf(item) + 1}/thumbnail`), alt: "" });
    image.addEventListener("error", () => image.remove()); // its number remains
    item.firstChild?.insertBefore(image, item.firstChild.firstChild);
  }
}

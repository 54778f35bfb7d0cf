/** The address of a view: everything that reload, back and a shared link must bring again. */

/**
 * @typedef {object} View
 * @property {string} [q] the question
 * @property {string} [document] what it is about: an id, or nothing for all
 * @property {string} [collection] or this collection
 * @property {string} [shown] the document whose page is shown
 * @property {string} [page] its number
 * @property {string} [word] the number of the question's word whose heat is shown, or "off"
 * @property {string} [order] of the matrix: "page", or nothing for by rank
 * @property {string} [cell] of the matrix: two ranks from 1, with a dot between
 */

const FIELDS = /** @type {const} */ (["q", "document", "collection", "shown", "page", "word", "order", "cell"]);

/** @returns {View} */
export function current() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(FIELDS.filter((name) => query.has(name)).map((name) => [name, query.get(name)]));
}

/**
 * Change parts of the view; those set to undefined go. Listeners of "view" on the window are told.
 * @param {View} changes
 * @param {{replace?: boolean}} [options]
 */
export function go(changes, { replace = false } = {}) {
  const next = /** @type {Record<string, string | undefined>} */ ({ ...current(), ...changes });
  const query = new URLSearchParams();
  for (const name of FIELDS) if (next[name]) query.set(name, next[name]);
  const address = query.size ? `?${query}` : location.pathname;
  if (replace) history.replaceState(null, "", address);
  else if (address !== location.search) history.pushState(null, "", address);
  window.dispatchEvent(new CustomEvent("view"));
}

window.addEventListener("popstate", () => window.dispatchEvent(new CustomEvent("view")));

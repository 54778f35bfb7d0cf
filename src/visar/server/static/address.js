/** The address of a view: everything that reload, back and a shared link restore. */

/**
 * @typedef {object} View
 * @property {string} [thread] id of the conversation
 * @property {string} [turn] number of the question in it, from 1; the last by default
 * @property {string} [q] the question: asked in the conversation, or in a new one, unless it was asked there before
 * @property {string} [document] id of the document to search; all by default
 * @property {string} [collection] name of the collection to search
 * @property {string} [shown] id of the document in the page viewer
 * @property {string} [page] page number in the viewer
 * @property {string} [word] index of the question's word whose heat is shown, or "off"
 * @property {string} [order] "page" to sort the matrix by page; by rank by default
 * @property {string} [cell] cell of the matrix: two ranks from 1, joined by a dot
 */

const FIELDS = /** @type {const} */ (["thread", "turn", "q", "document", "collection", "shown", "page", "word", "order", "cell"]);

/** @returns {View} */
export function current() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(FIELDS.filter((name) => query.has(name)).map((name) => [name, query.get(name)]));
}

/**
 * Change parts of the view; undefined removes a part. Fires "view" on the window.
 * @param {View} changes
 * @param {{replace?: boolean}} [options]
 */
export function go(changes, { replace = false } = {}) {
  const next = /** @type {Record<string, string | undefined>} */ ({ ...current(), ...changes });
  const query = new URLSearchParams();
  for (const name of FIELDS) if (next[name]) query.set(name, next[name]);
  const search = query.size ? `?${query}` : "";
  if (replace) history.replaceState(null, "", location.pathname + search);
  else if (search !== location.search) history.pushState(null, "", location.pathname + search);
  window.dispatchEvent(new CustomEvent("view"));
}

window.addEventListener("popstate", () => window.dispatchEvent(new CustomEvent("view")));

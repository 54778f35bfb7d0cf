/** Elements without markup: text is always text, whatever a document or a model has written. */

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes] properties that begin with "on" are listeners
 * @param {...(Node | string | null | undefined)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") && value != null) element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child != null).map((child) => child ?? ""));
  return element;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/**
 * Replace what an element holds; what had the focus there has it again, found by its name.
 * @param {HTMLElement} parent
 * @param {...Node} children
 */
export function refill(parent, ...children) {
  const named = (/** @type {Element} */ one) => `${one.tagName} ${one.getAttribute("aria-label") ?? one.textContent}`;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const wanted = focused && named(focused);
  const alike = () => [...parent.querySelectorAll("a, button, input")].filter((one) => named(one) === wanted);
  const place = focused ? alike().indexOf(focused) : -1;
  parent.replaceChildren(...children);
  if (focused) /** @type {HTMLElement | undefined} */ (alike()[place])?.focus({ preventScroll: true });
}

/**
 * @typedef {object} Item an entry of a list that changes while it is used
 * @property {string} key
 * @property {() => HTMLElement} make
 * @property {(item: HTMLElement) => void} [refresh]
 */

/**
 * Show items in order. Those that are there already stay, with what is typed and focused in them.
 * @param {HTMLElement} list
 * @param {Item[]} items
 */
export function arrange(list, items) {
  const known = new Map([...list.children].map((one) => [/** @type {HTMLElement} */ (one).dataset.key, /** @type {HTMLElement} */ (one)]));
  const keys = new Set(items.map((one) => one.key));
  for (const [key, one] of known) if (!key || !keys.has(key)) one.remove();
  items.forEach(({ key, make, refresh }, position) => {
    const item = known.get(key) ?? make();
    item.dataset.key = key;
    refresh?.(item);
    if (list.children[position] !== item) list.insertBefore(item, list.children[position] ?? null);
  });
}

/**
 * Show a message for a while, perhaps with something to do about it.
 * @param {string} text
 * @param {{action?: string, run?: () => void, done?: () => void, seconds?: number}} [options]
 */
export function notice(text, { action, run, done, seconds = 6 } = {}) {
  const box = h("div", { class: "notice" }, h("span", {}, text));
  const timer = setTimeout(() => {
    box.remove();
    done?.();
  }, seconds * 1000);
  if (action) {
    const act = () => {
      clearTimeout(timer);
      box.remove();
      run?.();
    };
    box.append(h("button", { onclick: act }, action));
  }
  document.getElementById("notices")?.append(box);
}

/** @param {number} number @param {string} noun */
export const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

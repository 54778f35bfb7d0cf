/** Elements without markup: text from documents and models always stays text. */

/**
 * @template {Element} T
 * @param {T} element @param {Record<string, any>} attributes @param {(Node | string | null | undefined)[]} children
 */
function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    const isAria = name.startsWith("aria-");
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value != null && (value !== false || isAria)) element.setAttribute(name, value === true && !isAria ? "" : String(value));
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/**
 * Create an HTML element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes] names that start with "on" are event listeners
 * @param {...(Node | string | null | undefined)} children
 * @returns {HTMLElement}
 */
export const h = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);

/**
 * Create an SVG element.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export const svg = (tag, attributes = {}, ...children) =>
  build(/** @type {SVGElement} */ (document.createElementNS("http://www.w3.org/2000/svg", tag)), attributes, children);

/**
 * Place an element on its parent.
 * @template {HTMLElement | SVGElement} T
 * @param {T} element @param {number[]} box left, top, right and bottom as fractions of the parent
 */
export function place(element, [left, top, right, bottom]) {
  Object.assign(element.style, { left: `${100 * left}%`, top: `${100 * top}%`, width: `${100 * (right - left)}%`, height: `${100 * (bottom - top)}%` });
  return element;
}

/**
 * Replace the children of an element. The control that had the focus gets it back, matched by its name, and what was
 * unfolded stays so.
 * @param {HTMLElement} parent
 * @param {...(Node | null)} children
 */
export function refill(parent, ...children) {
  const nameOf = (/** @type {Element} */ one) => `${one.tagName} ${one.getAttribute("aria-label") ?? one.textContent}`;
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const name = focused && nameOf(focused);
  const matches = () => [...parent.querySelectorAll("a, button, input")].filter((one) => nameOf(one) === name);
  const index = focused ? matches().indexOf(focused) : -1;
  const unfolded = [...parent.querySelectorAll("details[open] > summary")].map(nameOf);
  parent.replaceChildren(...children.filter((child) => child !== null));
  for (const one of parent.querySelectorAll("details > summary")) if (unfolded.includes(nameOf(one))) /** @type {HTMLDetailsElement} */ (one.parentElement).open = true;
  if (focused) /** @type {HTMLElement | undefined} */ (matches()[index])?.focus({ preventScroll: true });
}

/**
 * @typedef {object} Item an entry of a list that changes while it is in use
 * @property {string} key
 * @property {() => HTMLElement} make
 * @property {(item: HTMLElement) => void} [refresh]
 */

/**
 * Show items in order. Existing elements stay, with the text and focus they have.
 * @param {HTMLElement} list
 * @param {Item[]} items
 */
export function arrange(list, items) {
  const existing = new Map([...list.children].map((one) => [/** @type {HTMLElement} */ (one).dataset.key, /** @type {HTMLElement} */ (one)]));
  const keys = new Set(items.map((one) => one.key));
  for (const [key, one] of existing) if (!key || !keys.has(key)) one.remove();
  items.forEach(({ key, make, refresh }, index) => {
    const item = existing.get(key) ?? make();
    item.dataset.key = key;
    refresh?.(item);
    if (list.children[index] !== item) list.insertBefore(item, list.children[index] ?? null);
  });
}

/** The item below a part of a list that shows more. @param {string} left what isn't shown @param {() => void} show @returns {Item} */
export const moreItem = (left, show) => ({
  key: "more",
  make: () => h("li", {}, h("button", { class: "link small", onclick: show })),
  refresh: (item) => item.firstElementChild?.replaceChildren(`Show more (${left} left)`),
});

/**
 * Show a message for a few seconds, optionally with a button.
 * @param {string} text
 * @param {{action?: string, run?: () => void, done?: () => void, seconds?: number}} [options] done is called when the time is up
 */
export function notice(text, { action, run, done, seconds = 6 } = {}) {
  const box = h("div", { class: "notice" }, h("span", {}, text));
  const timer = setTimeout(() => {
    box.remove();
    done?.();
  }, seconds * 1000);
  const act = () => {
    clearTimeout(timer);
    box.remove();
    run?.();
  };
  if (action) box.append(h("button", { onclick: act }, action));
  document.getElementById("notices")?.append(box);
}

/**
 * Draw something again whenever its width changes.
 * @param {string} className @param {number} width in pixels, until it is known @param {(width: number) => Element} draw
 */
export function fitted(className, width, draw) {
  const box = h("div", { class: className }, draw(width));
  let known = width;
  new ResizeObserver(([{ contentRect }]) => {
    const now = Math.round(contentRect.width);
    if (!now || now === known) return; // nothing has a width while it is folded
    known = now;
    box.replaceChildren(draw(now));
  }).observe(box);
  return box;
}

/** @param {number} number @param {string} noun */
export const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** The accent color of the theme, for a canvas. */
export const accentColor = () => getComputedStyle(document.documentElement).accentColor;

/** Put a text on the clipboard, and say so. @param {string} text @param {string} [said] */
export async function copyText(text, said = "Copied.") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers have no clipboard on plain HTTP, except on localhost.
    const field = /** @type {HTMLTextAreaElement} */ (h("textarea", { class: "hidden", "aria-label": "Text to copy" }));
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  notice(said, { seconds: 3 });
}

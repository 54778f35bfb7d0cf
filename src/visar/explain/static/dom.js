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

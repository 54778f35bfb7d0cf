/** File names: where one does not fit, its middle is cut, so that its end and extension stay readable. */

import { h } from "./dom.js";

const SHORT = 18;
const LONGEST_EXTENSION = 6;
const KEPT_BEFORE_EXTENSION = 9;

/** @param {string} name @param {string} [tag] */
export function fileName(name, tag = "span") {
  const letters = [...name];
  const extension = letters.length - letters.lastIndexOf(".");
  const tail = KEPT_BEFORE_EXTENSION + (extension <= LONGEST_EXTENSION ? extension : 0);
  const parts = letters.length <= SHORT ? ["", name] : [letters.slice(0, -tail).join(""), letters.slice(-tail).join("")];
  return h(tag, { class: "name", title: name, dir: "auto" }, ...parts.map((part) => h("span", {}, part)));
}

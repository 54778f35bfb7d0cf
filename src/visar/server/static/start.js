/** The answer column before the first question: how to begin, and questions to try. */

import { get, path, post } from "./api.js";
import { h } from "./dom.js";

const SAMPLE = "harbour-light-annual-report.pdf";
const SAMPLE_QUESTIONS = ["How long is the warranty on the Aurora 4 lantern?", "How did capital expenditure change between 2020 and 2024?", "Who is the chief executive?"];
/** They fit every document. */
const OTHER_QUESTIONS = ["What is this document about?", "Who wrote it?"];
const JOB_MILLISECONDS = 500;

/** Questions to click. @param {any[]} documents those that would be asked @param {(question: string) => void} ask */
export function suggestions(documents, ask) {
  const newest = documents.at(-1);
  if (!newest) return [];
  const questions = documents.some((one) => one.name === SAMPLE) ? SAMPLE_QUESTIONS : documents.length === 1 ? OTHER_QUESTIONS : [];
  return questions.length ? [h("h2", { class: "label" }, "Try asking"), h("ul", { class: "suggestions" }, ...questions.map((one) => h("li", {}, h("button", { onclick: () => ask(one) }, one))))] : [];
}

/** What to do with an empty library. It keeps its state while the sample is added, so it is made once. */
export class FirstSteps {
  constructor() {
    const choose = () => document.getElementById("files")?.click();
    this.status = h("p", { class: "small", role: "status" });
    this.sample = /** @type {HTMLButtonElement} */ (h("button", { onclick: () => this.addSample() }, "Try the sample report"));
    this.element = h("div", { class: "first" },
      h("div", { class: "target" },
        h("p", { class: "text" }, "Drop your documents here"),
        h("p", { class: "soft" }, "PDFs, scans, images, Office files or texts, one or a whole folder"),
        h("p", { class: "actions" }, h("button", { class: "primary", onclick: choose }, "Choose files"), this.sample), this.status));
  }

  async addSample() {
    this.sample.disabled = true;
    this.say("Adding the sample report …");
    try {
      let job = await post("documents/sample", {});
      while (!["done", "failed", "cancelled"].includes(job.state)) {
        await new Promise((resolve) => setTimeout(resolve, JOB_MILLISECONDS));
        job = await get(`jobs/${path(job.id)}`);
        if (job.pages) this.say(`Adding the sample report: ${job.stage === "encoding" ? "encoding" : "reading"} page ${job.pages_done} of ${job.pages}`);
      }
      // Once it is in the library, questions replace this.
      if (job.state !== "done") this.say(`The sample report wasn't added${job.reason ? `: ${job.reason}` : ""}. Try again, or choose a file.`, true);
    } catch (error) {
      this.say(/** @type {Error} */ (error).message, true);
    }
    this.sample.disabled = false;
  }

  /** @param {string} text @param {boolean} [isBad] */
  say(text, isBad = false) {
    this.status.textContent = text;
    this.status.classList.toggle("bad", isBad);
  }
}

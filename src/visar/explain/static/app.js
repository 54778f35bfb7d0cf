/** The report as an MCP App: a host shows it in a frame and sends it the result of the `explain` tool. */

import { h } from "./dom.js";
import { show } from "./report.js";

/** @param {object} message JSON-RPC message of the extension io.modelcontextprotocol/ui */
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");

/** @param {any} result result of the tool */
function receive(result) {
  const report = result._meta?.["visar/report"];
  if (report) show(report);
  // The tool failed, or the host doesn't pass on the metadata.
  else document.querySelector("main")?.replaceChildren(...result.content.map((/** @type {any} */ block) => h("p", {}, block.text)));
}

addEventListener("message", ({ source, data }) => {
  if (source !== parent || data?.jsonrpc !== "2.0") return;
  if (data.method === "ui/notifications/tool-result") receive(data.params);
  else if (data.method === "ping" || data.method === "ui/resource-teardown") send({ id: data.id, result: {} });
  else if (data.id === "initialize" && data.result) send({ method: "ui/notifications/initialized" });
});
new ResizeObserver(() => {
  const { scrollWidth: width, offsetHeight: height } = document.documentElement;
  send({ method: "ui/notifications/size-changed", params: { width, height } });
}).observe(document.documentElement);
send({
  id: "initialize",
  method: "ui/initialize",
  params: { protocolVersion: "2026-01-26", appInfo: { name: "visar", version: "1" }, appCapabilities: {} },
});

/** Requests to the server. Every error has the sentence that the server says. */

const ROOT = new URL("api/v1/", document.baseURI);

export class ApiError extends Error {
  /** @param {string} message @param {string} code */
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** @param {string} path */
export const url = (path) => new URL(path, ROOT).href;

/** @param {...string | number} parts */
export const path = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

/** @param {Response} response */
async function refused(response) {
  const said = await response.json().catch(() => ({}));
  return new ApiError(said.detail ?? `The server answers ${response.status}.`, said.code ?? "");
}

/**
 * @param {string} method
 * @param {string} where
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function send(method, where, body, signal) {
  /** @type {Record<string, string>} */ const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(url(where), { method, signal, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is it still running?", "connection");
  }
  if (!response.ok) throw await refused(response);
  return response;
}

/** @param {string} where @returns {Promise<any>} */
export const get = async (where) => (await send("GET", where)).json();

/** @param {string} where @param {unknown} body @param {AbortSignal} [signal] @returns {Promise<any>} */
export const post = async (where, body, signal) => (await send("POST", where, body, signal)).json();

/** @param {string} where @param {unknown} body @param {AbortSignal} [signal] */
export const bytes = async (where, body, signal) => (await send("POST", where, body, signal)).arrayBuffer();

/** @param {string} method @param {string} where @param {unknown} [body] */
export const change = (method, where, body) => send(method, where, body);

/** @param {string} token @returns {Promise<boolean>} whether it is the right one */
export async function signIn(token) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  return (await fetch(url("session"), { method: "POST", headers, body: "{}" })).ok;
}

/** A file of a tar stream: its header, with names of any length in one of its own, and its content. @param {File} file */
function member(file) {
  const encoder = new TextEncoder();
  const header = (/** @type {string} */ name, /** @type {number} */ size, /** @type {string} */ kind) => {
    const block = new Uint8Array(512);
    const write = (/** @type {string} */ text, /** @type {number} */ at) => block.set(encoder.encode(text), at);
    write(name, 0);
    write("0000644\0", 100);
    write(`${size.toString(8).padStart(11, "0")}\0`, 124);
    write("00000000000\0        ", 136);
    write(kind, 156);
    write("ustar\0" + "00", 257);
    write(`${block.reduce((sum, value) => sum + value, 0).toString(8).padStart(6, "0")}\0`, 148);
    return block;
  };
  const padding = (/** @type {number} */ size) => new Uint8Array((512 - (size % 512)) % 512);
  // "LENGTH path=NAME", where the length counts its own digits.
  const record = encoder.encode(` path=${file.name}\n`);
  let length = record.length;
  while (String(length).length + record.length !== length) length = String(length).length + record.length;
  const extended = [header("name", length, "x"), String(length), record, padding(length)];
  return [...extended, header("file", file.size, "0"), file, padding(file.size)];
}

/**
 * Send files in one request, as a tar stream.
 * @param {File[]} files
 * @param {string | null} collection
 * @param {(sent: number) => void} progress called with the bytes of content that were sent
 * @returns {{done: Promise<{name: string, job: any, problem: any}[]>, abort: () => void}}
 */
export function upload(files, collection, progress) {
  const request = new XMLHttpRequest();
  const query = collection ? `?${new URLSearchParams({ collection })}` : "";
  const body = new Blob([.../** @type {BlobPart[]} */ (files.flatMap(member)), new Uint8Array(1024)]);
  const content = files.reduce((sum, file) => sum + file.size, 0);
  const done = new Promise((resolve, reject) => {
    request.upload.onprogress = (event) => progress((content * event.loaded) / body.size);
    request.onerror = () => reject(new ApiError("The upload broke off.", "connection"));
    request.onabort = () => reject(new ApiError("Cancelled.", "cancelled"));
    request.onload = () => {
      const said = JSON.parse(request.responseText || "{}");
      if (request.status < 300) resolve(said);
      else reject(new ApiError(said.detail ?? `The server answers ${request.status}.`, said.code ?? ""));
    };
    request.open("POST", url(`documents/batch${query}`));
    request.setRequestHeader("Content-Type", "application/x-tar");
    request.send(body);
  });
  return { done, abort: () => request.abort() };
}

/**
 * Call back with each server-sent event of an answer to a question.
 * @param {string} where
 * @param {unknown} body
 * @param {(event: string, data: any) => void} take
 * @param {AbortSignal} signal
 */
export async function stream(where, body, take, signal) {
  const response = await send("POST", where, body, signal);
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let name = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("event: ")) name = line.slice(7).trim();
      else if (line.startsWith("data: ")) {
        const data = JSON.parse(line.slice(6));
        if (name === "problem") throw new ApiError(data.detail, data.code);
        take(name, data);
      }
    }
  }
}

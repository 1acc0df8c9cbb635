// Requests to the server of this page, with its key where it asks for one.

import { askForKey } from "./key.js";
import { titled } from "./options.js";

const KEY = "mlx-port key";

/** An error that the server answered. param: the field at fault, if any; the page marks it. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.reason ? worded(error.reason, error.option) : error.message);
    [this.status, this.param, this.code] = [status, error.param, error.code];
  }
}

/** A reason in the words of the page: an option by the label of its box. */
function worded(reason, option) {
  const words = reason.replace("{option}", option ? `“${titled(option)}”` : "");
  return words[0].toUpperCase() + words.slice(1) + ".";
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

/** Send a request; asks for the key as often as it is missing or wrong. Throws ApiError. */
export async function ask(path, init = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...init.headers, ...(key === null ? {} : { authorization: `Bearer ${key}` }) };
    const response = await send(path, { ...init, headers });
    if (response.status !== 401) {
      if (response.ok) return response;
      throw new ApiError(response.status, await errorOf(response));
    }
    const wrong = key !== null && key === sessionStorage.getItem(KEY);
    sessionStorage.setItem(KEY, await askForKey(wrong ? "That key is wrong." : ""));
  }
}

export async function askJson(path) {
  return (await ask(path)).json();
}

export function post(path, body, init = {}) {
  const headers = { "content-type": "application/json" };
  return ask(path, { ...init, method: "POST", headers, body: toJson(body) });
}

/** Write JSON; whole numbers beyond 2^53, as seeds may be, are BigInt here. */
export function toJson(value, indent = "") {
  const parts = Object.entries(value).map(
    ([name, each]) => `${JSON.stringify(name)}: ${typeof each === "bigint" ? each : JSON.stringify(each)}`,
  );
  return indent ? `{\n${parts.map((part) => indent + part).join(",\n")}\n}` : `{${parts.join(", ")}}`;
}

/** Yield the events of a stream. Throws if it ends before its last event. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let [rest, last] = ["", null];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        last = JSON.parse(block.slice("data: ".length));
        yield last;
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server broke the speech off; its log has the reason.");
  }
  if (last?.type !== "speech.audio.done") throw new Error("The speech ended too early.");
}

async function send(path, init) {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
}

async function errorOf(response) {
  try {
    return (await response.json()).error;
  } catch {
    return { message: `The server answered ${response.status}.` };
  }
}

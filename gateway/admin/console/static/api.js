// The client of the admin API. Every change has the token of the session. The page hears of two things as events of the
// window: `session-over`, and `gateway` with `gone`, when the gateway stops to respond and when it responds again.
let token = "";
let gone = false;

export class ApiError extends Error {
  constructor(status, code, message, param) {
    super(message);
    Object.assign(this, { status, code, param });
  }
}

export function useToken(value) {
  token = value;
}

// A path from its parts, each encoded: path("admin", "tenants", name).
export const path = (...parts) => `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

export const isGone = () => gone;

function responds(value) {
  if (gone === !value) return;
  gone = !value;
  dispatchEvent(new CustomEvent("gateway", { detail: { gone } }));
}

async function request(method, url, { query, body, signal, headers } = {}) {
  const address = new URL(url, location.origin);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") address.searchParams.set(name, value);
  }
  const sent = { ...headers };
  if (method !== "GET") sent["x-console-token"] = token;
  if (["POST", "PUT", "PATCH"].includes(method)) sent["content-type"] ??= "application/json";
  let response;
  try {
    const encoded = body === undefined || typeof body === "string" || body instanceof Blob ? body : JSON.stringify(body);
    response = await fetch(address, { method, headers: sent, body: encoded, signal, redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    responds(false);
    throw new ApiError(0, "unreachable", "The gateway does not respond.");
  }
  responds(true);
  if (!response.ok) await refuse(response);
  return response;
}

async function refuse(response) {
  const { error } = await response.json().catch(() => ({}));
  if (response.status === 401 && token) dispatchEvent(new Event("session-over"));
  const { code, message, param } = typeof error === "object" && error ? error : {};
  throw new ApiError(response.status, code ?? "error", message ?? `Status ${response.status}.`, param);
}

const json = async (...given) => (await request(...given)).json();

export const get = (url, query, options) => json("GET", url, { query, ...options });
export const post = (url, body = {}, options) => json("POST", url, { body, ...options });
export const put = (url, body, options) => json("PUT", url, { body, ...options });
export const patch = (url, body, options) => json("PATCH", url, { body, ...options });
export const remove = (url, options) => json("DELETE", url, options);
// The response itself: for a stream, a file, or headers such as ETag.
export const raw = request;

// The values of an event stream of a response, one by one.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (data.length) yield data.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

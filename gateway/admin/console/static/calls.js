// The requests of the playground: one answer each, with its outcome.
import { events, get, path, raw } from "./api.js";

const MOST_TEXT = 200_000;

// Sends a body. `show` receives the answer as far as it has arrived: {text, tools, values, id, explanation, firstMs, ms}.
export async function send(kind, model, body, { tenant, signal, show }) {
  const began = performance.now();
  const url = kind === "infer" ? `/admin/playground/infer/${encodeURIComponent(model)}` : `/admin/playground/${kind}`;
  const response = await raw("POST", url, { query: { tenant }, body: { ...(kind === "infer" ? {} : { model }), ...body }, signal });
  const answer = { id: response.headers.get("x-request-id"), explanation: explained(response), endpoint: response.headers.get("x-headrace-endpoint"), text: "", tools: [] };
  if (body.stream) {
    for await (const data of events(response)) {
      answer.firstMs ??= performance.now() - began;
      if (data === "[DONE]") break;
      add(answer, JSON.parse(data));
      show({ ...answer, ms: performance.now() - began });
    }
  } else {
    whole(kind, answer, await response.json());
    answer.firstMs = performance.now() - began;
  }
  answer.ms = performance.now() - began;
  show({ ...answer });
  answer.outcome = await get(path("admin", "playground", "outcomes", answer.id), {}, { signal }).catch(() => null);
  show({ ...answer });
}

function explained(response) {
  try {
    return JSON.parse(response.headers.get("x-headrace-explain"));
  } catch {
    return null;
  }
}

function add(answer, event) {
  if (event.error) throw new Error(event.error.message ?? "The stream broke off.");
  const delta = event.choices?.[0]?.delta ?? {};
  answer.text = (answer.text + (delta.content ?? "")).slice(0, MOST_TEXT);
  for (const part of delta.tool_calls ?? []) {
    const call = (answer.tools[part.index ?? 0] ??= { name: "", arguments: "" });
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
}

function whole(kind, answer, body) {
  if (kind === "chat") {
    const message = body.choices?.[0]?.message ?? {};
    answer.text = String(message.content ?? "").slice(0, MOST_TEXT);
    answer.tools = (message.tool_calls ?? []).map((call) => call.function ?? {});
  } else if (kind === "embeddings") {
    answer.vectors = (body.data ?? []).map((entry) => entry.embedding);
  } else {
    answer.tensors = body.outputs ?? [];
  }
}

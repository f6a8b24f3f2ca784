// How the facts of models are written.
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const compact = (value) => (value ? short.format(value) : "–");

export const RATES = { prompt: "prompt", completion: "answer", cached: "prompt from the cache", cache_write: "written to the cache", cache_write_hour: "written for an hour", reasoning: "reasoning", request: "a request" };

// "3 usd/1M" is {amount: "3", unit: "usd/1M"}.
export function split(text) {
  const at = text.indexOf(" ");
  return { amount: text.slice(0, at), unit: text.slice(at + 1) };
}

// A price in one line, and a number to sort by: "3 / 15 / 0.3 usd".
export function perMillion(price) {
  if (!price) return { text: "–", order: -1 };
  const rates = ["prompt", "completion", "cached"].map((name) => price[name]).filter(Boolean).map(split);
  const request = price.request ? `${price.request} a request` : "";
  if (rates.length === 0) return { text: request, order: Number(split(price.request).amount) };
  const tokens = `${rates.map(({ amount }) => amount).join(" / ")} ${rates[0].unit.split("/")[0]}`;
  return { text: [tokens, request].filter(Boolean).join(" + "), order: Number(rates[0].amount) };
}

// The pools of a model and the models behind its arms, in the order of the file.
export const pools = (model) => [
  ...new Set((model.routes ?? []).flatMap(({ arms, fallback }) => [...arms.flatMap((arm) => (arm.model ? [arm.model] : arm.pools)), ...fallback])),
];

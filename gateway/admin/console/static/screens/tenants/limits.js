// The limits of a tenant and the amounts that remain.
import { html } from "../../html.js";
import { count, share } from "../../parts.js";

const OTHER = new Set(["subjects", "remaining", "per", "models", "count", "on_redis_failure", "enforce"]);
const FACTORS = { k: 1e3, M: 1e6, G: 1e9 };

// The amounts of a limit: [{unit, written, most, left}]. `most` is null for an amount that is not a plain number.
export const amounts = (limit) =>
  Object.entries(limit)
    .filter(([unit]) => !OTHER.has(unit))
    .map(([unit, written]) => ({ unit, written: String(written), most: most(written), left: limit.remaining?.[unit] }));

function most(written) {
  if (typeof written === "number") return written;
  const [, number, factor] = /^([\d.]+)([kMG]?)(?=$|[ /])/.exec(String(written)) ?? [];
  return number === undefined ? null : Number(number) * (FACTORS[factor] ?? 1);
}

const ratio = ({ most: limit, left }) => (limit && left !== undefined ? Math.max(0, Math.min(1, left / limit)) : null);

export function tightest(limits = []) {
  const all = limits.flatMap(amounts).filter((amount) => ratio(amount) !== null);
  if (all.length === 0) return "–";
  const least = all.reduce((a, b) => (ratio(a) <= ratio(b) ? a : b));
  return `${least.unit}: ${share(ratio(least))} of ${least.written} left`;
}

export const Limits = ({ limits }) =>
  limits.length === 0
    ? html`<p class="dim">No limit.</p>`
    : html`<div class="cards">${limits.map((limit, at) => html`<${Limit} key=${at} limit=${limit} />`)}</div>`;

const Limit = ({ limit }) => html`<div class="card">
  <dl class="facts">
    ${amounts(limit).map((amount) => {
      const left = ratio(amount);
      return html`<dt>${amount.unit}</dt>
        <dd>
          ${amount.written}
          ${left !== null &&
          html`<br /><meter min="0" max="1" low="0.1" optimum="1" value=${left} aria-label=${`${amount.unit} left`}></meter>
            ${" "}${count(amount.left)} left (${share(left)})`}
        </dd>`;
    })}
    <dt>for</dt>
    <dd>each ${limit.per ?? "tenant"}${limit.models ? `, models ${limit.models.join(", ")}` : ""}${limit.enforce === "shadow" ? ", not enforced" : ""}</dd>
  </dl>
</div>`;

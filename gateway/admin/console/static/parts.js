// Parts that screens share: notices, fields, buttons, dialogs, and how values are written.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "./html.js";

// A gateway that does not respond is shown once, above the screen.
export const Notice = ({ error, children, kind = error ? "bad" : "info" }) =>
  (error ? error.code !== "unreachable" : children) &&
  html`<div class="notice ${kind}" role=${kind === "bad" ? "alert" : "status"}>
    ${error ? error.message : children}${error?.param ? html` <code>${error.param}</code>` : ""}
  </div>`;

export function Field({ label, hint, children, ...rest }) {
  const id = useId();
  const described = hint ? `${id}-hint` : undefined;
  const input = { id, "aria-describedby": described, ...rest };
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${children ? html`<select ...${input}>${children}</select>` : html`<input ...${input} />`}
    ${hint && html`<small id=${described}>${hint}</small>`}
  </div>`;
}

// A button whose action is a promise: disabled while it runs, and its error is shown beside it.
export function Action({ run, children, ...rest }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const click = async () => {
    setBusy(true);
    setError(null);
    try {
      await run();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  return html`<button type="button" disabled=${busy} onClick=${click} ...${rest}>${children}</button>
    <${Notice} error=${error} />`;
}

export function Dialog({ title, onClose, children }) {
  const ref = useRef();
  const id = useId();
  useLayoutEffect(() => {
    ref.current.showModal();
  }, []);
  return html`<dialog ref=${ref} aria-labelledby=${id} onClose=${onClose}>
    <h2 id=${id}>${title}</h2>
    ${children}
  </dialog>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button type="button" class="small" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

export const Code = ({ text, label }) =>
  html`<div class="code"><pre tabindex="0" aria-label=${label}>${text}</pre><${Copy} text=${text} label=${`Copy ${label}`} /></div>`;

export const Badge = ({ kind = "", children }) => html`<span class="badge ${kind}">${children}</span>`;

export const Loading = () => html`<p class="dim" role="status">Loading …</p>`;

// A link to a screen of the console. Its parts are encoded, so a name cannot lead elsewhere.
export const To = ({ to, query = {}, children, ...rest }) => html`<a href=${hashWith(to, query)} ...${rest}>${children}</a>`;
export const hash = (...parts) => `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
// The same with the parameters of a search; empty ones are left out.
export function hashWith(parts, query) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return text ? `${hash(...parts)}?${text}` : hash(...parts);
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export const count = (value) => (value === null || value === undefined ? "–" : number.format(value));
const amount = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
export const money = (value) => amount.format(value);
export const seconds = (value) =>
  value === null || value === undefined ? "–" : value < 1 ? `${number.format(value * 1000)} ms` : `${number.format(value)} s`;
export const bytes = (value) => {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(value, 1)) / 10));
  return `${number.format(value / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};
export const share = (value) => `${number.format(value * 100)} %`;

const minute = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

const second = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "short" });

// A time of today without its date.
export function Time({ at, seconds: exact = true, full = false }) {
  const date = typeof at === "number" ? new Date(at * 1000) : new Date(at);
  if (!at || Number.isNaN(date.getTime())) return "–";
  const whole = (exact ? moment : minute).format(date);
  return html`<time datetime=${date.toISOString()} title=${whole}>${!full && date.toDateString() === new Date().toDateString() ? (exact ? second : clock).format(date) : whole}</time>`;
}

// The value of a promise, loaded again when `keys` change: {value, error, again}.
export function useLoaded(load, keys) {
  const [state, setState] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const control = new AbortController();
    load(control.signal).then(
      (value) => setState({ value }),
      (error) => error.name !== "AbortError" && setState((before) => ({ ...before, error })),
    );
    return () => control.abort();
  }, [...keys, turn]);
  const again = () => setTurn((number) => number + 1);
  useEffect(() => {
    if (!state.error) return undefined;
    const back = (event) => !event.detail.gone && again();
    addEventListener("gateway", back);
    return () => removeEventListener("gateway", back);
  }, [state.error]);
  return { ...state, again };
}

// A table. `Pages` reads its rows in pages by key: `load(after, signal)` returns {rows, next}; a `next` of null ends it.
import { html, useEffect, useState } from "./html.js";
import { Loading, Notice } from "./parts.js";

// Columns: {title, cell(row), number?}. `id(row)` identifies a row.
export const Table = ({ caption, columns, rows, id, empty = "Nothing here." }) =>
  html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>${columns.map((c) => html`<th key=${c.title} scope="col" class=${c.number ? "number" : ""} aria-sort=${c.order}>${c.choose ? html`<button type="button" class="sort" onClick=${c.choose}>${c.title}</button>` : c.title}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${id(row)}>
            ${columns.map((c, at) => {
              const cell = c.number ? "number" : "";
              return at === 0
                ? html`<th scope="row" class=${cell}>${c.cell(row)}</th>`
                : html`<td class=${cell}>${c.cell(row)}</td>`;
            })}
          </tr>`,
        )}
      </tbody>
    </table>
    ${rows.length === 0 && html`<p class="dim">${empty}</p>`}
  </div>`;

// A table that a click on a title sorts: a column has `by(row)`, its value. `first` is the title that sorts at first,
// `up` for the smallest value first.
export function Sorted({ columns, rows, first, up = false, ...table }) {
  const [{ title, down }, setOrder] = useState({ title: first, down: !up });
  const column = columns.find((each) => each.title === title);
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  const sorted = [...rows].sort((a, b) => (down ? -1 : 1) * compare(column.by(a), column.by(b)));
  const choose = (each) => setOrder({ title: each.title, down: each.title === title ? !down : Boolean(each.number) });
  const sortable = columns.map((each) => ({
    ...each,
    order: each.title === title ? (down ? "descending" : "ascending") : undefined,
    choose: () => choose(each),
  }));
  return html`<${Table} ...${table} columns=${sortable} rows=${sorted} />`;
}

// The first page is read again when `keys` change, and every `period` milliseconds; a button reads the next page.
export function Pages({ load, keys = [], period, ...table }) {
  const [{ rows, next, error }, setState] = useState({});
  const [busy, setBusy] = useState(true);
  const [turn, setTurn] = useState(0);
  const read = async (after, before, signal) => {
    setBusy(true);
    try {
      const page = await load(after, signal);
      setState({ rows: [...before, ...page.rows], next: page.next });
    } catch (failure) {
      if (failure.name === "AbortError") return;
      setState((state) => ({ ...state, error: failure }));
    }
    setBusy(false);
  };
  useEffect(() => {
    const control = new AbortController();
    read(null, [], control.signal);
    return () => control.abort();
  }, [...keys, turn]);
  useEffect(() => {
    if (!error) return undefined;
    const back = (event) => !event.detail.gone && setTurn((number) => number + 1);
    addEventListener("gateway", back);
    return () => removeEventListener("gateway", back);
  }, [error]);
  useEffect(() => {
    if (!period) return undefined;
    const control = new AbortController();
    const timer = setInterval(async () => {
      const page = await load(null, control.signal).catch(() => null);
      if (page && !control.signal.aborted) setState((state) => renewed(state, page, table.id));
    }, period);
    return () => {
      clearInterval(timer);
      control.abort();
    };
  }, [...keys, period]);
  return html`<${Notice} error=${error} />
    ${rows && html`<${Table} ...${table} rows=${rows} />`}
    ${!rows && busy && html`<${Loading} />`}
    ${rows && next !== null && next !== undefined &&
    html`<p><button type="button" disabled=${busy} onClick=${() => read(next, rows)}>More</button></p>`}`;
}

// The rows of a fresh first page, and behind them the older rows of the pages that were read before.
function renewed({ rows = [], next }, page, id) {
  const last = page.rows.at(-1);
  const at = last === undefined ? -1 : rows.findIndex((row) => id(row) === id(last));
  return at < 0 || at === rows.length - 1 ? page : { rows: [...page.rows, ...rows.slice(at + 1)], next };
}

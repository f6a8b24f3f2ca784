// A search as a file: CSV for tables, JSON lines for programs.
import { get } from "../../api.js";

const PAGE = 1000;
const MOST = 50_000;
const COLUMNS = [
  "time", "id", "tenant", "team", "user", "key", "model", "operation", "pool", "arm", "endpoint", "status", "error", "code", "cause", "stream", "duration_ms",
  "first_chunk_ms", "prompt_tokens", "completion_tokens", "rows", "device_ms", "cost", "currency", "trace_id",
];
const WRITTEN = {
  csv: { type: "text/csv", of: (rows) => [COLUMNS, ...rows.map((row) => COLUMNS.map((name) => row[name]))].map((cells) => `${cells.map(cell).join(",")}\r\n`) },
  jsonl: { type: "application/jsonl", of: (rows) => rows.map((row) => `${JSON.stringify(row)}\n`) },
};

// A program for tables runs a text that begins with one of these as a formula. Clients choose ids and names.
const FORMULA = /^[=+\-@\t\r]/;

export function cell(value) {
  if (value === undefined || value === null) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// Saves all pages of a search, at most the newest `MOST` requests.
export async function save(format, search) {
  const to = search.to ?? new Date().toISOString();
  const rows = [];
  let after;
  do {
    const page = await get("/admin/requests", { ...search, to, limit: PAGE, after });
    rows.push(...page.requests);
    after = page.next;
  } while (after && rows.length < MOST);
  const { type, of } = WRITTEN[format];
  const url = URL.createObjectURL(new Blob(of(rows), { type }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: `requests.${format}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  if (after) throw new Error(`The file has the newest ${MOST.toLocaleString("en")} requests: choose a shorter time for the others.`);
}

// The record of a request, and its neighbours. The record of one that has just ended is a moment behind it.
import { get, path } from "../../api.js";

const WAITS = [200, 400, 800, 1600];
const MOST = 1000;
const FIRST_MS = 1000;

export async function recorded(id, at, signal) {
  for (const wait of WAITS) {
    try {
      return await get(path("admin", "requests", id), { at }, { signal });
    } catch (error) {
      if (error.code !== "no_such_request") throw error;
    }
    await new Promise((done) => setTimeout(done, wait));
  }
  return get(path("admin", "requests", id), { at }, { signal });
}

// The newest request of a search that ended before a time, in the order of the list.
export async function older(time, search) {
  const to = search.to && search.to < time ? search.to : time;
  if (search.from && search.from >= to) return undefined;
  return (await get("/admin/requests", { ...search, to, limit: 1 })).requests[0];
}

// The oldest request of a search that ended after a time. Lists begin with the newest, so the span grows until it has one.
export async function newer(time, search) {
  const end = search.to ? Date.parse(search.to) : Date.now();
  const from = later(time);
  for (let span = FIRST_MS; ; span *= 4) {
    const to = Math.min(Date.parse(time) + span, end + FIRST_MS);
    const row = Date.parse(time) < to ? await last({ ...search, from, to: new Date(to).toISOString(), limit: MOST }) : undefined;
    if (row || to >= end) return row;
  }
}

// A microsecond later: the times of records have six digits.
function later(time) {
  const [, start, digits] = /^(.*\.)(\d{6})Z$/.exec(time) ?? [];
  if (start === undefined) return time;
  if (digits === "999999") return new Date(Date.parse(time) + 1).toISOString();
  return `${start}${String(Number(digits) + 1).padStart(6, "0")}Z`;
}

async function last(search) {
  let after;
  let row;
  do {
    const page = await get("/admin/requests", { ...search, after });
    row = page.requests.at(-1) ?? row;
    after = page.next;
  } while (after);
  return row;
}

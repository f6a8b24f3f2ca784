// The record of a request. That of a request which has just ended is a moment behind it.
import { get, path } from "../../api.js";

const WAITS = [200, 400, 800, 1600];

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

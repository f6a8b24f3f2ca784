// What the live screen knows: the frames of the last minutes, and the minutes of the last hours before them.
import { useEffect, useRef, useState } from "../../html.js";
import { events, get, raw } from "../../api.js";

const FRAMES = 300;
const RETRY_MS = 3000;
const HISTORY_MS = 60000;
const HOUR = 3600;

// {frame, past, history, error}: `past` is the frames of this page, at most five minutes of them.
export function useLive(replica, by, span, paused) {
  const [frame, setFrame] = useState(null);
  const [error, setError] = useState(null);
  const hidden = useHidden();
  const past = useRef([]);
  const history = useHistory(replica, by, Math.ceil(span / HOUR), paused || hidden);
  useEffect(() => {
    past.current = [];
    setFrame(null);
  }, [replica]);
  useEffect(() => {
    if (paused || hidden) return undefined;
    const control = new AbortController();
    follow(replica, control.signal, setError, (next) => {
      const before = past.current.at(-1);
      // A gap has no rates: the minutes of the history fill it.
      if (before && next.at - before.at > 10) past.current = [];
      past.current = [...past.current, { at: next.at, rates: next.rates }].slice(-FRAMES);
      setFrame(next);
    });
    return () => control.abort();
  }, [replica, paused, hidden]);
  return { frame, past: past.current, history, error };
}

// Nobody sees a hidden page: it reads nothing.
function useHidden() {
  const [hidden, setHidden] = useState(document.hidden);
  useEffect(() => {
    const changed = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", changed);
    return () => document.removeEventListener("visibilitychange", changed);
  }, []);
  return hidden;
}

function useHistory(replica, by, hours, still) {
  const [history, setHistory] = useState({ series: [], from: 0, step: 60, length: 0 });
  useEffect(() => {
    if (still) return undefined;
    const control = new AbortController();
    const read = () =>
      get("/console/api/live/history", { by, replica, hours }, { signal: control.signal }).then(
        (value) => setHistory({ ...value, by }),
        () => {}, // without a database there is no history; the stream reports what matters
      );
    read();
    const timer = setInterval(read, HISTORY_MS);
    return () => {
      clearInterval(timer);
      control.abort();
    };
  }, [replica, by, hours, still]);
  return history.by === by ? history : { ...history, series: [] };
}

// Reads the stream until it is aborted; opens another when one ends.
async function follow(replica, signal, setError, show) {
  while (!signal.aborted) {
    try {
      const response = await raw("GET", "/console/api/live", { query: { replica }, signal });
      for await (const data of events(response)) {
        if (signal.aborted) return;
        setError(null);
        show(JSON.parse(data));
      }
    } catch (error) {
      if (signal.aborted) return;
      setError(error);
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }
}

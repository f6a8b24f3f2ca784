// The list of places: opened by Ctrl K or ⌘ K, filtered by typing. Enter goes to the chosen place.
import { html, useEffect, useId, useState } from "./html.js";
import { get } from "./api.js";
import { Dialog } from "./parts.js";

const MOST = 30;

export function usePalette() {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const pressed = (event) => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setShown(true);
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return { shown, open: () => setShown(true), close: () => setShown(false) };
}

// The places for a text: {title, to, query?}. An id may be that of a request or of a batch.
function placesFor(text, screens, tenants) {
  const wanted = text.trim().toLowerCase();
  const has = (path) => screens.some((screen) => screen.path === path);
  const places = [
    ...screens.map(({ title, path }) => ({ title, to: [path] })),
    ...tenants.map((name) => ({ title: `Tenant ${name}`, to: ["tenants", name] })),
    ...(has("requests") ? [{ title: "Failed requests of the last hour", to: ["requests"], query: { window: "1h", outcome: "error" } }] : []),
  ].filter(({ title }) => title.toLowerCase().includes(wanted));
  const id = text.trim();
  if (id.length > 5 && !/\s/.test(id)) {
    if (has("requests")) places.push({ title: `Request ${id}`, to: ["requests", id] });
    if (has("batches") && /batch/.test(id)) places.push({ title: `Batch ${id}`, to: ["batches", id] });
  }
  return places.slice(0, MOST);
}

export function Palette({ screens, session, goWith, close }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [tenants, setTenants] = useState([]);
  const id = useId();
  useEffect(() => {
    if (session.tenant) return undefined;
    const control = new AbortController();
    get("/admin/tenants", {}, { signal: control.signal }).then((reply) => setTenants(reply.tenants.map((each) => each.tenant)), () => {});
    return () => control.abort();
  }, []);
  const places = placesFor(text, screens, tenants);
  const chosen = Math.min(at, places.length - 1);
  const follow = (place) => {
    if (!place) return;
    close();
    goWith(place.to, place.query ?? {});
  };
  const pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((chosen + step + places.length) % Math.max(places.length, 1));
    else if (event.key === "Enter") follow(places[chosen]);
    else return;
    event.preventDefault();
  };
  const typed = (event) => {
    setText(event.target.value);
    setAt(0);
  };
  return html`<${Dialog} title="Go to" onClose=${close}>
    <input type="text" class="wide" role="combobox" aria-label="Screen, tenant or id" aria-expanded="true" aria-controls=${id} aria-autocomplete="list"
      aria-activedescendant=${places.length ? `${id}-${chosen}` : undefined} autocomplete="off" maxlength="200" value=${text} onInput=${typed} onKeyDown=${pressed} />
    <ul class="places" id=${id} role="listbox" aria-label="Places">
      ${places.map(
        (place, number) =>
          html`<li key=${place.title} id=${`${id}-${number}`} role="option" aria-selected=${number === chosen} onClick=${() => follow(place)}>${place.title}</li>`,
      )}
    </ul>
    ${places.length === 0 && html`<p class="dim">No such place.</p>`}
  <//>`;
}

// The shell: session, navigation, and the screen of the address after #.
import { html, render, useEffect, useRef, useState } from "./html.js";
import { get, isGone, remove, useToken } from "./api.js";
import { Loading, Notice, hash, hashWith } from "./parts.js";
import { Palette, usePalette } from "./palette.js";
import { screensOf } from "./screens.js";
import { SignIn, recall } from "./sign_in.js";

const RETRY_MS = 2000;

// The address after #: {parts, query}.
const parse = () => {
  const [way, search] = location.hash.replace(/^#\/?/, "").split("?");
  const query = Object.fromEntries(new URLSearchParams(search ?? ""));
  try {
    return { parts: way.split("/").map(decodeURIComponent), query };
  } catch {
    return { parts: [""], query };
  }
};
const go = (...parts) => {
  location.hash = hash(...parts);
};
const goWith = (parts, query) => {
  location.hash = hashWith(parts, query);
};

function useAddress() {
  const [address, setAddress] = useState(parse);
  useEffect(() => {
    const changed = () => setAddress(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return address;
}

function Screen({ screen, session, parts, query }) {
  const [part, setPart] = useState({});
  const heading = useRef();
  const first = useRef(true);
  useEffect(() => {
    let current = true;
    screen.load().then(
      (module) => current && setPart({ path: screen.path, View: module.default }),
      () => current && setPart({ path: screen.path, failed: true }),
    );
    document.title = `${screen.title} · Headrace`;
    // At the load of the page the focus stays where the browser has it.
    if (!first.current) heading.current?.focus();
    first.current = false;
    return () => {
      current = false;
    };
  }, [screen.path]);
  const ready = part.path === screen.path;
  return html`<main id="main">
    <h1 tabindex="-1" ref=${heading}>${screen.title}</h1>
    ${!ready && html`<${Loading} />`}
    ${ready && part.failed && html`<${Unloaded} title=${screen.title} />`}
    ${ready && part.View && html`<${part.View} session=${session} parts=${parts} query=${query} go=${go} goWith=${goWith} />`}
  </main>`;
}

// The file of a screen did not arrive. A browser may remember that, so only a new page loads it.
function Unloaded({ title }) {
  useEffect(() => {
    const back = () => get("/console/api/session").then(() => location.reload(), () => {});
    const timer = setInterval(back, RETRY_MS);
    back();
    return () => clearInterval(timer);
  }, []);
  return html`<p class="dim" role="status">${title} is shown when the gateway responds again.</p>`;
}

// While the gateway does not respond: a line above the screen, and a request now and then until it does.
function Gone() {
  const [gone, setGone] = useState(isGone);
  useEffect(() => {
    const changed = (event) => setGone(event.detail.gone);
    addEventListener("gateway", changed);
    return () => removeEventListener("gateway", changed);
  }, []);
  useEffect(() => {
    if (!gone) return undefined;
    const timer = setInterval(() => get("/console/api/session").catch(() => {}), RETRY_MS);
    return () => clearInterval(timer);
  }, [gone]);
  return gone && html`<div class="notice bad gone" role="alert">The gateway does not respond. This page tries again every ${RETRY_MS / 1000} seconds. What it shows may be out of date.</div>`;
}

function Shell({ session }) {
  const { parts: [path, ...parts], query } = useAddress();
  const open = screensOf(session);
  const screen = open.find((each) => each.path === path) ?? open[0];
  const [menu, setMenu] = useState(false);
  const palette = usePalette();
  useEffect(() => setMenu(false), [location.hash]);
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class=${menu ? "open" : ""}>
      <span class="brand"><img src="static/icon.svg" alt="" width="22" height="22" /> Headrace</span>
      <span class="here" aria-hidden="true">${screen?.title}</span>
      <button type="button" class="menu" aria-expanded=${menu} aria-controls="menu" onClick=${() => setMenu(!menu)}>Menu</button>
      <div id="menu">
        <nav aria-label="Screens">
          ${open.map(
            (each) =>
              html`<a key=${each.path} href=${hash(each.path)} aria-current=${each === screen ? "page" : undefined}>${each.title}</a>`,
          )}
        </nav>
        <div class="session">
          <button type="button" class="small" aria-keyshortcuts="Control+K Meta+K" onClick=${palette.open}>Go to … <kbd>Ctrl K</kbd></button>
          <${Theme} />
          <${Account} session=${session} />
        </div>
      </div>
    </header>
    ${palette.shown && html`<${Palette} screens=${open} session=${session} goWith=${goWith} close=${palette.close} />`}
    ${screen
      ? html`<${Screen} screen=${screen} session=${session} parts=${parts} query=${query} />`
      : html`<main id="main"><h1 tabindex="-1">Headrace</h1><p>Your role sees no screen.</p></main>`}`;
}

function Account({ session }) {
  const [error, setError] = useState(null);
  const name = `${session.tenant ?? session.role}: ${session.name}`;
  if (session.local) return html`<span class="dim">${name}</span>`;
  const signOut = async (url) => {
    try {
      await remove(url);
      sessionStorage.clear();
      location.reload();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<details class="account">
    <summary>${name}</summary>
    <div class="choices">
      <button type="button" onClick=${() => signOut("/console/api/session")}>Sign out</button>
      <button type="button" onClick=${() => signOut("/console/api/sessions")}>Sign out everywhere</button>
      <${Notice} error=${error} />
    </div>
  </details>`;
}

function skip(event) {
  event.preventDefault();
  document.querySelector("#main h1")?.focus();
}

// Dark or light: the system's unless chosen here.
const THEMES = { "": "System", light: "Light", dark: "Dark" };

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "");
  const change = (event) => {
    localStorage.setItem("theme", event.target.value);
    setTheme(event.target.value);
  };
  document.documentElement.dataset.theme = theme;
  useEffect(() => dispatchEvent(new Event("theme")), [theme]);
  return html`<select aria-label="Colours" value=${theme} onChange=${change}>
    ${Object.entries(THEMES).map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
  </select>`;
}

function App() {
  const [state, setState] = useState({});
  const load = () =>
    get("/console/api/session").then(
      (session) => {
        useToken(session.token ?? "");
        if (session.signed_in) recall();
        setState({ session });
      },
      (error) => setState((before) => (before.session ? before : { error })),
    );
  useEffect(() => {
    load();
    addEventListener("session-over", load);
    return () => removeEventListener("session-over", load);
  }, []);
  useEffect(() => {
    if (!state.error) return undefined;
    const timer = setTimeout(load, RETRY_MS);
    return () => clearTimeout(timer);
  }, [state.error]);
  return html`<${Gone} /><${Page} state=${state} />`;
}

function Page({ state }) {
  if (state.error) return html`<main><h1>Headrace</h1><${Notice} error=${state.error} /></main>`;
  if (!state.session) return html`<main><${Loading} /></main>`;
  return state.session.signed_in
    ? html`<${Shell} session=${state.session} />`
    : html`<${SignIn} oidc=${state.session.oidc} over=${state.session.over} />`;
}

render(html`<${App} />`, document.getElementById("app"));

// The text of the file with the numbers of its lines, and proposals while one writes.
import { html, useEffect, useId, useRef, useState } from "../../html.js";
import { get } from "../../api.js";
import { complete } from "./completion.js";

const ROWS = 24;

export function Editor({ area, text, setText, label }) {
  const numbers = useRef();
  const [schema, setSchema] = useState(null);
  const [shown, setShown] = useState(null);
  const id = useId();
  const load = () => {
    // The schema is 50 kB: only who edits needs it. Without it there are no proposals.
    if (!schema) get("/admin/config/schema").then(setSchema, () => {});
  };
  const propose = (wanted) => {
    const { value, selectionStart: at, selectionEnd: end } = area.current;
    const made = schema && at === end ? complete(schema, value, at, wanted) : null;
    setShown(made && { ...made, at: 0, place: placeOf(area.current, value, made.from) });
  };
  const input = (event) => {
    setText(event.target.value);
    propose(false);
  };
  const take = (option) => {
    const { value, selectionStart: at } = area.current;
    const made = value.slice(0, shown.from) + option.insert + value.slice(at);
    setText(made);
    setShown(null);
    area.current.value = made;
    area.current.focus();
    area.current.setSelectionRange(shown.from + option.insert.length, shown.from + option.insert.length);
  };
  const pressed = (event) => {
    if (event.key === " " && event.ctrlKey) propose(true);
    else if (!shown) return;
    else if (event.key === "Escape") setShown(null);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      setShown({ ...shown, at: (shown.at + step + shown.options.length) % shown.options.length });
    } else if (event.key === "Enter" && shown.word) take(shown.options[shown.at]);
    else return;
    event.preventDefault();
  };
  const lines = text.split("\n").length;
  const follow = () => {
    numbers.current.scrollTop = area.current.scrollTop;
    setShown((made) => made && { ...made, place: placeOf(area.current, area.current.value, made.from) });
  };
  useEffect(follow, [lines]);
  return html`<div class="field">
    <label for="draft">${label}</label>
    <div class="editor">
      <pre ref=${numbers} aria-hidden="true">${Array.from({ length: lines }, (_, at) => at + 1).join("\n")}</pre>
      <textarea id="draft" ref=${area} rows=${ROWS} spellcheck=${false} wrap="off" value=${text} onInput=${input} onFocus=${load} onKeyDown=${pressed} onScroll=${follow}
        onBlur=${() => setTimeout(() => setShown(null), 200)} aria-autocomplete="list" aria-controls=${shown ? id : undefined}
        aria-activedescendant=${shown ? `${id}-${shown.at}` : undefined} aria-describedby=${`${id}-hint`}></textarea>
      ${shown &&
      html`<ul class="proposals" id=${id} role="listbox" aria-label="Proposals" style=${shown.place}>
        ${shown.options.map(
          (option, at) =>
            html`<li key=${option.text} id=${`${id}-${at}`} role="option" aria-selected=${at === shown.at} onMouseDown=${(event) => { event.preventDefault(); take(option); }}>${option.text}${option.hint && html`<small>${option.hint}</small>`}</li>`,
        )}
      </ul>`}
    </div>
    <small id=${`${id}-hint`}>Secrets are shown as <code>redacted-…</code> and are restored by the gateway. Ctrl Space proposes what may follow; Enter takes a proposal.</small>
  </div>`;
}

// Below the place of a letter: all letters are as wide, and all lines as high.
function placeOf(area, text, at) {
  const before = text.slice(0, at).split("\n");
  const style = getComputedStyle(area);
  const high = parseFloat(style.lineHeight);
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.font = style.font;
  const left = area.offsetLeft + parseFloat(style.paddingLeft) + canvas.measureText(before.at(-1)).width - area.scrollLeft;
  const top = area.offsetTop + parseFloat(style.paddingTop) + before.length * high - area.scrollTop;
  return { left: `${Math.max(0, Math.min(left, area.offsetLeft + area.clientWidth - 160))}px`, top: `${top}px` };
}

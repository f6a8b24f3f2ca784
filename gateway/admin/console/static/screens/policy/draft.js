// A draft outlives the screen: it is in this tab until it is applied or discarded, for the same person only.
import { useEffect, useState } from "../../html.js";

const PLACE = "draft";

function stored(name) {
  try {
    const draft = JSON.parse(sessionStorage.getItem(PLACE));
    return draft?.name === name && typeof draft.text === "string" ? draft : null;
  } catch {
    return null;
  }
}

export const forget = () => sessionStorage.removeItem(PLACE);

// [text, setText, old]: `old` is the time of a draft of an earlier visit, and whether the file has changed since.
export function useDraft(file, name) {
  const [first, setFirst] = useState(() => stored(name));
  const [text, setText] = useState(first?.text ?? file.text);
  const changed = text !== file.text;
  useEffect(() => {
    if (!changed) {
      setFirst(null);
      return forget();
    }
    try {
      sessionStorage.setItem(PLACE, JSON.stringify({ name, text, revision: first?.revision ?? file.revision, at: Date.now() }));
    } catch {
      // The draft is larger than what a tab may store: the question below still guards it.
    }
    const ask = (event) => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [text, changed]);
  return [text, setText, first && first.text !== file.text ? { at: first.at, moved: first.revision !== file.revision } : null];
}

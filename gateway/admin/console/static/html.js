// Preact and htm: `html` escapes every text. Nothing in the console sets innerHTML.
import { h, render, Fragment, createContext } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { render, Fragment, createContext };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useId } from "./vendor/hooks.js";

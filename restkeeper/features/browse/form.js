// Elements of the page, and the controls of a form that is made from a JSON Schema.
import { HUGE, collections, holds, isLong, isNullable, isObject, kindOf, may, number, own, parse, resolved, same, send, text } from "./api.js";
import { mistakeIn } from "./json.js";

const [DEEPEST, MOST_ENTRIES] = [3, 100]; // what is nested more deeply, and a longer list, is JSON in a text area
const LONG = 200; // characters: beyond, a text has several lines
const [MOST_LOOKUPS, PAUSE] = [20, 150]; // items that a form names at its beginning; ms after which a search begins
let [made, lookups] = [0, 0]; // ids of elements; items of a form that were named
export const words = (name) => name.replaceAll(/[_-]/g, " ");
// An element. Its children are elements and texts; no text is ever read as HTML.
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((each) => each !== undefined && each !== false));
  return node;
}

const line = (kind, ...texts) => h("p", { class: kind, id: `${kind}-${(made += 1)}` }, texts.filter(Boolean).join(" "));
// A box by which a value is null, if it may be. `act` is told when somebody ticks it, or not any more; a value that is typed
// unticks it.
function nullBox(schema, label, initial, act) {
  if (!isNullable(schema) && initial !== null) return { isOn: () => false };
  let isTouched = false;
  const tick = () => [(isTouched = true), act(input.checked)];
  const input = h("input", { type: "checkbox", onchange: tick, "aria-label": `null for ${words(label)}`, class: "is-null" });
  input.checked = initial === null;
  return { node: h("label", { class: "null" }, input, " null"), isOn: () => input.checked, isTouched: () => isTouched, untick: () => (input.checked = false) };
}
// A control has a node, reads its value (undefined: left out), and shows an error at a path below it.
function control(schema, initial, { depth = 0, ...options }) {
  schema = resolved(schema);
  const kind = depth < DEEPEST ? kindOf(schema) : "any";
  const value = initial === undefined && options.isNew ? schema.default : initial;
  const [isList, below] = [Array.isArray(value), { ...options, depth: depth + 1 }];
  const isListed = kind === "array" && kindOf(resolved(schema.items)) !== "any" && (isList ? value.length <= MOST_ENTRIES : !value);
  const hasFields = kind === "object" && Object.keys(schema.properties ?? {}).length > 0;
  if (hasFields && (isObject(value) ? !isList : !value)) return group(schema, value, below);
  if (isListed) return list(schema, value, below);
  return leaf(schema, value, options);
}
// The fields of an object: of a whole item if it has no label. `drafts` are texts to begin with.
export function group(schema, initial, { label, isNew, drafts, depth = 0, hidden = [] }) {
  if (!label) lookups = 0;
  const optionsOf = (name) => ({ label: name, isNew, isRequired: schema.required?.includes(name), draft: drafts?.get(name), depth });
  const controls = new Map(Object.entries(schema.properties ?? {}).filter(([name]) => !hidden.includes(name))
    .map(([name, part]) => [name, control(part, own(initial, name), optionsOf(name))]));
  const others = Object.entries(initial ?? {}).filter(([name]) => !controls.has(name) && !hidden.includes(name));
  const rest = schema.additionalProperties !== false && (!label || others.length > 0)
    && leaf({ type: "object" }, others.length ? Object.fromEntries(others) : undefined, { label: "other fields", placeholder: '{"color": "red"}' });
  const place = ([name]) => Object.keys(initial ?? {}).indexOf(name) >>> 0; // new fields come last
  const readAll = () => [...[...controls].map(([name, each]) => [name, each.read()]), ...Object.entries((rest && rest.read()) || {})];
  const read = () => Object.fromEntries(readAll().filter(([, value]) => value !== undefined).sort((a, b) => place(a) - place(b)));
  const [error, before] = [line("error"), read()];
  const inside = h("div", { class: "fields" }, [...controls.values(), rest].map((each) => each && each.node));
  const none = nullBox(label ? schema : {}, label, initial, (isNull) => (inside.hidden = isNull));
  inside.addEventListener("input", () => none.untick?.());
  return {
    node: label ? h("fieldset", {}, h("legend", {}, words(label)), none.node, line("hint", schema.description), error, inside) : inside,
    read: () => {
      if (none.isOn()) return null;
      const now = read();
      return !label || none.isTouched?.() || isObject(initial) || !same(now, before) ? now : initial;
    },
    show: ([name, ...inner], message) => (controls.has(name) || rest ? (controls.get(name) ?? rest).show(inner, message)
      : label && [(error.textContent = [name, ...inner, message].filter(Boolean).join(": "))]),
  };
}
// The entries of a list. One that is empty is not one that is left out.
function list(schema, initial, { label, isNew, isRequired, depth }) {
  const [entries, rows, error, state] = [new Map(), h("ol"), line("error"), h("p", { class: "hint", role: "status" })];
  let isThere = Array.isArray(initial) || (isNew && isRequired && initial === undefined);
  const refresh = () => {
    state.textContent = entries.size ? "" : none.isOn() ? "It is null." : isThere ? "It is empty." : "It is left out.";
    other.textContent = isThere ? "Leave it out" : "Make it empty";
    other.hidden = entries.size > 0 || (isThere && isRequired);
  };
  const changed = () => [none.untick?.(), refresh(), rows.dispatchEvent(new Event("input", { bubbles: true }))];
  const add = (value) => {
    const options = { label: `${label} ${rows.childElementCount + 1}`, isNew: value === undefined, isRequired: true, depth };
    const [entry, row] = [control(schema.items, value, options), h("li")];
    const remove = () => [entries.delete(row), row.remove(), more.focus(), changed()];
    row.append(entry.node, h("button", { type: "button", onclick: remove, "aria-label": `Remove ${options.label}` }, "Remove"));
    entries.set(row, entry);
    isThere = true;
    return rows.appendChild(row);
  };
  const begin = () => [add().querySelector("input:not(.is-null), select, textarea, button").focus(), changed()];
  const more = h("button", { type: "button", onclick: begin }, `Add to ${words(label)}`);
  const other = h("button", { type: "button", onclick: () => [(isThere = !isThere), changed(), more.focus()] });
  const inside = h("div", {}, rows, state, h("p", { class: "actions" }, more, other));
  const none = nullBox(schema, label, initial, (isNull) => [(inside.hidden = isNull), (isThere = true), refresh()]);
  for (const each of initial ?? []) add(each);
  refresh();
  const empty = kindOf(resolved(schema.items)) === "object" ? {} : "";
  const values = () => [...entries.values()].map((each) => each.read()).map((each) => (each === undefined ? empty : each));
  return {
    node: h("fieldset", { class: "list" }, h("legend", {}, words(label)), none.node, line("hint", schema.description), error, inside),
    read: () => (none.isOn() ? null : isThere ? values() : undefined),
    show: ([place, ...inner], message) => [...entries.values()][place]?.show(inner, message)
      || [(error.textContent = [place, ...inner, message].filter(Boolean).join(": "))],
  };
}

function leaf(schema, initial, { label, isRequired = false, draft, placeholder = "" }) {
  const kind = kindOf(schema);
  const choices = kind === "boolean" ? [true, false] : schema.enum?.filter((each) => each !== null);
  const isJson = !choices && !["string", "integer", "number"].includes(kind);
  const isPlain = kind === "string" && !choices && !schema.format && !schema["x-references"];
  const isBroken = isPlain && (schema.maxLength >= HUGE || /[\r\n]/.test(initial)); // an input has no lines
  const rows = isJson || (isPlain && isLong(schema, LONG)) ? 4 : isBroken ? 1 : 0;
  const referred = choices || isJson ? undefined : collections.get(schema["x-references"]);
  const about = referred ? `Search in ${words(referred.name)}, or type an id.` : schema.description;
  const [error, hint] = [line("error"), line("hint", about, isJson && !/JSON/.test(about) && "As JSON.")];
  const attributes = { id: `field-${(made += 1)}`, name: label, autocomplete: "off", "aria-describedby": `${hint.id} ${error.id}`,
    "aria-required": isRequired && "true" };
  const type = { date: "date", email: "email", uri: "url" }[schema.format] ?? "text";
  const input = choices ? h("select", attributes) : rows ? h("textarea", { ...attributes, rows, class: isJson && "code" })
    : h("input", { ...attributes, type, inputmode: ["integer", "number"].includes(kind) && !referred && "decimal" });
  const nothing = h("option", { value: "" }, "–");
  if (choices) {
    const nexts = own(schema["x-transitions"], text(initial)) ?? choices;
    const mayBe = (each) => nexts.includes(each) && holds(own(schema["x-scopes"], text(each)))
      && !own(schema["x-by-actions"], text(each));
    const offered = choices.filter((each) => each === initial || mayBe(each)).map((each) => h("option", {}, text(each)));
    input.append(...(isRequired && initial !== undefined && !isNullable(schema) ? [] : [nothing]), ...offered);
  }
  input.value = !isJson ? text(initial) : initial === undefined ? "" : JSON.stringify(initial, null, 2);
  const before = input.value;
  input.value = draft ?? before;
  const example = schema.format === "date-time" ? "2026-01-31T12:00:00Z" : placeholder;
  const look = (isNull) => [(nothing.textContent = isNull ? "null" : "–"), (input.placeholder = isNull ? "null" : example)];
  let kept = "";
  const none = nullBox(isJson ? {} : schema, label, isJson ? undefined : initial, (isNull) => {
    [kept, input.value] = isNull ? [input.value, ""] : ["", input.value || kept];
    look(isNull);
    input.dispatchEvent(new CustomEvent("input", { bubbles: true }));
  });
  look(none.isOn());
  input.addEventListener("input", () => none.isOn() && input.value && [none.untick(), look(false)]);
  const show = (path, message) => {
    error.textContent = [...path, message].join(": ");
    return [input.setAttribute("aria-invalid", "true")];
  };
  return {
    node: h("div", { class: rows > 1 ? "field wide" : "field" },
      h("div", { class: "top" }, h("label", { for: input.id }, words(label), isRequired && h("small", {}, " required")), none.node),
      referred && may(referred.read) ? choice(input, referred) : input, hint, error),
    read: () => {
      const value = input.value;
      if (none.isOn() && !value) return null;
      if (value === before && !none.isTouched?.()) return initial;
      if (!value.trim() && !isPlain) return undefined;
      if (choices) return choices.find((each) => text(each) === value);
      if (kind === "integer" || kind === "number") return number(value.trim());
      return isJson ? readJson(input, show, kind === "object" && !isNullable(schema)) : value;
    },
    show,
  };
}
// The value of a text area that has JSON. Shows what is wrong with it, and where.
function readJson(input, show, isOfFields) {
  const [json, wrong] = [input.value, mistakeIn(input.value)];
  const value = wrong ? undefined : parse(json);
  if (!wrong && (!isOfFields || (isObject(value) && !Array.isArray(value)))) return value;
  show([], wrong?.message ?? 'This must be JSON of fields: {"name": "value"}.');
  input.setSelectionRange(wrong?.at ?? 0, wrong ? wrong.at + 1 : json.length);
  throw new Error("This was not sent: there is a mistake in JSON");
}
// A whole item as JSON, in place of its form.
export function raw(item) {
  const error = h("div", { class: "error", id: `error-${(made += 1)}` });
  const input = h("textarea", { id: `field-${made}`, name: "json", class: "code", rows: 12, autocomplete: "off", spellcheck: "false", "aria-describedby": error.id });
  input.value = JSON.stringify(item, null, 2);
  const show = (path, message) => [input.setAttribute("aria-invalid", "true"), error.append(h("p", {}, [...path, message].join(": ")))];
  return { node: h("div", { class: "field wide" }, h("label", { for: input.id }, "JSON"), input, error), read: () => readJson(input, show, true), show };
}
// Makes a choice of an input: offers the items that it can refer to, by a search, and says which one its id is (a combobox of
// WAI-ARIA 1.2). An id can be typed as well.
function choice(input, collection) {
  const said = h("p", { class: "hint", role: "status", id: `${input.id}-said` });
  const offers = h("ul", { role: "listbox", id: `${input.id}-offers`, "aria-label": words(collection.name), hidden: true });
  let [items, active, named, asked, timer] = [[], -1, { id: "", label: "" }];
  const mark = (next) => {
    active = next;
    [...offers.children].forEach((each, place) => each.setAttribute("aria-selected", String(place === active)));
    input.setAttribute("aria-activedescendant", offers.children[active]?.id ?? "");
    offers.children[active]?.scrollIntoView({ block: "nearest" });
  };
  const open = (isOpen) => [(offers.hidden = !isOpen), input.setAttribute("aria-expanded", String(isOpen)), mark(-1)];
  const close = () => [clearTimeout(timer), asked?.abort(), open(false)];
  const choose = (item) => {
    close();
    named = { id: text(item[collection.id]), label: collection.labelOf(item) };
    input.value = named.id;
    input.dispatchEvent(new CustomEvent("input", { bubbles: true }));
  };
  const search = async (typed) => {
    const { signal } = [asked?.abort(), (asked = new AbortController())][1];
    const query = new URLSearchParams({ limit: collection.limit, ...(typed && collection.matching(typed)) });
    const found = await send("GET", `${collection.path}?${query}`, { signal }).catch(({ message }) => ({ data: [], message }));
    if (signal.aborted) return;
    items = found.data;
    offers.replaceChildren(...items.map((each, place) => h("li", { role: "option", id: `${offers.id}-${place}`, onclick: () => choose(each) },
      collection.labelOf(each), " ", h("small", {}, text(each[collection.id])))));
    said.textContent = found.message ?? (items.length ? `${items.length} found` : "Nothing found");
    open(items.length > 0);
  };
  // Say which item the id is.
  const look = async () => {
    const id = input.value.trim();
    if (id !== named.id) {
      named = { id, label: "" };
      const label = id && await send("GET", collection.address(id)).then(({ data }) => collection.labelOf(data))
        .catch(({ status }) => (status === 404 ? `There is no ${id} in ${words(collection.name)}` : ""));
      if (id === named.id) named.label = label;
    }
    if (offers.hidden) said.textContent = named.label;
  };
  const typed = ({ detail }) => {
    if (detail === null) return look(); // not typed, but chosen
    clearTimeout(timer);
    timer = setTimeout(() => search(input.value.trim()), PAUSE);
  };
  const press = (event) => {
    const [step, isOpen] = [{ ArrowDown: 1, ArrowUp: -1 }[event.key], !offers.hidden];
    if (step && isOpen) mark((active + step + items.length + (active < 0 && step < 0)) % items.length);
    else if (step) search("");
    else if (event.key === "Enter" && isOpen && active >= 0) choose(items[active]);
    else if (event.key === "Escape" && isOpen) [close(), look()];
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const events = { input: typed, keydown: press, click: () => offers.hidden && search(""), blur: () => [close(), look()] };
  for (const [name, act] of Object.entries(events)) input.addEventListener(name, act);
  offers.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays in the input
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": offers.id,
    "aria-describedby": `${said.id} ${input.getAttribute("aria-describedby")}` })) input.setAttribute(name, value);
  if ((lookups += 1) <= MOST_LOOKUPS) look();
  return h("div", { class: "choice" }, input, offers, said);
}

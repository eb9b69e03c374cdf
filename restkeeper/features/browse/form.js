// Elements of the page, and the controls of a form that is made from a JSON Schema.
import { HUGE, collections, holds, isLong, isNullable, isObject, kindOf, number, own, parse, resolved, same, send, text } from "./api.js";

const [DEEPEST, MOST_ENTRIES] = [3, 100]; // what is nested more deeply, and a longer list, is JSON in a text area
const LONG = 200; // characters: beyond, a text has several lines
let made = 0; // ids of elements
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
// A control has a node, reads its value (undefined: left out), and shows an error at a path below it.
function control(schema, initial, { depth = 0, ...options }) {
  schema = resolved(schema);
  const kind = depth < DEEPEST ? kindOf(schema) : "any";
  const value = initial === undefined && options.isNew ? schema.default : initial;
  const [isList, below] = [Array.isArray(value), { ...options, depth: depth + 1 }];
  const isListed = kind === "array" && kindOf(resolved(schema.items)) !== "any" && (isList ? value.length <= MOST_ENTRIES : !value);
  if (kind === "object" && schema.properties && (isObject(value) ? !isList : !value)) return group(schema, value, below);
  if (isListed) return list(schema, value, below);
  return leaf(schema, value, options);
}
// The fields of an object: of a whole item if it has no label. `drafts` are texts to begin with.
export function group(schema, initial, { label, isNew, drafts, depth = 0, hidden = [] }) {
  const optionsOf = (name) => ({ label: name, isNew, isRequired: schema.required?.includes(name), draft: drafts?.get(name), depth });
  const controls = new Map(Object.entries(schema.properties).filter(([name]) => !hidden.includes(name))
    .map(([name, part]) => [name, control(part, own(initial, name), optionsOf(name))]));
  const others = Object.entries(initial ?? {}).filter(([name]) => !controls.has(name) && !hidden.includes(name));
  const rest = schema.additionalProperties !== false
    && leaf({ type: "object" }, others.length ? Object.fromEntries(others) : undefined, { label: "other fields" });
  const place = ([name]) => Object.keys(initial ?? {}).indexOf(name) >>> 0; // new fields come last
  const readAll = () => [...[...controls].map(([name, each]) => [name, each.read()]), ...Object.entries((rest && rest.read()) || {})];
  const read = () => Object.fromEntries(readAll().filter(([, value]) => value !== undefined).sort((a, b) => place(a) - place(b)));
  const [error, before] = [line("error"), read()];
  const inside = label && [h("legend", {}, words(label)), line("hint", schema.description), error];
  const isEmptied = (now) => isNullable(schema) && Object.values(now).every((each) => each === ""); // then it is null
  return {
    node: h(label ? "fieldset" : "div", { class: "fields" }, inside, [...controls.values(), rest].map((each) => each && each.node)),
    read: () => [read()].map((now) => (!label ? now : !same(now, before) ? (isEmptied(now) ? null : now) : isObject(initial) ? now : initial))[0],
    show: ([name, ...inner], message) => (controls.has(name) || rest ? (controls.get(name) ?? rest).show(inner, message)
      : label && (error.textContent = message)),
  };
}

function list(schema, initial, { label, depth }) {
  const [entries, rows, error] = [new Map(), h("ol"), line("error")];
  const changed = () => rows.dispatchEvent(new Event("input", { bubbles: true }));
  const add = (value) => {
    const options = { label: `${label} ${rows.childElementCount + 1}`, isNew: value === undefined, isRequired: true, depth };
    const [entry, row] = [control(schema.items, value, options), h("li")];
    const remove = () => [entries.delete(row), row.remove(), more.focus(), changed()];
    row.append(entry.node, h("button", { type: "button", onclick: remove, "aria-label": `Remove ${options.label}` }, "Remove"));
    entries.set(row, entry);
    return rows.appendChild(row);
  };
  const begin = () => [add().querySelector("input, select, textarea, button").focus(), changed()];
  const more = h("button", { type: "button", onclick: begin }, `Add to ${words(label)}`);
  for (const each of initial ?? []) add(each);
  const empty = kindOf(resolved(schema.items)) === "object" ? {} : "";
  const values = () => [...entries.values()].map((each) => each.read()).map((each) => (each === undefined ? empty : each));
  return {
    node: h("fieldset", { class: "list" }, h("legend", {}, words(label)), line("hint", schema.description), error, rows, more),
    read: () => (entries.size || initial ? values() : initial),
    show: ([place, ...inner], message) => [...entries.values()][place]?.show(inner, message) || (error.textContent = message),
  };
}

function leaf(schema, initial, { label, isRequired = false, draft }) {
  const kind = kindOf(schema);
  const choices = kind === "boolean" ? [true, false] : schema.enum?.filter((each) => each !== null);
  const isJson = !choices && !["string", "integer", "number"].includes(kind);
  const isPlain = kind === "string" && !choices && !schema.format && !schema["x-references"];
  const isBroken = isPlain && (schema.maxLength >= HUGE || /[\r\n]/.test(initial)); // an input has no lines
  const rows = isJson || (isPlain && isLong(schema, LONG)) ? 4 : isBroken ? 1 : 0;
  const [error, hint] = [line("error"), line("hint", schema.description, isJson && !/JSON/.test(schema.description) && "As JSON.")];
  const attributes = { id: `field-${(made += 1)}`, name: label, autocomplete: "off", "aria-describedby": `${hint.id} ${error.id}`,
    "aria-required": isRequired && "true" };
  const type = { date: "date", email: "email", uri: "url" }[schema.format] ?? "text";
  const input = choices ? h("select", attributes) : rows ? h("textarea", { ...attributes, rows, class: isJson && "code" })
    : h("input", { ...attributes, type, inputmode: ["integer", "number"].includes(kind) && "decimal" });
  if (schema.format === "date-time") input.placeholder = "2026-01-31T12:00:00Z";
  if (choices) {
    const nexts = own(schema["x-transitions"], text(initial)) ?? choices;
    const mayBe = (each) => nexts.includes(each) && holds(own(schema["x-scopes"], text(each)));
    const offered = choices.filter((each) => each === initial || mayBe(each)).map((each) => h("option", {}, text(each)));
    input.append(...(isRequired && initial !== undefined && !isNullable(schema) ? [] : [h("option", { value: "" }, "–")]), ...offered);
  }
  const referred = collections.get(schema["x-references"]);
  input.value = isJson && typeof initial === "string" ? JSON.stringify(initial) : text(initial);
  const before = input.value;
  input.value = draft ?? before;
  const show = (path, message) => {
    error.textContent = [...path, message].join(": ");
    return [input.setAttribute("aria-invalid", "true")];
  };
  return {
    node: h("div", { class: rows > 1 ? "field wide" : "field" }, h("label", { for: input.id }, words(label), isRequired && h("small", {}, " required")),
      input, hint, referred && suggestions(input, referred), error),
    read: () => {
      const value = input.value;
      if (value === before) return initial;
      if (!value.trim() && (!isPlain || isNullable(schema))) return isNullable(schema) ? null : undefined;
      if (choices) return choices.find((each) => text(each) === value);
      if (kind === "integer" || kind === "number") return number(value.trim());
      if (!isJson) return value;
      try {
        const found = parse(value);
        if (kind === "object" && (!isObject(found) || Array.isArray(found))) throw new SyntaxError("must be an object");
        return found;
      } catch (wrong) {
        show([], wrong.message);
        throw new Error("A field is no JSON");
      }
    },
    show,
  };
}
// Offers items of the collection that a field refers to, while somebody types.
function suggestions(input, collection) {
  const node = h("datalist", { id: `${input.id}-offers` });
  input.setAttribute("list", node.id);
  const offer = async () => {
    const q = collection.canSearch && input.value;
    const query = new URLSearchParams({ limit: collection.limit, ...(q && { q }) });
    const { data } = await send("GET", `${collection.path}?${query}`).catch(() => ({ data: [] }));
    if (q && q !== input.value) return; // it was typed on
    node.replaceChildren(...data.map((each) => h("option", { value: text(each.id) }, collection.labelOf(each))));
  };
  for (const event of ["focus", "input"]) input.addEventListener(event, offer);
  return node;
}

// Elements of the page, and the controls of a form that is made from a JSON Schema.

import { collections, isNullable, isObject, kindOf, number, own, parse, resolved, same, send, text } from "./api.js";

const DEEPEST = 3; // what is nested more deeply is JSON in a text area
const LONG = 200; // characters: beyond, a text has several lines
let made = 0; // ids of elements

export const words = (name) => name.replaceAll("_", " ");

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

const errorLine = () => h("p", { class: "error", id: `error-${(made += 1)}` });
const hintOf = (...texts) => h("p", { class: "hint", id: `hint-${(made += 1)}` }, texts.filter(Boolean).join(" "));

// A control has a node, reads its value (undefined: left out), and shows an error at a path below it.
function control(schema, initial, { depth = 0, ...options }) {
  schema = resolved(schema);
  const kind = depth < DEEPEST ? kindOf(schema) : "any";
  const value = initial === undefined && options.isNew ? schema.default : initial;
  const [isList, below] = [Array.isArray(value), { ...options, depth: depth + 1 }];
  if (kind === "object" && schema.properties && (isObject(value) ? !isList : !value)) return group(schema, value, below);
  if (kind === "array" && (isList || !value) && kindOf(resolved(schema.items)) !== "any") return list(schema, value, below);
  return leaf(schema, value, options);
}

// The fields of an object: of a whole item if it has no label. `drafts` are texts to begin with.
export function group(schema, initial, { label, isNew, drafts, depth = 0, hidden = [] }) {
  const optionsOf = (name) => ({ label: name, isNew, isRequired: schema.required?.includes(name), draft: drafts?.get(name), depth });
  const parts = Object.entries(schema.properties).filter(([name]) => !hidden.includes(name))
    .map(([name, part]) => [name, control(part, own(initial, name), optionsOf(name))]);
  const controls = new Map(parts);
  const others = Object.entries(initial ?? {}).filter(([name]) => !controls.has(name) && !hidden.includes(name));
  const rest = schema.additionalProperties !== false
    && leaf({ type: "object" }, others.length ? Object.fromEntries(others) : undefined, { label: "other fields" });
  const error = errorLine();
  const inside = label && [h("legend", {}, words(label)), hintOf(schema.description), error];
  const place = ([name]) => Object.keys(initial ?? {}).indexOf(name) >>> 0; // new fields come last
  const readAll = () => [...parts.map(([name, each]) => [name, each.read()]), ...Object.entries((rest && rest.read()) || {})];
  const read = () => Object.fromEntries(readAll().filter(([, value]) => value !== undefined).sort((a, b) => place(a) - place(b)));
  const before = read();
  return {
    node: h(label ? "fieldset" : "div", { class: "fields" }, inside, parts.map(([, each]) => each.node), rest && rest.node),
    read: () => (label && !isObject(initial) && same(read(), before) ? initial : read()),
    show: ([name, ...inner], message) => (controls.has(name) || rest ? (controls.get(name) ?? rest).show(inner, message)
      : label && (error.textContent = message)),
  };
}

function list(schema, initial, { label, depth }) {
  const [entries, rows, error] = [new Map(), h("ol"), errorLine()];
  const add = (value) => {
    const options = { label: `${label} ${rows.childElementCount + 1}`, isNew: value === undefined, isRequired: true, depth };
    const entry = control(schema.items, value, options);
    const remove = () => [entries.delete(row), row.remove(), more.focus()];
    const row = h("li", {}, entry.node, h("button", { type: "button", onclick: remove, "aria-label": `Remove ${options.label}` }, "Remove"));
    entries.set(row, entry);
    return rows.appendChild(row);
  };
  const more = h("button", { type: "button", onclick: () => add().querySelector("input, select, textarea, button").focus() },
    `Add to ${words(label)}`);
  for (const each of initial ?? []) add(each);
  const empty = kindOf(resolved(schema.items)) === "object" ? {} : "";
  const values = () => [...entries.values()].map((each) => each.read()).map((each) => (each === undefined ? empty : each));
  return {
    node: h("fieldset", { class: "list" }, h("legend", {}, words(label)), hintOf(schema.description), error, rows, more),
    read: () => (entries.size || initial ? values() : initial),
    show: ([place, ...inner], message) => [...entries.values()][place]?.show(inner, message) || (error.textContent = message),
  };
}

function leaf(schema, initial, { label, isRequired = false, draft }) {
  const kind = kindOf(schema);
  const choices = kind === "boolean" ? [true, false] : schema.enum?.filter((each) => each !== null);
  const isJson = !choices && !["string", "integer", "number"].includes(kind);
  const isLong = kind === "string" && schema.maxLength > LONG && !schema.format && !schema["x-references"];
  const [error, hint] = [errorLine(), hintOf(schema.description, isJson && !/JSON/.test(schema.description) && "As JSON.")];
  const id = `field-${(made += 1)}`;
  const attributes = { id, name: label, autocomplete: "off", "aria-describedby": `${hint.id} ${error.id}` };
  if (isRequired) attributes["aria-required"] = "true";
  const type = { date: "date", email: "email", uri: "url" }[schema.format] ?? "text";
  const input = choices ? h("select", attributes) : isJson || isLong ? h("textarea", { ...attributes, rows: 4, class: isJson && "code" })
    : h("input", { ...attributes, type, inputmode: ["integer", "number"].includes(kind) && "decimal" });
  if (choices) {
    const nexts = own(schema["x-transitions"], text(initial)) ?? choices;
    const isSet = isRequired && initial !== undefined && !isNullable(schema);
    const offered = choices.filter((each) => each === initial || nexts.includes(each)).map((each) => h("option", {}, text(each)));
    input.append(...(isSet ? [] : [h("option", { value: "" }, "–")]), ...offered);
  }
  const referred = collections.get(schema["x-references"]);
  input.value = isJson && typeof initial === "string" ? JSON.stringify(initial) : text(initial);
  const before = input.value;
  input.value = draft ?? before;
  const show = (path, message) => {
    error.textContent = [...path, message].join(": ");
    input.setAttribute("aria-invalid", "true");
    return true;
  };
  return {
    node: h("div", { class: isJson || isLong ? "field wide" : "field" },
      h("label", { for: id }, words(label), isRequired && h("small", {}, " required")), hint, input,
      referred && suggestions(input, referred), error),
    read: () => {
      const value = input.value;
      if (value === before) return initial;
      if (!value.trim() && (choices || isNullable(schema) || kind !== "string")) return isNullable(schema) ? null : undefined;
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
    const query = new URLSearchParams({ limit: 20, ...(collection.canSearch && input.value && { q: input.value }) });
    const { data } = await send("GET", `${collection.path}?${query}`).catch(() => ({ data: [] }));
    node.replaceChildren(...data.map((each) => h("option", { value: text(each.id) }, collection.labelOf(each))));
  };
  for (const event of ["focus", "input"]) input.addEventListener(event, offer);
  return node;
}

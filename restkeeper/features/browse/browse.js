// The views. The address after # names one: #/, #/list/products?sort=-price, #/item/products/ID, #/edit/…, #/new/….

import { collections, isObject, key, kindOf, links, load, may, own, resolved, same, scheme, send, signIn, text, title } from "./api.js";
import { group, h, words } from "./form.js";

const OPERATORS = { eq: "is", ne: "is not", gt: ">", gte: "≥", lt: "<", lte: "≤", in: "is one of", like: "contains", starts: "begins with" };
const NO_FILTERS = ["limit", "offset", "cursor", "sort", "q", "fields", "embed", "count"];
const MOST_COLUMNS = 7;
const MOST_PAGES = 10; // of events that are read at once
let view = {}; // the one that is shown
let notice = ""; // for the next one

const at = (id) => document.getElementById(id);
const button = (label, onclick, more) => h("button", { type: "button", onclick, ...more }, label);
const link = (label, href, more) => h("a", { href, ...more }, label);
const quiet = (label) => h("span", { class: "quiet" }, label);
const heading = (label, ...actions) => h("div", { class: "head" }, h("h1", { tabindex: -1 }, label), actions);
const alert = (message, ...more) => h("div", { class: "alert", role: "alert" }, h("p", {}, message), more);
const form = (act, more, ...children) => h("form", { onsubmit: (event) => [event.preventDefault(), act()], ...more }, children);
const many = (count, one) => `${count ? Number(count).toLocaleString() : "Many"} ${count === "1" ? one : `${one}s`}`;
const get = (address) => send("GET", address, { signal: view.requests.signal });
const matching = (headers) => (headers.has("ETag") ? { "If-Match": headers.get("ETag") } : {});
function to(verb, { name, isSingle }, id, query = "") {
  const path = [verb, name, ...(isSingle || id === undefined ? [] : [text(id)])].map(encodeURIComponent).join("/");
  return `#/${path}${String(query) && `?${query}`}`;
}
const home = (collection) => to(collection.isSingle ? "item" : "list", collection);
const newLink = (collection, query) => may(collection.create)
  && link("New", to("new", collection, undefined, query), { class: "button", "aria-label": `New in ${words(collection.name)}` });

// A value as elements: fields, lists, and links to the items that it refers to; in a cell it `isBrief`.
function shown(value, schema = {}, isBrief = false) {
  schema = resolved(schema);
  const referred = collections.get(schema["x-references"]);
  if (value === undefined || value === null) return quiet("–");
  if (referred) return link(isObject(value) ? referred.labelOf(value) : text(value), to("item", referred, value.id ?? value));
  if (Array.isArray(value) && isBrief) return value.some(isObject) ? many(text(value.length), "part") : value.map(text).join(", ");
  if (Array.isArray(value)) return h("ul", {}, value.map((each) => h("li", {}, shown(each, schema.items))));
  if (isObject(value)) return isBrief ? JSON.stringify(value).slice(0, 60) : fieldsOf(value, schema.properties);
  if (schema.enum) return h("span", { class: "tag" }, text(value));
  if (schema.format !== "date-time" || isNaN(new Date(value))) return isBrief ? text(value).slice(0, 100) : text(value);
  return h("time", { datetime: value, title: value }, new Date(value).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
}
const terms = (pairs) => h("dl", {}, pairs.map(([name, ...value]) => h("div", {}, h("dt", {}, words(name)), h("dd", {}, value))));
const fieldsOf = (item, schemas) => terms(Object.entries(item).map(([name, value]) => [name, shown(value, own(schemas, name))]));

// The fields that differ between two states of an item.
const changes = (before, after, { fields }) => terms(Object.keys({ ...before, ...after })
  .filter((name) => !["updated_at", "version"].includes(name) && !same(own(before, name), own(after, name)))
  .map((name) => [name, [before, after].map((each) => shown(own(each, name), own(fields, name), true))])
  .map(([name, [one, other]]) => [name, h("del", {}, one), " → ", h("ins", {}, other)]));

// A table of items, `without` some fields; `sorter` makes what is in a cell of its head, and its order.
function table({ fields, label, ...collection }, rows, caption, { without = [], sorter = (name) => [words(name)] } = {}) {
  const isColumn = (name) => ![label, "id", "created_at", "version", ...without].includes(name)
    && kindOf(own(fields, name)) !== "object" && !(own(fields, name)?.maxLength > 1000);
  const ids = label !== "id" && kindOf(own(fields, "id")) !== "string" ? ["id"] : [];
  const others = [...new Set([...Object.keys(fields), ...rows.flatMap(Object.keys)])].filter(isColumn);
  const columns = [label, ...ids, ...others].slice(0, MOST_COLUMNS);
  const look = (name) => ({ class: ["integer", "number"].includes(kindOf(own(fields, name))) && "number" });
  const head = columns.map((name) => [look(name), ...sorter(name)]).map(([more, label, order]) =>
    h("th", { scope: "col", "aria-sort": order, ...more }, label));
  const cell = (item, name) => (name !== label ? h("td", look(name), shown(own(item, name), own(fields, name), true))
    : h("th", { scope: "row" }, link(collection.labelOf(item) || "–", to("item", collection, item.id))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map((item) => h("tr", {}, columns.map((name) => cell(item, name)))))));
}

async function overview() {
  const cards = [];
  for (const each of collections.values()) { // one after the other: a wrong key is sent once
    const isRefused = (problem) => problem.status !== 403 && Promise.reject(problem);
    const counted = !each.isSingle && await get(`${each.path}?limit=1`).catch(isRefused);
    const count = counted ? many(counted.headers.get("X-Total-Count"), "item") : each.isSingle ? "one item" : "not for you";
    cards.push(h("li", {}, link(words(each.name), home(each)), quiet(count)));
  }
  return [heading(title()), h("ul", { class: "cards" }, cards)];
}

async function list(collection, id, query) {
  const go = (change) => {
    const next = new URLSearchParams([...query].filter(([name]) => name !== "cursor" && name !== "offset"));
    change(next);
    location.hash = to("list", collection, undefined, next);
  };
  const put = (name, value) => go((next) => (value ? next.set(name, value) : next.delete(name)));
  const asked = new URLSearchParams(query);
  if (collection.embeds.length) asked.set("embed", collection.embeds);
  const { data, headers } = await get(`${collection.path}?${asked}`);
  const total = headers.get("X-Total-Count");
  const caption = `${data.length}${total ? ` of ${Number(total).toLocaleString()}` : ""} ${words(collection.name)}`;
  at("status").textContent = caption;
  const sorter = (name) => {
    const [order, next] = { [name]: ["ascending", `-${name}`], [`-${name}`]: ["descending", ""] }[query.get("sort")] ?? ["none", name];
    if (!collection.sortable.includes(name)) return [words(name)];
    return [button(words(name), () => put("sort", next), { id: `sort-${name}`, class: "sort" }), order];
  };
  const chip = ([name, value]) => {
    const [field, operator = "eq"] = name.split(/[[\]]/);
    const label = `${words(field)} ${OPERATORS[operator] ?? operator} ${value} ×`;
    return h("li", {}, button(label, () => go((next) => next.delete(name, value)), { title: "Remove this filter" }));
  };
  const page = ([rel, target]) => link({ prev: "previous" }[rel] ?? rel,
    to("list", collection, undefined, new URL(target, location).searchParams), { id: `page-${rel}`, class: "button" });
  const search = h("input", { id: "q", type: "search", "aria-label": "Search", placeholder: "Search", value: query.get("q") ?? "" });
  return [
    heading(words(collection.name), newLink(collection)),
    h("div", { class: "tools" },
      collection.canSearch && form(() => put("q", search.value), { role: "search" }, search, h("button", {}, "Search")),
      collection.filters.size > 0 && filterForm(collection.filters, (name, value) => go((next) => next.append(name, value)))),
    h("ul", { class: "chips" }, [...query].filter(([name]) => !NO_FILTERS.includes(name)).map(chip)),
    data.length ? table(collection, data, caption, { sorter }) : quiet("There are none."),
    h("nav", { class: "pages", "aria-label": "Pages" }, Object.entries(links(headers)).map(page)),
  ];
}

function filterForm(filters, act) {
  const options = (names, labels = {}) => names.map((name) => h("option", { value: name }, labels[name] ?? words(String(name))));
  const field = h("select", { "aria-label": "Field" }, options([...filters.keys()]));
  const [operator, values] = [h("select", { "aria-label": "Comparison" }), h("datalist", { id: "values" })];
  const value = h("input", { id: "value", "aria-label": "Value", placeholder: "Value", autocomplete: "off", list: "values" });
  const offer = ({ target } = { target: field }) => {
    const operators = filters.get(field.value);
    if (target === field) operator.replaceChildren(...options(Object.keys(operators), OPERATORS));
    const schema = resolved(operators[operator.value]);
    values.replaceChildren(...options(schema.enum ?? (schema.type === "boolean" ? [true, false] : [])));
  };
  const submit = () => act(operator.value === "eq" ? field.value : `${field.value}[${operator.value}]`, value.value);
  offer();
  return form(submit, { "aria-label": "Filter", onchange: offer }, field, operator, value, values, h("button", {}, "Filter"));
}

async function item(collection, id) {
  const address = collection.address(id);
  const { data, headers } = await get(address);
  const whole = collection.embeds.length ? (await get(`${address}?embed=${collection.embeds}`)).data : data;
  const [place, name] = [h("div"), collection.labelOf(data)];
  const remove = () => send("DELETE", address, matching(headers)).then(
    () => [notice, location.hash] = [`${name} is deleted.`, home(collection)],
    (problem) => place.replaceChildren(alert(problem.message, button("Reload", route))));
  const dialog = h("dialog", { "aria-labelledby": "question" }, h("form", { method: "dialog" }, h("h2", { id: "question" }, `Delete ${name}?`),
    h("button", { onclick: remove, class: "danger" }, "Delete"), h("button", {}, "Cancel")));
  return [
    heading(name, may(collection.update) && link("Edit", to("edit", collection, id), { class: "button" }),
      may(collection.remove) && button("Delete", () => dialog.showModal(), { class: "danger" })),
    place, dialog, fieldsOf(whole, collection.fields),
    ...collection.referring.map((each) => relation(each, data.id)), collection.feed && history(collection, data),
  ];
}

// A part of a view that is filled later.
function section(name, fill) {
  const node = h("section", {}, h("h2", {}, name));
  fill(node).catch((problem) => node.append(quiet(problem.message)));
  return node;
}

// The items of another collection that refer to an item.
const relation = ({ of, field, path }, id) => section(`${words(of.name)} by ${words(field)}`, async (node) => {
  const { data, headers } = await get(`${path(id)}?limit=5`);
  const query = new URLSearchParams({ [field]: text(id) });
  const all = link(`All ${headers.get("X-Total-Count") ?? ""}`, to("list", of, undefined, query), { class: "button" });
  node.append(data.length ? table(of, data, node.textContent, { without: [field] }) : quiet("none"),
    h("p", { class: "actions" }, data.length > 0 && all, newLink(of, query)));
});

// The events of an item, the newest first, with what each one changed.
const history = (collection, { id }) => section("History", async (node) => {
  const events = h("ol", { class: "history" });
  const query = new URLSearchParams({ collection: collection.name, ...(!collection.isSingle && { item: text(id) }) });
  let [next, last] = [`${collection.feed}?${query}`];
  const read = async () => {
    more.hidden = true;
    for (let pages = 0; pages < MOST_PAGES; pages++) {
      const { data, headers } = await get(next);
      for (const { type, timestamp, data: state } of data) {
        const changed = last ? changes(last, state, collection) : [];
        events.prepend(h("li", {}, h("strong", {}, type.split(".").pop()), shown(timestamp, { format: "date-time" }), changed));
        last = state;
      }
      const [before, after] = [next, links(headers).next].map((each) => new URL(each, location).searchParams.get("after"));
      if (!data.length && (!after || before === after)) return;
      next = links(headers).next;
    }
    more.hidden = false;
  };
  const more = button("Search newer events", read);
  node.append(more, events);
  await read();
  if (!events.childElementCount) node.append(quiet("No events are stored."));
});

async function edit(collection, id, query, isNew = false) {
  const { data: before, headers } = isNew ? {} : await get(collection.address(id));
  const schema = isNew ? collection.newSchema : collection.changedSchema;
  const readOnly = Object.keys(collection.fields).filter((name) => !own(schema.properties, name));
  const fields = group(schema, before, { isNew, drafts: query, hidden: isNew ? readOnly : [...readOnly, "id"] });
  let [place, sent, once] = [h("div")];
  const submit = async () => {
    for (const each of node.querySelectorAll(".error")) each.textContent = "";
    for (const each of node.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
    try {
      const body = JSON.stringify(fields.read());
      if (body !== sent) [sent, once] = [body, crypto.getRandomValues(new Uint32Array(4)).join("-")];
      const { data } = isNew ? await send("POST", collection.path, { body, "Idempotency-Key": once })
        : await send(collection.method, collection.address(id), { body, ...matching(headers) });
      const secret = !own(collection.fields, "secret") && data.secret;
      notice = `It is ${isNew ? "created" : "saved"}. ${secret ? `Its secret, shown only now: ${secret}` : ""}`;
      location.hash = to("item", collection, data.id);
    } catch (problem) {
      const others = (problem.errors ?? []).filter(({ pointer, detail }) => !pointer || !fields.show(namesIn(pointer), detail));
      const message = problem.errors?.length && !others.length ? "Some fields are not valid" : problem.message;
      place.replaceChildren(alert(message, h("ul", {}, others.map(({ pointer = "", detail }) => h("li", {}, `${pointer} ${detail}`)))));
      if (problem.status === 412) {
        const { data: now } = await get(collection.address(id));
        place.firstChild.append("Meanwhile it was changed:", changes(before, now, collection), button("Reload without my changes", route));
      }
      node.querySelector("[aria-invalid], .alert button")?.focus();
    }
  };
  const node = form(submit, { novalidate: true, class: "edit" }, place, fields.node, h("p", { class: "actions" },
    h("button", { class: "primary" }, isNew ? "Create" : "Save"),
    link("Cancel", isNew ? home(collection) : to("item", collection, id), { class: "button" })));
  return [heading(isNew ? `New in ${words(collection.name)}` : `Edit ${collection.labelOf(before)}`), node];
}
const namesIn = (pointer) => decodeURIComponent(pointer).split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));

function signInForm(problem) {
  const input = h("input", { id: "key", type: "password", autocomplete: "off", "aria-describedby": "key-hint" });
  return [heading("Sign in"), problem && alert(problem.message), form(() => [signIn(input.value.trim()), route()], { class: "edit" },
    h("div", { class: "field" }, h("label", { for: "key" }, "API key or token"),
      h("p", { class: "hint", id: "key-hint" }, "It is kept for this tab, until it is closed."), input),
    h("p", { class: "actions" }, h("button", { class: "primary" }, "Sign in")))];
}

const VIEWS = { "": overview, list, item, edit, new: (collection, id, query) => edit(collection, id, query, true) };

// Show the view that the address names. Focus stays where it is if only the query is another one.
async function route() {
  const [path, query = ""] = location.hash.slice(2).split(/\?(.*)/s);
  const [verb, name, id] = path.split("/").map(decodeURIComponent);
  const collection = collections.get(name);
  const focused = view.path === path && document.activeElement.id;
  view.requests?.abort();
  const mine = (view = { path, requests: new AbortController() });
  at("status").textContent = "";
  let nodes;
  try {
    if (!own(VIEWS, verb) || Boolean(verb) !== Boolean(collection)) throw new Error("There is no such page");
    nodes = await VIEWS[verb](collection, id, new URLSearchParams(query));
  } catch (problem) {
    if (problem.status === 401) signIn("");
    nodes = problem.status === 401 ? signInForm(problem) : [heading("This is not possible"), alert(problem.message)];
  }
  if (view === mine) show(nodes, collection, focused);
}

function show(nodes, collection, focused = "") {
  at("main").replaceChildren(...nodes.filter(Boolean));
  if (notice) [at("status").textContent, notice] = [notice, ""];
  const trail = [link(title(), "#/"), ...(collection ? [link(words(collection.name), home(collection))] : [])];
  at("trail").replaceChildren(...trail.map((each) => h("li", {}, each)));
  const session = key() ? button("Sign out", () => [signIn(""), route()]) : button("Sign in", () => show(signInForm()));
  at("session").replaceChildren(...(scheme() ? [session] : []));
  document.title = [at("main").querySelector("h1").textContent, title()].join(" · ");
  (at(focused || "") ?? at("main").querySelector("h1")).focus();
}

try {
  await load();
  addEventListener("hashchange", route);
  await route();
} catch (problem) {
  at("main").replaceChildren(heading("The service cannot be read"), alert(problem.message));
}

// The views. The address after # names one: #/, #/list/products?sort=-price, #/item/products/ID, #/edit/…, #/new/….
import { collections, differing, follow, holds, isLong, isObject, key, kindOf, links, load, may, meanings, own, patch, resolved, same, scheme, send, signIn,
  text, title } from "./api.js";
import { group, h, raw, words } from "./form.js";
const NO_FILTERS = ["limit", "offset", "cursor", "sort", "q", "fields", "embed", "count", "export"];
const [MOST_COLUMNS, MOST_PAGES] = [7, 10]; // of a table; of events that are read at once
let [view, notice] = [{}, ""]; // what is shown, and what the next view says
const at = (id) => document.getElementById(id);
const button = (label, onclick, more) => h("button", { type: "button", onclick, ...more }, label);
const link = (label, href, more) => h("a", { href, ...more }, label);
const quiet = (label) => h("span", { class: "quiet" }, label);
const heading = (label, ...actions) => h("div", { class: "head" }, h("h1", { tabindex: -1 }, label), actions);
const alert = ({ message, errors = [] }, ...more) => h("div", { class: "alert", role: "alert", tabindex: -1 }, h("p", {}, message), h("ul", {},
  errors.map(({ pointer, parameter = pointer ?? "", detail }) => !message.includes(detail) && h("li", {}, `${parameter} ${detail}`))), more);
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
  if (isBrief && (value === undefined || value === null)) return quiet("–");
  const nothing = { null: "null", '""': "empty text", "[]": "empty list", "{}": "no fields" }[JSON.stringify(value)] ?? (value === undefined && "–");
  if (nothing && !isBrief) return quiet(nothing);
  if (referred) return link(isObject(value) ? referred.labelOf(value) : text(value), to("item", referred, value[referred.id] ?? value));
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
const changes = (before, after, { fields }) => terms(differing(before, after).filter((name) => !["updated_at", "version"].includes(name))
  .map((name) => [name, [before, after].map((each) => shown(own(each, name), own(fields, name), true))])
  .map(([name, [one, other]]) => [name, h("del", {}, one), " → ", h("ins", {}, other)]));
// A table of items, `without` some fields; `sorter` makes what is in a cell of its head, and its order.
function table({ fields, label, ...collection }, rows, caption, { without = [], sorter = (name) => [words(name)] } = {}) {
  const isColumn = (name) => ![label, collection.id, "created_at", "version", ...without].includes(name)
    && kindOf(resolved(own(fields, name))) !== "object" && !isLong(own(fields, name), 1000);
  const ids = label !== collection.id && kindOf(own(fields, collection.id)) !== "string" ? [collection.id] : [];
  const others = [...new Set([...Object.keys(fields), ...rows.flatMap(Object.keys)])].filter(isColumn);
  const columns = [label, ...ids, ...others].slice(0, MOST_COLUMNS);
  const look = (name) => ({ class: ["integer", "number"].includes(kindOf(own(fields, name))) && "number" });
  const head = columns.map((name) => [name, ...sorter(name)]).map(([name, label, order]) =>
    h("th", { scope: "col", "aria-sort": order, ...look(name) }, label));
  const cell = (item, name) => (name !== label ? h("td", look(name), shown(own(item, name), own(fields, name), true))
    : h("th", { scope: "row" }, link(collection.labelOf(item) || "–", to("item", collection, item[collection.id]))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map((item) => h("tr", {}, columns.map((name) => cell(item, name)))))));
}

async function overview() {
  const cards = [];
  for (const each of [...collections.values()].filter(({ read }) => may(read))) {
    const total = !each.isSingle && (await get(`${each.path}?limit=1`)).headers.get("X-Total-Count");
    cards.push(h("li", {}, link(words(each.name), home(each)), quiet(each.isSingle ? "one item" : many(total, "item"))));
  }
  return cards.length || key() ? [heading(title()), h("ul", { class: "cards" }, cards)] : signInForm();
}

async function list(collection, id, query) {
  const go = (change) => {
    const next = new URLSearchParams([...query].filter(([name]) => !["cursor", "offset"].includes(name)));
    [, location.hash] = [change(next), to("list", collection, undefined, next)];
  };
  const put = (name, value) => go((next) => (value ? next.set(name, value) : next.delete(name)));
  const changed = button("Show changes", route, { hidden: true });
  const tell = () => ([changed.hidden, at("status").textContent] = [false, "There are changes"]);
  if (collection.feed) follow(`${collection.feed}?${new URLSearchParams({ collection: collection.name, after: "latest" })}`, view.requests.signal, tell);
  const asked = new URLSearchParams(query);
  if (collection.embeds.length) asked.set("embed", collection.embeds);
  if (!asked.has("limit")) asked.set("limit", collection.limit);
  const { data, headers, wrong } = await get(`${collection.path}?${asked}`).catch((problem) =>
    (problem.status === 400 ? { data: [], headers: new Headers(), wrong: problem } : Promise.reject(problem)));
  const [pages, total] = [links(headers), headers.get("X-Total-Count")];
  const caption = `${data.length}${total ? ` of ${Number(total).toLocaleString()}` : ""} ${words(collection.name)}`;
  const sorter = (name) => {
    const [order, next] = { [name]: ["ascending", `-${name}`], [`-${name}`]: ["descending", ""] }[query.get("sort")] ?? ["none", name];
    const press = () => put("sort", next);
    return collection.sortable.includes(name) ? [button(words(name), press, { id: `sort-${name}`, class: "sort" }), order] : [words(name)];
  };
  const chip = ([name, value], place, all, [field, operator = "eq"] = name.split(/[[\]]/)) =>
    h("li", {}, button(`${words(field)} ${own(meanings(), operator) ?? operator} ${value} ×`, () => go((next) => next.delete(name, value)), { title: "Remove this filter" }));
  const page = ([rel, target]) => link({ prev: "previous" }[rel] ?? rel,
    to("list", collection, undefined, new URL(target, location).searchParams), { id: `page-${rel}`, class: "button" });
  const search = h("input", { id: "q", type: "search", "aria-label": "Search", placeholder: "Search", value: query.get("q") ?? "" });
  return [heading(words(collection.name), changed, newLink(collection), actions(collection)),
    h("div", { class: "tools" },
      collection.canSearch && form(() => put("q", search.value), { role: "search" }, search, h("button", {}, "Search")),
      collection.filters.size > 0 && filterForm(collection.filters, (name, value) => go((next) => next.append(name, value)))),
    h("ul", { class: "chips" }, [...query].filter(([name]) => !NO_FILTERS.includes(name)).map(chip)),
    wrong ? alert(wrong) : data.length ? table(collection, data, caption, { sorter }) : quiet("There are none."),
    h("nav", { class: "pages", "aria-label": "Pages" }, Object.entries(pages.next || pages.prev ? pages : {}).map(page))];
}

function filterForm(filters, act) {
  const options = (names, labels = {}) => names.map((name) => h("option", { value: name }, labels[name] ?? words(String(name))));
  const field = h("select", { "aria-label": "Field" }, options([...filters.keys()]));
  const [operator, values] = [h("select", { "aria-label": "Comparison" }), h("datalist", { id: "values" })];
  const value = h("input", { id: "value", "aria-label": "Value", placeholder: "Value", autocomplete: "off", list: "values" });
  const offer = ({ target } = { target: field }) => {
    const operators = filters.get(field.value);
    if (target === field) operator.replaceChildren(...options(Object.keys(operators), meanings()));
    const schema = resolved(operators[operator.value]);
    values.replaceChildren(...options(schema.enum ?? (schema.type === "boolean" ? [true, false] : [])));
  };
  offer();
  return form(() => act(field.value + (operator.value === "eq" ? "" : `[${operator.value}]`), value.value), { "aria-label": "Filter", onchange: offer }, field, operator, value, values, h("button", {}, "Filter"));
}

async function item(collection, id) {
  const address = collection.address(id);
  const { data, headers } = await get(address);
  const whole = collection.embeds.length ? (await get(`${address}?embed=${collection.embeds}`)).data : data;
  const name = collection.labelOf(data);
  const remove = async () => [`${name} is deleted.`, home(collection), await send("DELETE", address, matching(headers))];
  return [heading(name, may(collection.update) && link("Edit", to("edit", collection, id), { class: "button" }),
    actions(collection, data, matching(headers)), may(collection.remove) && asking("Delete", name, remove, { class: "danger" })),
  fieldsOf(whole, collection.fields), collection.referring.map((each) => relation(each, data[collection.id])), collection.feed && history(collection, data)];
}
// Buttons for the actions of an item, or for the functions of a collection.
const actions = (collection, item, condition) => collection.actions(item && (item[collection.id] ?? "")).map(({ name, about, schema, path }) => {
  const label = words(name).replace(/^./, (first) => first.toUpperCase());
  const act = async (body, once) => {
    const { data } = await send("POST", path, { body, ...once, ...condition });
    return [`${label}: done. ${secretOf(data, collection) || (item && same(data?.[collection.id], item[collection.id]) ? "" : text(data).slice(0, 500))}`];
  };
  return asking(label, item ? collection.labelOf(item) : words(collection.name), act, { id: `do-${name}` }, about, schema);
});
const secretOf = (data, { fields }) => (!own(fields, "secret") && own(data, "secret") ? `Its secret, shown only now: ${data.secret}` : "");
// Show the view at an address, or this one anew, with a notice.
function leave(said, address = location.hash) {
  [notice, view.isDirty] = [said, false];
  return address === location.hash ? route() : (location.hash = address);
}
// A button, and the dialog with which it asks before it acts: for what the schema has, if there is one.
function asking(label, name, act, more, about = "", schema = undefined) {
  const [place, fields] = [h("div"), schema && group(schema, undefined, { isNew: true })];
  const submit = sending(() => fields, place, async (...sent) => [await act(...sent)].map((left) => [dialog.close(), leave(...left)]));
  const buttons = h("p", { class: "actions" }, h("button", { class: more.class ?? "primary" }, label), button("Cancel", () => dialog.close()));
  const dialog = h("dialog", { "aria-label": `${label} ${name}` }, h("h2", {}, `${label} ${name}?`), h("p", {}, about), place,
    form(submit, { novalidate: true }, fields ? fields.node : [], buttons));
  return [button(label, () => dialog.showModal(), more), dialog];
}
// What sends the values of a form, once at a time, and shows problems: in the fields, or at a place.
function sending(fieldsNow, place, act, conflict = async () => button("Reload", route)) {
  let [isBusy, sent, once] = [false];
  const submit = async () => {
    if (isBusy) return;
    const [fields, box] = [fieldsNow(), place.parentElement];
    place.replaceChildren();
    forget(box);
    try {
      isBusy = true;
      const value = fields?.read();
      if (!once || !same(value, sent)) [sent, once] = [value, { "Idempotency-Key": crypto.getRandomValues(new Uint32Array(4)).join("-") }];
      await act(value, once);
    } catch ({ message, status, errors = [] }) {
      const others = errors.filter(({ pointer, detail }) => !pointer || !fields?.show(namesIn(pointer), detail));
      const more = status === 412 && await conflict(sent).catch((problem) => problem.message);
      const said = { message: errors.length > others.length ? "Some fields are not valid" : message, errors: others };
      place.replaceChildren(alert(said, more, status === 401 && keyForm(submit)));
      (box.querySelector("[aria-invalid]") ?? place.querySelector("input") ?? place.firstChild).focus();
    }
    isBusy = false;
  };
  return submit;
}
// Take away what fields show as wrong.
function forget(box) {
  for (const each of box.querySelectorAll(".error, [aria-invalid]")) each.matches(".error") ? each.replaceChildren() : each.removeAttribute("aria-invalid");
}
const namesIn = (pointer) => decodeURIComponent(pointer).split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
// A part of a view that is filled later.
function section(name, fill, node = h("section", {}, h("h2", {}, name))) {
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
const history = (collection, item) => section("History", async (node) => {
  const [events, more] = [h("ol", { class: "history" }), button("Look for newer changes", () => read().catch(({ message }) => more.replaceChildren(message)))];
  const query = new URLSearchParams({ collection: collection.name, ...(!collection.isSingle && { item: text(item[collection.id]) }) });
  const { signal } = view.requests;
  let [next, last, isDone] = [`${collection.feed}?${query}`];
  const read = async () => {
    for (let pages = 0; pages < MOST_PAGES && !isDone; pages++) {
      const { data, headers } = await get(next);
      for (const { type, timestamp, data: state } of data) {
        const changed = last ? changes(last, state, collection) : [];
        events.prepend(h("li", {}, h("strong", {}, type.split(".").pop()), shown(timestamp, { format: "date-time" }), changed));
        last = state;
      }
      const [before, after] = [next, links(headers).next].map((each) => new URL(each, location).searchParams.get("after"));
      [isDone, next] = [!data.length && (!after || before === after), links(headers).next];
    }
    more.hidden = isDone;
  };
  let turn = read();
  await turn;
  follow(next, signal, () => (turn = turn.then(() => [(isDone = false), read()][1]).catch(({ message }) => more.replaceChildren(message))));
  node.append(more, events.childElementCount ? events : h("p", {}, "No changes are stored."));
});

async function edit(collection, id, query, isNew = false) {
  const [mine, address, place, schema] = [view, collection.address(id), h("div"), isNew ? collection.newSchema : collection.changedSchema];
  if (!schema) throw new Error("There is no such page");
  let { data: before, headers } = isNew ? {} : await get(address);
  const isOpen = (part, name) => part && ["x-writable-by", "x-readable-by"].every((each) => holds(resolved(part)[each])) && (isNew || name !== collection.id);
  const hidden = Object.keys({ ...collection.fields, ...schema.properties }).filter((name) => !isOpen(own(schema.properties, name), name));
  let isRaw = false;
  const fieldsFor = (values, more) => [group(schema, values, { hidden, ...more })].map((made) => (isRaw ? raw(made.read()) : made))[0];
  let fields = fieldsFor(before, { isNew, drafts: isNew ? query : undefined });
  let untouched = fields.read();
  const save = async (item, once) => {
    const [method, body] = isNew ? ["POST", item] : collection.method === "PUT" ? ["PUT", item] : ["PATCH", patch(untouched, item)];
    const { data } = await send(method, isNew ? collection.path : address, { body, ...(isNew ? once : matching(headers)) });
    if (view === mine) leave(`It is ${isNew ? "created" : "saved"}. ${secretOf(data, collection)}`, to("item", collection, data[collection.id]));
  };
  const replace = (values) => {
    const old = fields.node;
    fields = fieldsFor(values);
    old.replaceWith(fields.node);
  };
  // Show the same item in the other way, unless something is wrong in it.
  const turn = (wanted) => {
    const box = place.parentElement;
    forget(box);
    try {
      const values = fields.read();
      isRaw = wanted;
      replace(values);
    } catch {
      return box.querySelector("[aria-invalid]").focus();
    }
    for (const each of ways) each.setAttribute("aria-pressed", String(isRaw === (each === ways[1])));
  };
  const ways = [button("Form", () => turn(false), { "aria-pressed": "true" }), button("JSON", () => turn(true), { "aria-pressed": "false" })];
  // Begin again with what is stored now, and the fields that were changed here.
  const merge = async (item) => {
    const now = await get(address);
    const kept = Object.fromEntries(differing(untouched, item).map((name) => [name, own(item, name)]));
    replace({ ...now.data, ...kept });
    [untouched, headers] = [fieldsFor(now.data).read(), now.headers];
    const seen = changes(before, before = now.data, collection);
    return [h("p", {}, "Meanwhile it was changed; your own changes are kept below:"), seen, button("Reload without my changes", route)];
  };
  const more = { novalidate: true, oninput: () => (mine.isDirty = true) };
  return [heading(isNew ? `New in ${words(collection.name)}` : `Edit ${collection.labelOf(before)}`, h("div", { class: "ways", role: "group", "aria-label": "Edit as" }, ways)), h("div", { class: "edit" }, place,
    form(sending(() => fields, place, save, merge), more, fields.node, h("p", { class: "actions" },
      h("button", { class: "primary" }, isNew ? "Create" : "Save"),
      link("Cancel", isNew ? home(collection) : to("item", collection, id), { class: "button" }))))];
}

function keyForm(act) {
  const input = h("input", { id: "key", type: "password", autocomplete: "off", "aria-describedby": "hint-key", required: true, title: "A key has no spaces",
    pattern: "\\s*[!-~]+\\s*" });
  return form(() => [signIn(input.value.trim()), act()], {}, h("div", { class: "field" }, h("label", { for: "key" }, "API key or token"), input,
    h("p", { class: "hint", id: "hint-key" }, "It is kept for this tab, until it is closed.")), h("p", { class: "actions" }, h("button", { class: "primary" }, "Sign in")));
}
const signInForm = (said) => [heading("Sign in"), h("div", { class: "edit" }, said, keyForm(route))];
const VIEWS = { "": overview, list, item, edit, new: (collection, id, query) => edit(collection, id, query, true) };
// Show the view that the address names. Focus stays where it is if only the query is another one.
async function route() {
  const path = location.hash.split("?")[0];
  const focused = view.path === path && document.activeElement.id;
  view.requests?.abort();
  const mine = (view = { path, requests: new AbortController() });
  const waiting = setTimeout(() => (at("status").textContent = "Loading …"), 300);
  let [nodes, collection] = [];
  try {
    const [verb, name, id] = path.slice(2).split("/").map(decodeURIComponent);
    await load();
    collection = collections.get(name);
    if (!own(VIEWS, verb) || Boolean(verb) !== Boolean(collection)) throw new Error("There is no such page");
    nodes = await VIEWS[verb](collection, id, new URLSearchParams(location.hash.slice(path.length)));
  } catch (problem) {
    const said = (problem.status !== 401 || key()) && alert(problem, problem.status !== 401 && button("Try again", route));
    if (problem.status === 401 && view === mine) signIn("");
    nodes = problem.status === 401 ? signInForm(said) : [heading("This is not possible"), said];
  }
  clearTimeout(waiting);
  if (view === mine) show(nodes, collection, focused);
}

function show(nodes, collection, focused = "") {
  at("main").replaceChildren(...nodes.flat(Infinity).filter(Boolean));
  const found = at("main").querySelector(":scope > .scroll caption, :scope > .quiet");
  [at("status").textContent, notice] = [notice || found?.textContent || "", ""];
  const trail = [link(title(), "#/"), ...(collection ? [link(words(collection.name), home(collection))] : [])];
  at("trail").replaceChildren(...trail.map((each) => h("li", {}, each)));
  const session = key() ? button("Sign out", () => [signIn(""), route()]) : button("Sign in", () => show(signInForm()));
  at("session").replaceChildren(...(scheme() ? [session] : []));
  document.title = [at("main").querySelector("h1").textContent, title()].join(" · ");
  (at(focused || "key") ?? at("main").querySelector("h1")).focus({ preventScroll: true });
  if (!["q", "value"].includes(focused) && !/^sort-/.test(focused)) scrollTo(0, 0);
}

addEventListener("beforeunload", (event) => view.isDirty && event.preventDefault());
addEventListener("hashchange", ({ oldURL }) => (!view.isDirty || confirm("Leave without saving?") ? route() : window.history.replaceState(null, "", oldURL)));
document.querySelector(".skip").addEventListener("click", (event) => [event.preventDefault(), at("main").focus()]);
await route();

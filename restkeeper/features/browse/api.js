// The service as its document describes it, and requests to it.
const HERE = new URL(".", document.baseURI); // what the page itself reads is beside it
const BASE = new URL(HERE.href.replace(/\/_\/$/, "/")); // of the service, also below a prefix
const KEY = `restkeeper.key ${BASE}`;
const VALUES = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/; // numbers of JSON
const LABELS = ["name", "title", "label", "email", "url"]; // fields by which an item is shown, if it has one
export const HUGE = 2 ** 20; // characters: a text that may have as many has no bound of its own
let [whole, description, scopes] = []; // the document of the service, it with whole paths, and the scopes of the caller

export const collections = new Map();
export const title = () => description?.info.title ?? "Browse";
export const meanings = () => description["x-operators"]; // the words of the operators of filters
export const scheme = () => ["ApiKey", "Bearer"].find((name) => own(description?.components.securitySchemes, name));
export const key = () => sessionStorage.getItem(KEY);
export const signIn = (value) => [sessionStorage.setItem(KEY, value), (scopes = undefined)];
// JSON whose numbers stay as they are written, also those that a double cannot hold.
export const parse = (json) => JSON.parse(json, (name, value, context) =>
  typeof value === "number" && context && String(value) !== context.source ? JSON.rawJSON(context.source) : value);
export const number = (value) => (VALUES.test(value) ? JSON.rawJSON(value) : value);
export const isObject = (value) => typeof value === "object" && value !== null && !JSON.isRawJSON(value);
export const text = (value) => (isObject(value) ? JSON.stringify(value, null, 2) : String(value?.rawJSON ?? value ?? ""));
export const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export const own = (object, name) => (isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined);
// The fields that differ, and what makes one object of the other (RFC 7396).
export const differing = (before, after) => Object.keys({ ...before, ...after }).filter((name) => !same(own(before, name), own(after, name)));
export const patch = (before, after) => ([before, after].every((each) => isObject(each) && !Array.isArray(each))
  ? Object.fromEntries(differing(before, after).map((name) => [name, patch(own(before, name), own(after, name))])) : after ?? null);
const credential = () => (!key() || !description ? {} : scheme() === "ApiKey" ? { "X-API-Key": key() } : { Authorization: `Bearer ${key()}` });
// Send a request to a path of the document, or an address in a response. Throws problems, as errors.
export async function send(method, address, { body, signal, ...more } = {}) {
  const headers = { Accept: "application/json", ...(body && { "Content-Type": "application/json" }), ...credential(), ...more };
  const sent = { method, body: body && JSON.stringify(body), signal, headers, credentials: "omit" };
  const [{ ok, status, headers: received }, content] = await fetch(new URL(address, BASE), sent).then(async (reply) => [reply, await reply.text()])
    .catch(() => Promise.reject(new Error("The service cannot be reached")));
  const data = content && /json/.test(received.get("Content-Type")) ? parse(content) : {};
  if (ok) return { data, headers: received };
  const message = [data.title ?? `The status is ${status}`, data.detail].filter(Boolean).join(": ");
  throw Object.assign(new Error(message), { status, errors: data.errors });
}
// Act when there are events in the feed (server-sent events), until the signal; a stream that ends goes on after a while.
export async function follow(address, signal, act) {
  for (let last; !signal.aborted; await new Promise((done) => setTimeout(done, 3000))) {
    const headers = { Accept: "text/event-stream", ...credential(), ...(last && { "Last-Event-ID": last }) };
    const { body, status } = await fetch(new URL(address, BASE), { headers, signal, credentials: "omit" }).catch(() => ({}));
    if (status >= 400 && status < 500) return;
    const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let [rest, part] = [""]; (part = await reader?.read().catch(() => {}))?.value; ) {
      const blocks = (rest + part.value).split("\n\n");
      rest = blocks.pop();
      last = /^id: (.*)$/m.exec(blocks.at(-1))?.[1] ?? last;
      if (blocks.some((each) => /^data: /m.test(each))) act();
    }
  }
}
export const links = (headers) => Object.fromEntries(
  [...(headers.get("Link") ?? "").matchAll(/<([^>]*)>; rel="([\w-]+)"/g)].map(([, target, rel]) => [rel, target]));
// A part of the document, where it is a reference or can also be null.
export function resolved(part = {}) {
  if (part.$ref) return resolved(part.$ref.split("/").slice(1).reduce((found, name) => found[name], description));
  const [only, ...others] = (part.anyOf ?? []).filter(({ type }) => type !== "null").map(resolved);
  return only && !others.length ? { ...only, ...part, type: [only.type, "null"] } : part;
}
export const isNullable = ({ type, enum: values }) => [type].flat().includes("null") || Boolean(values?.includes(null));
export const kindOf = ({ type } = {}, kinds = [type ?? []].flat().filter((each) => each !== "null")) => (kinds.length === 1 ? kinds[0] : "any");
const schemaOf = (holder) => holder && resolved(resolved(holder).content["application/json"].schema);
export const isLong = ({ maxLength } = {}, least) => maxLength > least && maxLength < HUGE;
// Whether the caller has a scope, and whether there is an operation that it may call.
export const holds = (scope) => !scope || scopes.has(scope) || scopes.has("admin");
export const may = (operation) => Boolean(operation) && holds(operation["x-required-scope"]);

const pathFor = (path, id) => path.replace(/^\//, "").replace("{id}", encodeURIComponent(text(id)));

class Collection {
  constructor(name, path, many, one) {
    const [create, update, returned] = [many?.post, one.put ?? one.patch, schemaOf(one.get.responses[200])];
    const parameters = (many ?? one).get.parameters.map(resolved);
    const schema = (wanted) => parameters.find((each) => each.name === wanted)?.schema;
    const values = (wanted) => resolved(schema(wanted)?.items).enum ?? [];
    Object.assign(this, { name, path, read: (many ?? one).get, create, update, remove: one.delete, isSingle: !many, method: one.put ? "PUT" : "PATCH" });
    const [all, isRead] = [Object.entries(returned.properties ?? {}), ([, part]) => holds(resolved(part)["x-readable-by"])];
    // Those that the caller may read, and the others, which are not there for it.
    [this.fields, this.unread] = [all.filter(isRead), all.filter((each) => !isRead(each))].map(Object.fromEntries);
    this.id = returned["x-id"] ?? "id"; // the name of the field
    [this.newSchema, this.changedSchema] = [create, update].map((each) => schemaOf(each?.requestBody));
    const isKnown = (field) => !own(this.unread, field.replace("-", "").split(".")[0]);
    [this.sortable, this.canSearch] = [values("sort").filter(isKnown), parameters.some((each) => each.name === "q")];
    this.limit = Math.min(20, schema("limit")?.maximum ?? 20);
    this.embeds = values("embed").filter((field) => own(this.fields, field.split(".")[0])).slice(0, schema("embed")?.maxItems);
    this.filters = new Map(); // by field, by operator: the schema of the value
    for (const { name, schema: value } of parameters) {
      const [, field, operator] = /^(?!(?:aggregate|fields|limit|sort|where)\[)([^[]+)\[(\w+)\]$/.exec(name) ?? [];
      if (field && isKnown(field)) this.filters.set(field, { eq: schema(field), ...this.filters.get(field), [operator]: value });
    }
    const isLabel = ([field, each]) => kindOf(each) === "string" && field !== this.id && !each.format && !each.enum && !each["x-references"];
    this.label = LABELS.find((field) => own(this.fields, field))
      ?? Object.entries(this.fields).find(isLabel)?.[0] ?? this.id;
  }

  address = (id) => (this.isSingle ? this.path : pathFor(`${this.path}/{id}`, id));
  labelOf = (item) => (this.isSingle ? this.name : [this.label, ...LABELS, this.id].map((name) => text(own(item, name))).find(Boolean) ?? "").slice(0, 80);
  // The parameters that find items by a text: in the field by which they are shown, or else in all that is searched.
  matching(typed) {
    const operator = ["like", !this.canSearch && "starts"].find((each) => this.filters.get(this.label)?.[each]);
    return operator ? { [`${this.label}[${operator}]`]: typed } : this.canSearch ? { q: typed } : {};
  }
  // The actions of an item, or the functions of the collection: what else can be posted below its path.
  actions(id) {
    const above = `/${this.path}/${id === undefined || this.isSingle ? "" : "{id}/"}`;
    const isOne = (path, { get, post }) => path.startsWith(above) && !/[/{]/.test(path.slice(above.length)) && !get && may(post);
    return Object.entries(description.paths).filter(([path, methods]) => isOne(path, methods)).map(([path, { post }]) => (
      { name: path.slice(above.length), about: post.description.split("\n\n")[0], schema: schemaOf(post.requestBody), path: pathFor(path, id) }));
  }
  // The lists of items that refer to one of this collection: of which collection, by which field, and where.
  get referring() {
    return Object.entries(description.paths).flatMap(([path, { get }]) => {
      const [name] = path.startsWith(`/${this.path}/{id}/`) && get ? get.tags : [];
      const given = name && decodeURIComponent(path.split("/").pop()).slice(name.length + 1) || undefined;
      const of = may(get) && collections.get(name);
      const among = (fields = {}) => Object.keys(fields).find((each) => fields[each]["x-references"] === this.name);
      const field = given ?? among(of?.fields);
      return of && !own(of.unread, field ?? among(of.unread)) ? [{ of, field, path: (id) => pathFor(path, id) }] : [];
    });
  }
}
// Read the document, once, and the scopes of the caller.
export async function load() {
  if (!JSON.rawJSON) throw new Error("This browser rounds long numbers: please use a newer one");
  if (whole && scopes) return;
  description = whole ??= (await send("GET", new URL("openapi.json", HERE))).data;
  scopes = new Set((await send("GET", new URL("browse/scopes", HERE))).data);
  readCollections(whole); // by what the caller may read
}

function readCollections(document) {
  const prefixOf = ({ servers = document.servers }) => /\/api\/v\d+$/.exec(servers[0].url)?.[0] ?? "";
  const paths = Object.entries(document.paths).map(([path, item]) => [prefixOf(item) + path, item]);
  description = { ...document, paths: Object.fromEntries(paths) };
  const nameOf = (path) => decodeURIComponent(/^\/(?:api\/v\d+\/([^/{}]+)|(_\/[^/{}]+))$/.exec(path)?.slice(1).join("") ?? "");
  const pathOf = (name) => name && Object.keys(description.paths).find((path) => nameOf(path) === name);
  const events = pathOf("_/events") ?? pathOf("events"); // below /_/ if a collection is called so
  const feed = description.paths[events]?.get;
  for (const name of description.tags.map((tag) => tag.name).filter(pathOf)) {
    const [path, many] = [pathOf(name), description.paths[pathOf(name)]];
    const isSingle = many.get?.operationId.startsWith("read_");
    const one = isSingle ? many : description.paths[`${path}/{id}`];
    if (!many.get || !one?.get) continue;
    const isKnown = feed?.parameters.find((each) => each.name === "collection").schema.items.enum.includes(name);
    const made = new Collection(name, path.slice(1), isSingle ? undefined : many, one);
    collections.set(name, Object.assign(made, { feed: isKnown && events.slice(1) }));
  }
}

// The service as its document describes it, and requests to it.

const BASE = new URL(".", document.baseURI); // of the service, also below a prefix
const KEY = `restkeeper.key ${BASE}`;
const VALUES = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/; // numbers of JSON
const exact = JSON.rawJSON ?? Number;
const lacking = new Set(); // the scopes for which requests were refused
let description;

export const collections = new Map();
export const title = () => description.info.title;
export const scheme = () => ["ApiKey", "Bearer"].find((name) => own(description?.components.securitySchemes, name));
export const key = () => sessionStorage.getItem(KEY);
export const signIn = (value) => [lacking.clear(), sessionStorage.setItem(KEY, value)];

// JSON whose numbers stay as they are written, also those that a double cannot hold.
export const parse = (json) => JSON.parse(json, (name, value, context) =>
  typeof value === "number" && context && String(value) !== context.source ? exact(context.source) : value);
export const number = (value) => (VALUES.test(value) ? exact(value) : value);
export const isObject = (value) => typeof value === "object" && value !== null && !JSON.isRawJSON?.(value);
export const text = (value) => (isObject(value) ? JSON.stringify(value, null, 2) : String(value?.rawJSON ?? value ?? ""));
export const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export const own = (object, name) => (isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined);

// Send a request to a path of the document, or an address in a response. Throws problems, as errors.
export async function send(method, address, { body, signal, ...more } = {}) {
  const credential = !key() ? {} : scheme() === "ApiKey" ? { "X-API-Key": key() } : { Authorization: `Bearer ${key()}` };
  const headers = { Accept: "application/json", ...(body && { "Content-Type": "application/json" }), ...credential, ...more };
  const response = await fetch(new URL(address, BASE), { method, body, signal, headers, credentials: "omit" })
    .catch(() => Promise.reject(new Error("The service cannot be reached")));
  const received = await response.text();
  const data = /json/.test(response.headers.get("Content-Type")) ? parse(received) : {};
  if (response.ok) return { data, headers: response.headers };
  lacking.add(/insufficient_scope.*scope="([^"]+)"/.exec(response.headers.get("WWW-Authenticate"))?.[1]);
  const message = [data.title ?? `The status is ${response.status}`, data.detail].filter(Boolean).join(": ");
  throw Object.assign(new Error(message), { status: response.status, errors: data.errors ?? [] });
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
export function kindOf({ type } = {}) {
  const [kind = "any", ...others] = [type ?? []].flat().filter((each) => each !== "null");
  return others.length ? "any" : kind;
}
const schemaOf = (holder) => holder && resolved(resolved(holder).content["application/json"].schema);

// Whether an operation exists, and was not refused for its scope.
export const may = (operation) => Boolean(operation) && !lacking.has(operation["x-required-scope"] ?? "");

class Collection {
  constructor(name, path, many, one) {
    const [create, update, returned] = [many?.post, one.put ?? one.patch, schemaOf(one.get.responses[200])];
    const parameters = (many ?? one).get.parameters.map((each) => [each.$ref?.split("/").pop() ?? "", resolved(each)]);
    const values = (wanted) => resolved(parameters.find(([, each]) => each.name === wanted)?.[1].schema.items).enum ?? [];
    Object.assign(this, { name, path, create, update, remove: one.delete, isSingle: !many, method: one.put ? "PUT" : "PATCH" });
    this.fields = (returned.anyOf ? resolved(returned.anyOf[0]) : returned).properties ?? {};
    this.newSchema = schemaOf(create?.requestBody);
    this.changedSchema = schemaOf(update?.requestBody);
    this.sortable = values("sort");
    this.canSearch = parameters.some(([, each]) => each.name === "q");
    this.embeds = values("embed").filter((field) => own(this.fields, field.split(".")[0])).slice(0, 10);
    this.filters = new Map(); // by field, by operator: the schema of the value
    for (const [component, { name: filter, schema }] of parameters.filter(([each]) => each.split(".").length > 2)) {
      const [, field, operator = "eq"] = /^([^[]+)(?:\[(\w+)\])?$/.exec(filter);
      this.filters.set(field, { ...this.filters.get(field), [operator]: schema });
    }
    const isLabel = ([field, schema]) =>
      kindOf(schema) === "string" && field !== "id" && !schema.format && !schema.enum && !schema["x-references"];
    this.label = ["name", "title", "label", "email"].find((field) => own(this.fields, field))
      ?? Object.entries(this.fields).find(isLabel)?.[0] ?? "id";
  }

  address = (id) => (this.isSingle ? this.path : `${this.path}/${encodeURIComponent(text(id))}`);
  labelOf = (item) => (this.isSingle ? this.name : text(own(item, this.label)) || text(own(item, "id"))).slice(0, 80);

  // The lists of items that refer to one of this collection: of which collection, by which field, and where.
  get referring() {
    return Object.entries(description.paths).flatMap(([path, { get }]) => {
      const [name, given] = path.startsWith(`/${this.path}/{id}/`) ? path.split("/").pop().split(".") : [];
      const of = collections.get(name);
      if (!of || !get?.tags.includes(name) || !may(get)) return [];
      const field = given ?? Object.keys(of.fields).find((each) => of.fields[each]["x-references"] === this.name);
      return [{ of, field, path: (id) => path.slice(1).replace("{id}", encodeURIComponent(text(id))) }];
    });
  }
}

export async function load() {
  description = (await send("GET", "openapi.json")).data;
  const pathOf = (name) => Object.keys(description.paths).find((path) => /^\/api\/v\d+\/[^/{}]+$/.test(path) && path.endsWith(`/${name}`));
  const feed = description.paths[pathOf("events")]?.get;
  for (const name of description.tags.map((tag) => tag.name).filter(pathOf)) {
    const [path, many] = [pathOf(name), description.paths[pathOf(name)]];
    const isSingle = many.get?.operationId.startsWith("read_");
    const one = isSingle ? many : description.paths[`${path}/{id}`];
    if (!many.get || !one?.get) continue;
    collections.set(name, new Collection(name, path.slice(1), isSingle ? undefined : many, one));
    const known = feed?.parameters.find((each) => each.name === "collection").schema.items.enum.includes(name);
    collections.get(name).feed = known && pathOf("events").slice(1);
  }
}

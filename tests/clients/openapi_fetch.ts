import createClient from "openapi-fetch";
import type { components, paths } from "./generated/openapi_fetch";

type Schemas = components["schemas"];

export async function run(baseUrl: string) {
  const api = createClient<paths>({ baseUrl, querySerializer: { object: { style: "form", explode: true } } });
  const { data: listed = [] } = await api.GET("/products");
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const { data: one } = await api.GET("/products/{id}", { params: { path: { id: listed[0]?.id ?? "" } } });
  const { data: created } = await api.POST("/products", { body: { name: "Shelf", price: 5 } });
  const { data: changed } = await api.PATCH("/products/{id}", {
    params: { path: { id: created?.id ?? "" } },
    body: { stock: 3 },
  });
  const { data: found = [] } = await api.GET("/products", {
    params: { query: { "price[gte]": 20, sort: ["-price", "name"] } },
  });
  const { error } = await api.POST("/products", { body: { name: "" } });
  const { data: events = [] } = await api.GET("/events");
  const event = events[0];
  const some = await api.GET("/products", { params: { query: { fields: ["name"] } } });
  const names = some.data as Pick<Schemas["Product"], "name">[] | undefined;
  const embedded = await api.GET("/results", { params: { query: { embed: ["keeper"] } } });
  type Embedded = Omit<Schemas["Result"], "keeper"> & Pick<Schemas["ResultEmbedded"], "keeper">;
  const [{ keeper, level }] = embedded.data as unknown as Embedded[];
  const sums = { count: ["status" as const], "aggregate[sum]": ["price" as const], "price[gte]": 20 };
  const { data: groups } = await api.GET("/products", { params: { query: sums } });
  const by_keeper = { "keeper.email": "ada@example.org", "keeper.email[like]": "ADA" };
  const { data: filtered = [] } = await api.GET("/results", { params: { query: { by_keeper } } });
  const { data: path = [] } = await api.GET("/results", {
    params: { query: { fields: ["level", "keeper.email"], sort: ["-keeper.email", "-level"] } },
  });
  const options = { "fields[results.keeper]": ["level" as const], "sort[results.keeper]": ["level" as const] };
  const which = { "limit[results.keeper]": 1, "where[results.keeper]": "(level[gte]=2)" };
  const users = await api.GET("/users", { params: { query: { embed: ["results.keeper"], ...options, ...which } } });
  const chosen = users.data as unknown as { "results.keeper": unknown }[];
  const user = { email: "ada@example.org", name: "Ada" };
  const { data: upserted } = await api.POST("/users", { params: { query: { on_conflict: "email" } }, body: user });
  return {
    first,
    price: one?.price,
    created: [created?.name, created?.status],
    found: found.map((each) => each.name),
    problem: [error?.status, error?.title, error?.errors?.[0]?.pointer],
    stock: changed?.stock,
    names: names?.[0],
    keeper: [level, typeof keeper === "object" && keeper?.email],
    event: event?.type === "product.created" && event.data.name,
    groups,
    filtered: filtered.map((each) => each.level),
    path: path[0],
    chosen: chosen[0]["results.keeper"],
    upserted: upserted?.name,
  };
}

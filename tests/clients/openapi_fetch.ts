import createClient from "openapi-fetch";
import type { components, paths } from "./generated/openapi_fetch";

type Schemas = components["schemas"];

export async function run(baseUrl: string) {
  const api = createClient<paths>({ baseUrl });
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
  };
}

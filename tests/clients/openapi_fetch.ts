import createClient from "openapi-fetch";
import type { paths } from "./generated/openapi_fetch";

export async function run(baseUrl: string) {
  const api = createClient<paths>({ baseUrl });
  const { data: listed = [] } = await api.GET("/products");
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const { data: one } = await api.GET("/products/{id}", { params: { path: { id: listed[0]?.id ?? "" } } });
  const { data: created } = await api.POST("/products", { body: { name: "Shelf", price: 5 } });
  const { data: found = [] } = await api.GET("/products", {
    params: { query: { "price[gte]": 20, sort: ["-price", "name"] } },
  });
  const { error } = await api.POST("/products", { body: { name: "" } });
  const { data: events = [] } = await api.GET("/events");
  const event = events[0];
  return {
    first,
    price: one?.price,
    created: [created?.name, created?.status],
    found: found.map((each) => each.name),
    problem: [error?.status, error?.title, error?.errors?.[0]?.pointer],
    event: event?.type === "product.created" && event.data.name,
  };
}

import { createProduct, listEvents, listProducts, readProduct } from "./generated/hey_api";
import { client } from "./generated/hey_api/client.gen";

export async function run(baseUrl: string) {
  client.setConfig({ baseUrl });
  const { data: listed = [] } = await listProducts();
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const { data: one } = await readProduct({ path: { id: listed[0]?.id ?? "" } });
  const { data: created } = await createProduct({ body: { name: "Shelf", price: 5 } });
  const { data: found = [] } = await listProducts({ query: { "price[gte]": 20, sort: ["-price", "name"] } });
  const { error } = await createProduct({ body: { name: "" } });
  const { data: events = [] } = await listEvents();
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

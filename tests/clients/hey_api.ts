import type { Product, Result, ResultEmbedded } from "./generated/hey_api";
import {
  createProduct,
  listEvents,
  listProducts,
  listResults,
  mergeProduct,
  readProduct,
} from "./generated/hey_api";
import { client } from "./generated/hey_api/client.gen";

export async function run(baseUrl: string) {
  client.setConfig({ baseUrl });
  const { data: listed = [] } = await listProducts();
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const { data: one } = await readProduct({ path: { id: listed[0]?.id ?? "" } });
  const { data: created } = await createProduct({ body: { name: "Shelf", price: 5 } });
  const { data: changed } = await mergeProduct({ path: { id: created?.id ?? "" }, body: { stock: 3 } });
  const { data: found = [] } = await listProducts({ query: { "price[gte]": 20, sort: ["-price", "name"] } });
  const { error } = await createProduct({ body: { name: "" } });
  const { data: events = [] } = await listEvents();
  const event = events[0];
  const names = (await listProducts({ query: { fields: ["name"] } })).data as Pick<Product, "name">[] | undefined;
  const embedded = await listResults({ query: { embed: ["keeper"] } });
  const [result] = embedded.data as unknown as (Omit<Result, "keeper"> & Pick<ResultEmbedded, "keeper">)[];
  const { keeper, level } = result;
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

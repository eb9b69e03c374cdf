import type { Product, Result, ResultEmbedded } from "./generated/hey_api";
import {
  createProduct,
  createUser,
  listEvents,
  listProducts,
  listResults,
  listUsers,
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
  const { data: groups } = await listProducts({ query: { count: ["status"], "aggregate[sum]": ["price"], "price[gte]": 20 } });
  const by_keeper = { "keeper.email": "ada@example.org", "keeper.email[like]": "ADA" };
  const { data: filtered = [] } = await listResults({ query: { by_keeper } });
  const { data: path = [] } = await listResults({
    query: { fields: ["level", "keeper.email"], sort: ["-keeper.email", "-level"] },
  });
  const options = { "fields[results.keeper]": ["level" as const], "sort[results.keeper]": ["level" as const] };
  const which = { "limit[results.keeper]": 1, "where[results.keeper]": "(level[gte]=2)" };
  const users = await listUsers({ query: { embed: ["results.keeper"], ...options, ...which } });
  const chosen = users.data as unknown as { "results.keeper": unknown }[];
  const user = { email: "ada@example.org", name: "Ada" };
  const { data: upserted } = await createUser({ query: { on_conflict: "email" }, body: user });
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

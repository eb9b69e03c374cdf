import type { Product, Result, ResultEmbedded } from "./generated/orval";
import {
  ProductField,
  ProductSortKey,
  ResultField,
  ResultOwnField,
  ResultOwnSortKey,
  ResultSortKey,
  createProduct,
  createUser,
  listEvents,
  listProducts,
  listResults,
  listUsers,
  mergeProduct,
  readProduct,
} from "./generated/orval";

// Its functions return any status; their types tell by it what the data is.
function must<Response extends { status: number }>(response: Response) {
  if (response.status !== 200) throw new Error(`the status is ${response.status}`);
  return response as Extract<Response, { status: 200 }>;
}

export async function run(baseUrl: string) {
  const { data: listed } = must(await listProducts());
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const { data: one } = must(await readProduct(listed[0]?.id ?? ""));
  const { data: created } = must(await createProduct({ name: "Shelf", price: 5 }));
  const { data: changed } = must(await mergeProduct(created.id, { stock: 3 }));
  const sort = [ProductSortKey.price_descending, ProductSortKey.name];
  const { data: found } = must(await listProducts({ "price[gte]": 20, sort }));
  const refused = await createProduct({ name: "" });
  const error = refused.status === 422 ? refused.data : undefined;
  const { data: events } = must(await listEvents());
  const event = events[0];
  const some = must(await listProducts({ fields: [ProductField.name] }));
  const names = some.data as Pick<Product, "name">[];
  const embedded = must(await listResults({ embed: ["keeper"] }));
  const [result] = embedded.data as unknown as (Omit<Result, "keeper"> & Pick<ResultEmbedded, "keeper">)[];
  const { keeper, level } = result;
  const sums = { count: ["status" as const], "aggregate[sum]": ["price" as const], "price[gte]": 20 };
  const { data: groups } = must(await listProducts(sums));
  const or = ["(keeper.email=ada@example.org)"];
  const { data: filtered } = must(await listResults({ or }));
  const fields = [ResultField.level, ResultField.keeper_dot_email];
  const keys = [ResultSortKey.keeper_dot_email_descending, ResultSortKey.level_descending];
  const { data: path } = must(await listResults({ fields, sort: keys }));
  const options = { "fields[results.keeper]": [ResultOwnField.level], "sort[results.keeper]": [ResultOwnSortKey.level] };
  const which = { "limit[results.keeper]": 1, "where[results.keeper]": "(level[gte]=2)" };
  const users = must(await listUsers({ embed: ["results.keeper"], ...options, ...which }));
  const chosen = users.data as unknown as { "results.keeper": unknown }[];
  const user = { email: "ada@example.org", name: "Ada" };
  const { data: upserted } = must(await createUser(user, { on_conflict: "email" }));
  return {
    first,
    price: one.price,
    created: [created.name, created.status],
    found: found.map((each) => each.name),
    problem: [error?.status, error?.title, error?.errors?.[0]?.pointer],
    stock: changed.stock,
    names: names[0],
    keeper: [level, typeof keeper === "object" && keeper?.email],
    event: event?.type === "product.created" && event.data.name,
    groups,
    filtered: filtered.map((each) => each.level),
    path: path[0],
    chosen: chosen[0]["results.keeper"],
    upserted: upserted.name,
  };
}

import type { Product, Result, ResultEmbedded } from "./generated/orval";
import {
  ProductField,
  ProductSortKey,
  createProduct,
  listEvents,
  listProducts,
  listResults,
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
  };
}

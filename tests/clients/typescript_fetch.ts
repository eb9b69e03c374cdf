import type { Product, Result, ResultEmbedded } from "./generated/typescript_fetch";
import {
  Configuration,
  EventsApi,
  ProblemFromJSON,
  ProductField,
  ProductSortKey,
  ProductsApi,
  ResponseError,
  ResultField,
  ResultOwnField,
  ResultOwnSortKey,
  ResultSortKey,
  ResultsApi,
  UsersApi,
} from "./generated/typescript_fetch";

export async function run(basePath: string) {
  const configuration = new Configuration({ basePath });
  const products = new ProductsApi(configuration);
  const listed = await products.listProducts();
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const one = await products.readProduct({ id: listed[0]?.id ?? "" });
  const created = await products.createProduct({ productInput: { name: "Shelf", price: 5 } });
  const changed = await products.mergeProduct({ id: created.id, productPatch: { stock: 3 } });
  const sort = new Set([ProductSortKey.price_descending, ProductSortKey.name]);
  const found = await products.listProducts({ priceGte: 20, sort });
  const refused = await products.createProduct({ productInput: { name: "" } }).catch((error: ResponseError) => error);
  const error = refused instanceof ResponseError ? ProblemFromJSON(await refused.response.json()) : undefined;
  const events = await new EventsApi(configuration).listEvents();
  const event = events[0];
  const some = await products.listProductsRaw({ fields: [ProductField.name] });
  const names: Pick<Product, "name">[] = await some.raw.json();
  const embedded = await new ResultsApi(configuration).listResultsRaw({ embed: ["keeper"] });
  const [result]: (Omit<Result, "keeper"> & Pick<ResultEmbedded, "keeper">)[] = await embedded.raw.json();
  const { keeper, level } = result;
  const sums = { count: new Set(["status" as const]), aggregateSum: new Set(["price" as const]), priceGte: 20 };
  const groups = await (await products.listProductsRaw(sums)).raw.json();
  const results = new ResultsApi(configuration);
  const byKeeper = { "keeper.email": "ada@example.org", "keeper.email[like]": "ADA" };
  const filtered = await results.listResults({ byKeeper });
  const fields = [ResultField.level, ResultField.keeper_dot_email];
  const keys = new Set([ResultSortKey.keeper_dot_email_descending, ResultSortKey.level_descending]);
  const path = await (await results.listResultsRaw({ fields, sort: keys })).raw.json();
  const options = { fieldsResultsKeeper: [ResultOwnField.level], sortResultsKeeper: [ResultOwnSortKey.level] };
  const which = { limitResultsKeeper: 1, whereResultsKeeper: "(level[gte]=2)" };
  const users = new UsersApi(configuration);
  const chosen = await (await users.listUsersRaw({ embed: ["results.keeper"], ...options, ...which })).raw.json();
  const userInput = { email: "ada@example.org", name: "Ada" };
  const upserted = await users.createUser({ onConflict: "email", userInput });
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

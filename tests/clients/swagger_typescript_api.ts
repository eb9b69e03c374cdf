import {
  Api,
  HttpResponse,
  Problem,
  Product,
  ProductField,
  ProductSortKey,
  Result,
  ResultEmbedded,
  ResultField,
  ResultOwnField,
  ResultOwnSortKey,
  ResultSortKey,
} from "./generated/swagger_typescript_api/Api";

export async function run(baseUrl: string) {
  const api = new Api({ baseUrl });
  const { data: listed } = await api.products.listProducts();
  const first: string | undefined = listed[0]?.name;
  // @ts-expect-error: a product has no such field
  listed[0]?.nmae;
  const { data: one } = await api.products.readProduct(listed[0]?.id ?? "");
  const { data: created } = await api.products.createProduct({ name: "Shelf", price: 5 });
  const { data: changed } = await api.products.mergeProduct(created.id, { stock: 3 });
  const sort = [ProductSortKey.PriceDescending, ProductSortKey.Name];
  const { data: found } = await api.products.listProducts({ "price[gte]": 20, sort });
  const refused = await api.products.createProduct({ name: "" }).catch((error: HttpResponse<null, Problem>) => error);
  const { error } = refused;
  const { data: events } = await api.events.listEvents();
  const event = events[0];
  const some = await api.products.listProducts({ fields: [ProductField.Name] });
  const names = some.data as Pick<Product, "name">[];
  const embedded = await api.results.listResults({ embed: ["keeper"] });
  const [result] = embedded.data as unknown as (Omit<Result, "keeper"> & Pick<ResultEmbedded, "keeper">)[];
  const { keeper, level } = result;
  const sums = { count: ["status" as const], "aggregate[sum]": ["price" as const], "price[gte]": 20 };
  const { data: groups } = await api.products.listProducts(sums);
  const or = ["(keeper.email=ada@example.org)"];
  const { data: filtered } = await api.results.listResults({ or });
  const fields = [ResultField.Level, ResultField.KeeperDotEmail];
  const keys = [ResultSortKey.KeeperDotEmailDescending, ResultSortKey.LevelDescending];
  const { data: path } = await api.results.listResults({ fields, sort: keys });
  const options = { "fields[results.keeper]": [ResultOwnField.Level], "sort[results.keeper]": [ResultOwnSortKey.Level] };
  const which = { "limit[results.keeper]": 1, "where[results.keeper]": "(level[gte]=2)" };
  const users = await api.users.listUsers({ embed: ["results.keeper"], ...options, ...which });
  const chosen = users.data as unknown as { "results.keeper": unknown }[];
  const user = { email: "ada@example.org", name: "Ada" };
  const { data: upserted } = await api.users.createUser(user, { on_conflict: "email" });
  return {
    first,
    price: one.price,
    created: [created.name, created.status],
    found: found.map((each) => each.name),
    problem: [error.status, error.title, error.errors?.[0]?.pointer],
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

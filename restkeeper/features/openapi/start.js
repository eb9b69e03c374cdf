// Shows /openapi.json, or with ?version=v2 /api/v2/openapi.json, with Swagger UI; where the version of /openapi.json is
// deprecated, it shows the newest current one instead. In the complete document every filter is a parameter, and every
// operation has the same errors and headers. To be shorter, the page shows each of these once.

const FILTER = /^#\/components\/parameters\/\w+(?:\.([\w.-]+)\.(\w+)|Paths-([\w.-]+))$/;
const CHOSEN = new URLSearchParams(location.search).get("version");
const METHODS = ["get", "post", "put", "patch", "delete"];

const operationsOf = (item) => METHODS.filter((method) => method in item).map((method) => [method, item[method]]);
const intersection = (sets) => sets.reduce((one, other) => one.filter((each) => other.includes(each)));
const code = (texts) => texts.map((text) => `\`${text}\``).join(", ");

// Replace the parameters of the filters by one table.
function withFoldedFilters(operation, components) {
  const rows = new Map(); // the fields that have a filter, by its operator and its meaning
  for (const { $ref } of operation.parameters ?? []) {
    const [, field, operator, root] = FILTER.exec($ref) ?? [];
    if (!field && !root) continue;
    const meaning = components[$ref.split("/").pop()].description.replace(`Items whose ${field} `, "");
    const filter = root ? "field.name" : operator === "eq" ? "field" : `field[${operator}]`;
    const row = `| \`${filter}\` | ${meaning} |`;
    rows.set(row, [...(rows.get(row) ?? []), field ?? root]);
  }
  if (!rows.size) return;
  const table = [...rows].map(([row, fields]) => `${row} ${fields.join(", ")} |`).join("\n");
  const filters = {
    name: "filters",
    in: "query",
    description: `Filters: \`price[gte]=10\` finds the items whose price is at least 10. Try \`{"name[like]": "a"}\`.\n\n| Filter | The field | Fields |\n| --- | --- | --- |\n${table}`,
    schema: { type: "object" }, // each member is sent as a parameter; by default it has none
  };
  const others = operation.parameters.filter(({ $ref }) => !FILTER.test($ref));
  operation.parameters = [...others, filters];
}

// List the common errors and headers of all responses once, at the top; of other errors show the meaning.
function withCommonResponsesOnce(document, operations) {
  const resolved = (response) => document.components.responses[response.$ref?.split("/").pop()] ?? response;
  const errors = intersection(operations.map(({ responses }) => Object.values(responses).map(({ $ref }) => $ref)));
  const all = operations.flatMap(({ responses }) => Object.values(responses).map(resolved));
  const headers = intersection(all.map((response) => Object.keys(response.headers ?? {})));
  const [first] = operations;
  const common = Object.entries(first.responses)
    .filter(([, { $ref }]) => errors.includes($ref))
    .map(([status, response]) => `${status} ${resolved(response).description}`);
  document.info.description += `\n\nEvery response has ${code(headers)}. Every operation can fail with: ${common.join(" ")}`;
  for (const operation of operations) {
    for (const [status, response] of Object.entries(operation.responses)) {
      const { description, content, headers: own, ...more } = resolved(response);
      if (errors.includes(response.$ref)) delete operation.responses[status];
      else if (status >= 400) operation.responses[status] = { description };
      else {
        const others = Object.entries(own ?? {}).filter(([name]) => !headers.includes(name));
        operation.responses[status] = { description, content, headers: Object.fromEntries(others), ...more };
      }
    }
  }
}

// Let the reader choose another version than the shown one, if there are several.
function offer(versions, shown) {
  const label = window.document.querySelector("#version");
  const select = label.querySelector("select");
  for (const [name, state] of versions) {
    select.add(new Option(state === "current" ? name : `${name} (${state})`, name, false, name === shown));
  }
  select.onchange = () => (location.search = `?version=${select.value}`);
  label.hidden = versions.length < 2;
}

function shown(document, address) {
  const operations = Object.values(document.paths).flatMap((item) => operationsOf(item).map(([, each]) => each));
  for (const operation of operations) withFoldedFilters(operation, document.components.parameters);
  withCommonResponsesOnce(document, operations);
  document.info.description += `\n\nThe whole document: [openapi.json](${address})`;
  return document;
}

window.onload = async () => {
  const addressOf = (version) => (version ? `api/${encodeURIComponent(version)}/openapi.json` : "openapi.json");
  const read = async (address) => (await fetch(address)).json();
  let address = addressOf(CHOSEN);
  let document = await read(address);
  const versions = Object.entries(document.info["x-versions"] ?? {}).filter(([, state]) => state !== "retired");
  const [newest] = versions.filter(([, state]) => state === "current").pop() ?? [];
  if (!CHOSEN && newest && document.info["x-version"].state === "deprecated") {
    address = addressOf(newest);
    document = await read(address);
  }
  offer(versions, document.info["x-version"]?.name);
  window.document.title = document.info.title;
  SwaggerUIBundle({
    spec: shown(document, address),
    dom_id: "#docs",
    deepLinking: true,
    docExpansion: "list",
    filter: true,
    defaultModelsExpandDepth: 0,
    validatorUrl: null,
    // Swagger UI looks up a component by the format of a list's items, and warns if there is none.
    plugins: [({ React }) => ({
      components: {
        JsonSchema_integer_int64: (props) => React.createElement(props.getComponent("JsonSchema_string"), props),
      },
    })],
  });
};

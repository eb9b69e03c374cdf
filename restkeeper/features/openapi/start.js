// Shows /openapi.json, or with ?version=v2 /api/v2/openapi.json, with Swagger UI; where the version of /openapi.json is
// deprecated, it shows the newest current one instead. In the complete document every filter is a parameter, and every
// operation has the same errors and headers. To be shorter, the page shows each of these once.

const FILTER = /^(?!(?:aggregate|fields|limit|sort|where)\[)([^[]+)\[(\w+)\]$/; // the others choose what is embedded, or add up
const CHOSEN = new URLSearchParams(location.search).get("version");
const METHODS = ["get", "post", "put", "patch", "delete"];

const operationsOf = (item) => METHODS.filter((method) => method in item).map((method) => [method, item[method]]);
const code = (texts) => texts.map((text) => `\`${text}\``).join(", ");

// Replace the parameters of the filters by one table. A field that can be filtered has operators.
function withFoldedFilters(operation, components) {
  const parameters = operation.parameters.map((each) => components[each.$ref?.split("/").pop()] ?? each);
  const fields = new Set(parameters.flatMap(({ name }) => FILTER.exec(name)?.[1] ?? []));
  const isFilter = ({ name, schema }) => fields.has(name) || FILTER.test(name) || schema?.patternProperties;
  const rows = new Map(); // the fields that have a filter, by its operator
  for (const { name, schema } of parameters.filter(isFilter)) {
    const [, field = name, operator] = FILTER.exec(name) ?? [];
    const filter = schema.patternProperties ? "field.name" : operator ? `field[${operator}]` : "field";
    rows.set(filter, [...(rows.get(filter) ?? []), field]);
  }
  if (!rows.size) return;
  const table = [...rows].map(([filter, names]) => `| \`${filter}\` | ${names.join(", ")} |`).join("\n");
  const paths = parameters.find(({ schema }) => schema?.patternProperties);
  const filters = {
    name: "filters",
    in: "query",
    description: `Filters: \`price[gte]=10\` finds the items whose price is at least 10; all are explained at the top. ${paths?.description ?? ""} Try \`{"name[like]": "a"}\`.\n\n| Filter | Fields |\n| --- | --- |\n${table}`,
    schema: { type: "object" }, // each member is sent as a parameter; by default it has none
  };
  operation.parameters = [...parameters.filter((each) => !isFilter(each)), filters];
}

// List the common errors and headers of all responses once, at the top; of other errors show the meaning.
function withCommonResponsesOnce({ info, components, "x-headers": headers }, operations) {
  const about = (response) => (components.responses[response.$ref?.split("/").pop()] ?? response).description;
  info.description += `\n\nResponses can have the headers ${code(Object.keys(headers))}. Every operation can fail with: ${about(operations[0].responses.default)}`;
  for (const { responses } of operations) {
    delete responses.default;
    for (const status of Object.keys(responses).filter((each) => each >= 400)) responses[status] = { description: about(responses[status]) };
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
  for (const operation of operations) {
    const scope = operation["x-required-scope"];
    if (scope) operation.description += `\n\nCredentials need the scope \`${scope}\`.`;
    withFoldedFilters(operation, document.components.parameters);
  }
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

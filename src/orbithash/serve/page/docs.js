// The API in readable form, from openapi.json: no script or style of another host.

import { byId, element } from "./dom.js";

let schemas = {};

async function showApi() {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`openapi.json: status ${response.status}`);
  const api = await response.json();
  schemas = api.components.schemas;
  byId("main").append(...api.info.description.trim().split("\n\n").map(paragraph));
  for (const [tag, operations] of operationsByTag(api.paths)) {
    byId("main").append(element("h2", {}, tag), ...operations.map(operationPanel));
  }
}

function operationsByTag(paths) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ ...operation, path, method: method.toUpperCase() });
    }
  }
  return groups;
}

function operationPanel(operation) {
  const { method, path, summary, description, parameters = [], requestBody, responses } = operation;
  const [bodyType, body] = Object.entries(requestBody?.content ?? {})[0] ?? [null, null];
  const success = Object.keys(responses).find((status) => status.startsWith("2"));
  const [resultType, result] = Object.entries(responses[success].content ?? {})[0] ?? [null, null];
  return element(
    "details",
    { class: "operation panel" },
    element("summary", {}, element("code", { class: "method" }, method), element("code", {}, path), element("span", { class: "faint" }, summary)),
    ...(description ?? "").split("\n\n").filter(Boolean).map(paragraph),
    ...section("Parameters", parameters.length ? parameterList(parameters) : null),
    ...section(`Body, ${bodyType}`, body ? fieldList(body.schema, { isRequest: true }) : null),
    ...section("Example", element("pre", {}, curl(operation, bodyType, body))),
    ...section(`Response ${success}, ${resultType ?? "empty"}`, result?.schema ? fieldList(result.schema) : null),
    ...section("Errors", element("dl", { class: "fields" }, ...errorRows(responses))),
  );
}

// Text between backticks is code.
const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

const paragraph = (text) => element("p", {}, ...withCode(text));

const section = (title, content) => (content ? [element("h3", {}, title), content] : []);

const row = (name, ...values) => [element("dt", {}, element("code", {}, name)), element("dd", {}, ...values)];

const parameterList = (parameters) =>
  element("dl", { class: "fields" }, ...parameters.flatMap((each) => row(each.name, ...factsOf(each.schema, each.required, each.description))));

function errorRows(responses) {
  const failures = Object.entries(responses).filter(([status]) => !status.startsWith("2"));
  return failures.flatMap(([status, { description }]) => row(status, description));
}

// The fields of a schema, and of the schemas it refers to, each once.
function fieldList(schema, { isRequest = false, seen = [] } = {}) {
  const { name, properties, required = [] } = resolve(schema);
  if (!properties || seen.includes(name)) return null;
  const rows = Object.entries(properties).flatMap(([field, each]) => {
    const nested = fieldList(each, { isRequest, seen: [...seen, name] });
    const facts = factsOf(each, isRequest && required.includes(field), each.description ?? resolve(each).description);
    return [...row(field, ...facts), ...(nested ? [nested] : [])];
  });
  return element("dl", { class: "fields" }, ...rows);
}

function factsOf(schema, isRequired, description) {
  const hasDefault = schema.default !== undefined && schema.default !== null;
  const facts = [typeOf(schema), isRequired ? "required" : null, hasDefault ? `default ${JSON.stringify(schema.default)}` : null];
  return withCode(`${facts.filter(Boolean).join(", ")}. ${description ?? ""}`);
}

function typeOf(schema) {
  if (schema.$ref) return "object";
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  return schema.format === "binary" || schema.contentMediaType ? "file" : (schema.type ?? "any");
}

// The schema behind a reference, a list or an optional value.
function resolve(schema) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return { name, ...schemas[name] };
  }
  if (schema.items) return resolve(schema.items);
  return schema.anyOf?.map(resolve).find((each) => each.properties) ?? schema;
}

function curl({ method, path, security, parameters = [] }, bodyType, body) {
  const address = new URL(`.${path.replaceAll(/\{\w+\}/g, "17")}`, location.href).href;
  const needed = parameters.filter((each) => each.in === "query" && each.required).map((each) => `${each.name}=…`);
  const parts = [`curl ${method === "GET" ? "" : `-X ${method} `}'${address}${needed.length ? `?${needed.join("&")}` : ""}'`];
  if (security && method === "DELETE") parts.push("-H \"Authorization: Bearer $ORBITHASH_KEY\"");
  if (bodyType === "multipart/form-data") parts.push("-F image=@photo.jpg");
  else if (body) parts.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(exampleOf(body))}'`);
  return parts.join(" \\\n  ");
}

function exampleOf({ examples, schema }) {
  const [named] = Object.values(examples ?? {});
  return named?.value ?? resolve(schema).examples?.[0] ?? {};
}

showApi().catch((error) => {
  byId("problem").hidden = false;
  byId("problem").textContent = `The description cannot be loaded (${error.message}).`;
});

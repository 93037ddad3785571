"use strict";
// The OpenAPI document as a page: no library, nothing from elsewhere.

const make = (tag, words, kind) => {
  const node = document.createElement(tag);
  if (words !== undefined) node.textContent = words;
  if (kind) node.className = kind;
  return node;
};

const words = (text) => (text || "").replaceAll("`", "");

const named = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(named).join(" or ");
  if (schema.type === "array") return `list of ${named(schema.items) || "values"}`;
  return schema.type || "any";
};

const table = (rows) => {
  const node = make("table");
  for (const cells of rows) {
    const row = node.appendChild(make("tr"));
    cells.forEach((words, at) => row.appendChild(make("td", words, at ? "" : "mono")));
  }
  return node;
};

const fields = (schema, document_) => {
  const found = schema?.$ref ? document_.components.schemas[named(schema)] : schema;
  if (!found?.properties) return make("p", named(schema), "quiet");
  const required = new Set(found.required || []);
  return table(Object.entries(found.properties).map(([name, part]) => [
    name, named(part), required.has(name) ? "required" : "", part.description || "",
  ]));
};

const operation = (path, method, told, document_) => {
  const node = make("details", undefined, "card");
  const head = node.appendChild(make("summary"));
  head.append(make("span", method.toUpperCase(), "method"), make("span", ` ${path}`, "mono"));
  head.append(make("span", ` ${words(told.description).split(". ")[0]}`, "quiet"));
  node.append(make("p", words(told.description)));
  if (told.parameters?.length) {
    node.append(make("h3", "Parameters"));
    node.append(table(told.parameters.map((part) => [part.name, `in ${part.in}`, named(part.schema), part.description || ""])));
  }
  const body = told.requestBody?.content?.["application/json"]?.schema;
  if (body) node.append(make("h3", "Body"), fields(body, document_));
  node.append(make("h3", "Answers"));
  for (const [status, part] of Object.entries(told.responses)) {
    const schema = part.content?.["application/json"]?.schema;
    node.append(make("p", `${status}: ${schema ? named(schema) : part.description}`));
    if (schema && status !== "default") node.append(fields(schema, document_));
  }
  return node;
};

fetch("/openapi.json").then((answer) => answer.json()).then((document_) => {
  const room = document.getElementById("docs");
  room.replaceChildren(make("h1", `${document_.info.title} ${document_.info.version}`), make("p", words(document_.info.description)));
  for (const [path, methods] of Object.entries(document_.paths))
    for (const [method, told] of Object.entries(methods)) room.append(operation(path, method, told, document_));
});

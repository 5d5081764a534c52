// Parses and validates an AsyncAPI document. Arguments: the folder of the installed packages, and the document.
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");

const [modules, file] = process.argv.slice(2);
const { Parser } = createRequire(`${modules}/`)("@asyncapi/parser");

new Parser().parse(readFileSync(file, "utf8")).then(({ document, diagnostics }) => {
  const errors = diagnostics.filter((found) => found.severity === 0);
  errors.forEach((found) => console.error(found.path.join("."), found.message));
  if (errors.length > 0 || !document) process.exit(1);
  console.log(document.operations().length);
});

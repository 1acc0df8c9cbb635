// The form of a model's options, made from the server's description.

import { byId, element } from "./dom.js";

const NONE = { seed: "automatic" }; // where a model has no value of its own

export class Options {
  constructor() {
    [this.form, this.note] = [byId("options"), byId("changed")];
    this.fields = new Map();
    this.form.addEventListener("input", () => this.count());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    byId("reset").addEventListener("click", () => this.fit(this.described));
  }

  /** Make the form of a model. options: JSON Schema by name.  own: the model's values where null is the default. */
  fit({ options, own }) {
    this.described = { options, own };
    this.fields.clear();
    const rows = Object.entries(options).map(([name, schema]) => this.row(flatten(name, schema, own[name])));
    this.form.replaceChildren(...rows);
    this.count();
  }

  row(option) {
    const id = `option-${option.name}`;
    const field = control(option, id);
    field.setAttribute("aria-describedby", `${id}-help`);
    this.fields.set(option.name, { option, field });
    const name = titled(option.name);
    const label = element("label", { htmlFor: id }, name);
    const help = element("p", { id: `${id}-help`, className: "help" }, option.help, hint(option));
    return element("div", { className: `option ${option.type === "boolean" ? "check" : ""}` }, label, field, help);
  }

  /** The options that differ from the model's own. Throws for one that is out of range, and goes to it. */
  values() {
    const found = {};
    for (const [name, { option, field }] of this.fields) {
      if (!field.checkValidity()) {
        this.mark(name);
        throw new Error(`${titled(option.name)}: ${field.validationMessage}`);
      }
      const value = read(option, field);
      if (value !== undefined && value !== option.default) found[name] = value;
    }
    return found;
  }

  /** Mark the field of an error; returns false if there is none of that name. */
  mark(name) {
    const known = this.fields.get(name);
    if (!known) return false;
    byId("options-card").open = true;
    known.field.setAttribute("aria-invalid", "true");
    known.field.addEventListener("input", () => known.field.removeAttribute("aria-invalid"), { once: true });
    known.field.focus();
    return true;
  }

  count() {
    const changed = [...this.fields.values()].filter(({ option, field }) => {
      const value = read(option, field);
      return !field.validity.valid || (value !== undefined && value !== option.default);
    }).length;
    this.note.textContent = changed ? `${changed} changed` : "";
    byId("reset").hidden = !changed;
  }
}

/** Flatten a schema: the plain value, null, other words and the number that means none. */
function flatten(name, { anyOf: [plain, , ...others], description: help, default: value = null }, own) {
  const found = { name, help, own, ...plain, default: value, choices: plain.enum };
  for (const other of others) Object.assign(found, other.enum ? { choices: other.enum } : { unset: other.const });
  return found;
}

function control(option, id) {
  if (option.type === "boolean" && option.default !== null) {
    return element("input", { id, type: "checkbox", checked: option.default });
  }
  if (option.type === "boolean") return choice(id, ["", "yes", "no"], "");
  if (option.choices && option.type === "string") return choice(id, option.choices, option.default ?? "");
  const number = option.type !== "string";
  const isText = !number || option.choices || (option.maximum ?? 0) > Number.MAX_SAFE_INTEGER;
  const field = element("input", { id, type: isText ? "text" : "number", autocomplete: "off" });
  field.placeholder = String(option.default ?? option.own ?? NONE[option.name] ?? "none");
  if (isText && number) {
    field.inputMode = "decimal";
    const digits = option.type === "integer" ? "\\d+" : "\\d*\\.?\\d+";
    field.pattern = [...(option.choices ?? []), digits].join("|");
  }
  if (!isText) {
    field.step = option.type === "integer" ? "1" : "any";
    if ("minimum" in option && !("unset" in option)) field.min = option.minimum;
    if ("unset" in option) field.min = Math.min(option.unset, option.minimum ?? option.unset);
    if ("maximum" in option) field.max = option.maximum;
  }
  return field;
}

function choice(id, values, chosen) {
  const shown = values.map((value) => element("option", { value, selected: value === chosen }, value || "automatic"));
  return element("select", { id }, ...shown);
}

/** The value of a field, as a request has it; undefined for the model's own. */
function read(option, field) {
  if (field.type === "checkbox") return field.checked;
  const text = field.value.trim();
  if (text === "") return undefined;
  if (option.type === "boolean") return text === "yes";
  if (option.type === "string" || option.choices?.includes(text)) return text;
  const number = Number(text);
  return option.type === "integer" && number > Number.MAX_SAFE_INTEGER ? BigInt(text) : number;
}

/** The name of an option, in words. */
export function titled(name) {
  const words = name.replaceAll("_", " ").replace(/^cfg/, "CFG");
  return words[0].toUpperCase() + words.slice(1);
}

/** The range of an option, in words. */
function hint({ minimum: min, maximum: max, exclusiveMinimum: above, type }) {
  if (type === "boolean" || type === "string" || (max ?? 0) > Number.MAX_SAFE_INTEGER) return "";
  const low = min !== undefined ? `${min}` : above !== undefined ? `above ${above}` : "";
  if (low && max !== undefined) return ` (${low} to ${max})`;
  if (low) return min !== undefined ? ` (${min} or more)` : ` (${low})`;
  return max !== undefined ? ` (at most ${max})` : "";
}

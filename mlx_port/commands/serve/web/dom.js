// Elements of the page.

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  play: "M8 5.500v13l10.500-6.500z",
  pause: "M8 5.500h3v13H8zM13.500 5.500h3v13h-3z",
  again: "M12 5a7 7 0 1 0 7 7h-2a5 5 0 1 1-5-5v3l4.500-4L12 2z",
};

export const byId = (id) => document.getElementById(id);

/** Create an element. Properties that begin with "aria-", or have no counterpart, become attributes. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") || !(name in made)) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** Create one of the icons, hidden from screen readers. */
export function icon(name) {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", "0 0 24 24");
  made.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  made.append(path);
  return made;
}

/** Show a message, or hide its place if there is none. */
export function show(place, message) {
  place.textContent = message;
  place.hidden = !message;
}

/** Write seconds as 1:05, or with tenths as 1:05.3. */
export function clock(seconds, digits = 0) {
  const all = Number(seconds.toFixed(digits));
  const minutes = Math.floor(all / 60);
  const rest = (all - 60 * minutes).toFixed(digits);
  return `${minutes}:${rest.padStart(digits ? digits + 3 : 2, "0")}`;
}

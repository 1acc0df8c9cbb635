// The dialog that asks for the server's key.

import { byId, show } from "./dom.js";

let asking = null;

/** Ask for the key; requests that need it at the same time wait for the same answer. */
export function askForKey(message) {
  asking ??= answer(message).finally(() => (asking = null));
  return asking;
}

async function answer(message) {
  const [dialog, field] = [byId("key-dialog"), byId("key")];
  field.value = "";
  show(byId("key-error"), message);
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return field.value;
}

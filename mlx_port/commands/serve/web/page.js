// The page: what its parts do together.

import { ApiError, askJson } from "./api.js";
import { Code } from "./code.js";
import { worded } from "./words.js";
import { byId, element, icon, show } from "./dom.js";
import { saveCaptions, saveSound } from "./download.js";
import { Editor } from "./editor.js";
import { NewVoice } from "./new-voice.js";
import { Options } from "./options.js";
import { PieceList } from "./pieces.js";
import { Player } from "./player.js";
import { ofPiece, ofSpeech, ofVoice } from "./snippets.js";
import { whole } from "./sound.js";
import { speak } from "./speech.js";
import { Voices } from "./voices.js";
import { Waveform } from "./waveform.js";

const [editor, options, voices, newVoice] = [new Editor(), new Options(), new Voices(), new NewVoice()];
const [player, waveform, list, code] = [new Player(), new Waveform(), new PieceList(), new Code()];
const [play, status] = [byId("play"), byId("status")];

let server = null; // the description of its models, formats and limits
let speech = null; // that is shown
let heard = null; // its sound: as it arrives, then joined from the kept takes
let cues = null; // times of the pieces in it
let selected = null; // seconds of the piece that plays
let stopping = null; // an AbortController while something is spoken
let waiting = null; // the place of a piece that is spoken again after that

const model = () => server.models.find((each) => each.id === byId("model").value);
const message = (text) => (status.textContent = text);
const failed = (error) => {
  show(byId("error"), worded(error));
  if (!(error instanceof ApiError)) return;
  if (error.param === "input") editor.field.focus();
  else options.mark(error.param);
};

function fitModel() {
  const chosen = model();
  editor.fit(chosen, server.limits.input);
  options.fit(chosen);
  voices.fit(chosen);
  newVoice.fit(chosen, server.limits);
}

async function start() {
  try {
    server = await askJson("v1/audio/models");
    byId("model").replaceChildren(
      ...server.models.map(({ id, title }) => {
        const name = id.toLowerCase() === title.toLowerCase() ? title : `${id} (${title})`;
        return element("option", { value: id }, name);
      }),
    );
    byId("format").replaceChildren(
      ...server.formats.map((name) => element("option", { value: name, selected: name === "mp3" }, name.toUpperCase())),
    );
    fitModel();
    await voices.refresh();
  } catch (error) {
    failed(error);
  }
  document.documentElement.dataset.ready = "";
}

/** Run what speaks, with the progress of its speech; Stop cancels it. Returns the speech, or null. */
async function run(body, onEvent, finished) {
  stopping = new AbortController();
  busy(true);
  show(byId("error"), "");
  message("Waiting for the first sound…");
  let [latest, began] = [null, 0];
  try {
    latest = await speak(body, stopping.signal, (speech, event) => {
      latest = speech;
      if (!began) [began] = [performance.now(), message("")];
      tell(speech, began);
      onEvent(speech, event);
    });
    message(finished(latest));
  } catch (error) {
    if (error.name !== "AbortError") {
      message("");
      failed(error);
    } else message(latest ? `Stopped after ${latest.seconds.toFixed(1)} s.` : "Stopped.");
    waiting = null;
    latest = onEvent === heardSpeech ? latest : null;
  }
  stopping = null;
  busy(false);
  return latest;
}

/** Say how much is made and how much is left, in seconds of speech, and when that will be. */
function tell(speech, began) {
  const left = Math.max(0, speech.expected - speech.seconds);
  byId("progress").value = Math.min(1, speech.seconds / Math.max(speech.expected, speech.seconds, 0.1));
  const spent = (performance.now() - began) / 1000;
  const wait = spent > 1 && left ? `, ready in ${Math.ceil((left * spent) / speech.seconds)} s` : "";
  byId("made").textContent = `${speech.seconds.toFixed(1)} s made, about ${left.toFixed(1)} s left${wait}`;
}

/** Something is spoken, or no longer. The focus goes from Speak to Stop and back. */
function busy(yes) {
  const [from, to] = yes ? [byId("speak"), byId("stop")] : [byId("stop"), byId("speak")];
  const focused = document.activeElement === from;
  [from.disabled, to.disabled] = [true, false];
  if (focused) to.focus();
  byId("progress").removeAttribute("value");
  byId("made").textContent = "";
  byId("progress").hidden = byId("made").hidden = !yes;
  if (speech) list.show(speech, cues, waiting);
  ready();
}

/** Files can be had of a speech that is complete. */
function ready() {
  for (const name of ["download", "srt", "vtt"]) byId(name).disabled = !heard?.complete || !cues;
  for (const name of ["srt", "vtt"]) byId(name).disabled ||= !cues.length;
}

function heardSpeech(arriving, event) {
  if (speech !== arriving) {
    [speech, heard, cues, selected] = [arriving, arriving.sound, null, null];
    byId("speech-card").hidden = false;
    const asked = withSeed(speech);
    code.show((format) => ofSpeech(asked, format));
    explain();
    ready();
    player.play(heard);
  }
  if (event.type === "speech.audio.piece") list.show(speech, cues, waiting);
  waveform.show(heard, speech.expected, marks());
}

async function speakScript() {
  if (stopping || !server) return;
  player.stop();
  let body;
  try {
    body = { model: model().id, voice: voices.chosen, input: editor.text, ...options.values() };
  } catch (error) {
    return failed(error);
  }
  const made = await run(body, heardSpeech, ({ seconds }) => `${seconds.toFixed(1)} s of speech.`);
  if (made) join();
  speakWaiting();
}

/** Speak the piece that waits, if any. */
function speakWaiting() {
  if (waiting === null) return;
  const place = waiting;
  waiting = null;
  speakAgain({ place });
}

/** The request of a speech, with the seed that it had. */
function withSeed({ body, seed }) {
  return seed === null ? body : { ...body, seed: BigInt(seed) };
}

async function speakAgain({ place }) {
  if (stopping) {
    waiting = waiting === place ? null : place;
    message(waiting === null ? "" : `Piece ${place + 1} waits until this speech ends.`);
    return list.show(speech, cues, waiting);
  }
  player.stop();
  const piece = speech.pieces[place];
  const seed = crypto.getRandomValues(new Uint32Array(1))[0];
  const body = { ...piece.again, seed };
  const made = await run(body, () => {}, () => `Piece ${place + 1} has a new take. Keep the one that you like.`);
  if (!made) return;
  speech.add(piece, made);
  list.show(speech, cues, waiting);
  playTake({ place, number: piece.takes.length - 1 });
  const asked = withSeed(speech);
  code.show((format) => ofPiece(asked, place, seed, format));
  speakWaiting();
}

function playTake({ place, number }) {
  const piece = speech.pieces[place];
  if (number === piece.kept && cues) {
    const { start, end } = cues[place];
    selected = [start, end];
    player.play(heard, Math.round(start * heard.rate), Math.round(end * heard.rate));
  } else {
    selected = null;
    player.play(whole(piece.takes[number].samples, speech.rate));
  }
}

/** Keep a take: the speech is joined again. */
function keep({ place, number }) {
  player.stop();
  speech.pieces[place].kept = number;
  join();
  message(`Take ${number + 1} of piece ${place + 1} is in the speech.`);
}

/** Join the kept takes, and show what they make. */
function join() {
  const made = speech.joined();
  const was = heard;
  [heard, cues, selected] = [whole(made.samples, speech.rate), made.cues, null];
  if (player.sound === was) player.sound = heard;
  if (!player.playing) player.rested = 0;
  waveform.show(heard, speech.expected, marks());
  list.show(speech, cues, waiting);
  explain();
  ready();
  follow();
}

const marks = () => (cues ?? speech.pieces).map(({ start }) => start);

function explain() {
  const seconds = heard.complete ? `${(heard.length / heard.rate).toFixed(1)} s, ` : "";
  const seed = speech.seed === null ? "" : `, seed ${speech.seed}`;
  byId("facts").textContent = `${seconds}${(heard.rate / 1000).toFixed(1)} kHz${seed}`;
}

/** Show what is heard, as long as something plays. */
function follow() {
  const own = player.sound === heard || !player.playing;
  play.replaceChildren(icon(player.playing && own ? "pause" : "play"));
  play.setAttribute("aria-label", player.playing && own ? "Pause" : "Play");
  if (own && heard) waveform.move(player.position, player.playing ? selected : null);
  if (player.playing) requestAnimationFrame(follow);
}

function toggle() {
  if (!heard) return;
  if (player.playing && player.sound === heard) return player.stop();
  selected = null;
  const place = player.sound === heard ? player.position : 0;
  player.play(heard, place < heard.length ? place : 0);
}

async function saved(work) {
  show(byId("error"), "");
  try {
    await work();
  } catch (error) {
    failed(error);
  }
}

player.addEventListener("change", follow);
player.addEventListener("end", () => follow());
waveform.addEventListener("toggle", toggle);
waveform.addEventListener("seek", ({ detail }) => {
  selected = null;
  if (player.playing) return player.play(heard, detail);
  [player.sound, player.rested] = [heard, detail];
  follow();
});
list.addEventListener("play", ({ detail }) => playTake(detail));
list.addEventListener("again", ({ detail }) => speakAgain(detail));
list.addEventListener("keep", ({ detail }) => keep(detail));
voices.addEventListener("removed", ({ detail }) => message(`The voice ${detail} is removed.`));
voices.addEventListener("failed", ({ detail }) => failed(detail));
newVoice.addEventListener("added", async ({ detail: { name, form } }) => {
  await voices.refresh(name);
  message(`The voice ${name} is added.`);
  code.show(() => ofVoice(form));
});
byId("model").addEventListener("change", fitModel);
for (const name of ["script", "options", "voice", "model"]) {
  for (const kind of ["input", "change"]) byId(name).addEventListener(kind, () => show(byId("error"), ""));
}
byId("speak").addEventListener("click", speakScript);
byId("stop").addEventListener("click", () => stopping?.abort());
play.addEventListener("click", toggle);
byId("download").addEventListener("click", () => saved(() => saveSound(heard, byId("format").value)));
byId("srt").addEventListener("click", () => saved(() => saveCaptions(cues, "srt")));
byId("vtt").addEventListener("click", () => saved(() => saveCaptions(cues, "vtt")));
code.addEventListener("copied", ({ detail }) => message(detail));
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    speakScript();
  } else if (event.key === "Escape") {
    if (stopping) stopping.abort();
    else player.stop();
  }
});

follow();
start();

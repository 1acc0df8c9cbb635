// The lines of curl and Python that do what was just done.

import { hasKey, toJson } from "./api.js";

const root = () => new URL(".", location.href).href.replace(/\/$/, "");
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const AUTHORIZATION = '  -H "authorization: Bearer $MLX_PORT_API_KEY" \\\n';
const JSON_TYPE = "-H 'content-type: application/json'";
const OF_CLIENT = ["model", "voice", "input", "response_format", "stream_format", "speed"];

/** Of a speech. body: of the request, its seed included. */
export function ofSpeech(body, format) {
  const asked = { ...body, response_format: format };
  return {
    curl: `${curl("audio/speech")}  ${JSON_TYPE} \\\n  -d ${shell(toJson(asked, "    "))} --output speech.${format}`,
    python: `${client()}with ${create(asked)} as answer:\n    answer.stream_to_file("speech.${format}")`,
  };
}

/** Of a piece that was spoken again. body: of the whole text.  place: of the piece. */
export function ofPiece(body, place, seed, format) {
  const asked = { ...body, response_format: "wav", stream_format: "sse", pieces: true };
  const file = `piece-${place + 1}.${format}`;
  const key = hasKey() ? AUTHORIZATION : "";
  return {
    curl:
      `# the pieces of the text, each with the request that speaks it again\n${curl("audio/speech")}  ${JSON_TYPE} \\\n` +
      `  -d ${shell(toJson(asked, "    "))} \\\n` +
      `  | sed -n 's/^data: //p' | jq -c 'select(.type == "speech.audio.piece")' > pieces.jsonl\n` +
      `jq -c 'select(.index == ${place}) | .again + {"seed": ${seed}, "response_format": "${format}"}' pieces.jsonl \\\n` +
      `  | curl --fail-with-body ${root()}/v1/audio/speech \\\n${key}  ${JSON_TYPE} -d @- --output ${file}`,
    python:
      `import json\n\n${client()}with ${create(asked)} as answer:\n` +
      `    lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]\n` +
      `pieces = [event for event in map(json.loads, lines) if event["type"] == "speech.audio.piece"]\n` +
      `again = pieces[${place}]["again"]\n` +
      `standard = {name: again.pop(name) for name in ("model", "voice", "input")}\n` +
      `with client.audio.speech.with_streaming_response.create(\n` +
      `    **standard, response_format="${format}", extra_body={**again, "seed": ${seed}}\n) as answer:\n` +
      `    answer.stream_to_file("${file}")`,
  };
}

/** Of a voice that was added. form: that was sent. */
export function ofVoice(form) {
  const texts = [...form].filter(([, value]) => typeof value === "string");
  const files = [...form].filter(([, value]) => typeof value !== "string");
  const sent = [
    ...texts.map(([name, value]) => `-F ${shell(`${name}=${value}`)}`),
    ...files.map(([name], place) => `-F ${name}=@recording-${place + 1}.wav`),
  ];
  const data = texts.filter(([name]) => name !== "transcript");
  const transcripts = form.getAll("transcript");
  const fields = data.map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  if (transcripts.length) fields.push(`"transcript": ${JSON.stringify(transcripts)}`);
  const opened = files.map(([name], place) => `("${name}", open("recording-${place + 1}.wav", "rb"))`);
  const headers = hasKey() ? `    headers={"authorization": "Bearer " + os.environ["MLX_PORT_API_KEY"]},\n` : "";
  return {
    curl: `${curl("audio/voices")}  ${sent.join(" \\\n  ")}`,
    python:
      `${hasKey() ? "import os\n\n" : ""}import httpx\n\nanswer = httpx.post(\n    "${root()}/v1/audio/voices",\n${headers}` +
      `    data={${fields.join(", ")}},\n    files=[${opened.join(", ")}],\n)\nanswer.raise_for_status()`,
  };
}

function curl(path) {
  return `curl --fail-with-body ${root()}/v1/${path} \\\n${hasKey() ? AUTHORIZATION : ""}`;
}

function client() {
  const key = hasKey() ? 'os.environ["MLX_PORT_API_KEY"]' : '"unused"';
  const lines = hasKey() ? "import os\n\n" : "";
  return `${lines}from openai import OpenAI\n\nclient = OpenAI(base_url="${root()}/v1", api_key=${key})\n`;
}

/** A call of OpenAI's client; what it does not know goes into extra_body. */
function create(body) {
  const known = Object.entries(body).filter(([name]) => OF_CLIENT.includes(name));
  const extra = Object.entries(body).filter(([name]) => !OF_CLIENT.includes(name));
  const lines = known.map(([name, value]) => `    ${name}=${python(value)},\n`);
  if (extra.length) {
    const fields = extra.map(([name, value]) => `"${name}": ${python(value)}`);
    lines.push(`    extra_body={${fields.join(", ")}},\n`);
  }
  return `client.audio.speech.with_streaming_response.create(\n${lines.join("")})`;
}

function python(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

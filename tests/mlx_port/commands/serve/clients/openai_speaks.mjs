// OpenAI's JavaScript client in Node: its module, the base URL, and fields of a speech. Writes the sound.
const [path, baseURL, fields] = process.argv.slice(2);
const { default: OpenAI } = await import(path);
const client = new OpenAI({ apiKey: "unused", baseURL, maxRetries: 0 });
const answer = await client.audio.speech.create(JSON.parse(fields));
process.stdout.write(Buffer.from(await answer.arrayBuffer()));

// Marks of pauses and speakers that the server refuses as it reads them (tts_core/text/marks.py, breaks.py).

const WRONG_TAG = /\[\s*S\s*\d+\s*\]/gi;
const OPEN_MARK = /\[\s*(?:pause(?=[\s:=\d])[^\[\]\s]*(?![^\[\]\n]*\])|s\s*[1-9](?=[\s\[)}>]|$)(?!\s*\]))|(?<![\w[({<])s[1-9]\]/gi;
const PAUSE = /\[\s*pause\s*(?::[^\[\]]*|[=\d.][^\[\]\n]*)?\]/gi;
const RIGHT = /\[\s*pause\s*:\s*(\d+(?:\.\d*)?|\.\d+)\s*\]/gi;
const LONGEST = 600; // seconds
const NUMBER = String.raw`\s*[:=]\s*\.?\d[\d.,]*\s*[a-z]*`;
const OTHER_BRACKETS = new RegExp(String.raw`[({<]\s*pause${NUMBER}\s*[\])}>]?|(?<![\w[({<])pause${NUMBER}\s*\]`, "gi");
const OTHER_WORD = new RegExp(String.raw`\[\s*([a-z]{3,12})${NUMBER}\s*\]?`, "gi");
const WORDS = ["break", "silence", "wait", "rest", "sleep", "pauses"];
const OTHER_TAG = /<\s*([a-z]{3,12})((?:\s[^<>\n]*|\/)?)>/gi;

/** Find them, as matches. speakers: that a model has. */
export function wrongMarks(text, speakers) {
  const rest = text.replaceAll(RIGHT, (mark, seconds) => (Number(seconds) <= LONGEST ? " ".repeat(mark.length) : mark));
  const all = (pattern, isWrong = () => true) => [...rest.matchAll(pattern)].filter(isWrong);
  return [
    ...all(WRONG_TAG, ([tag]) => speakers === 1 || !/^\[S[12]\]$/i.test(tag)),
    ...all(OPEN_MARK),
    ...all(PAUSE),
    ...all(OTHER_BRACKETS),
    ...all(OTHER_WORD, ([, word]) => !is(word, "pause") && (WORDS.includes(word.toLowerCase()) || isNear(word, "pause"))),
    ...all(OTHER_TAG, ([, name, rest]) => {
      const near = is(name, "pause") || isNear(name, "break");
      return !is(name, "break") && (/\s(?:time|strength)\s*=/i.test(rest) || (near && rest));
    }),
  ];
}

const is = (word, other) => word.toLowerCase() === other;

/** True for a misspelt word: it has most letters of the other one, in order. */
function isNear(word, other) {
  let row = Array(other.length + 1).fill(0);
  for (const letter of word.toLowerCase()) {
    const next = [0];
    for (let at = 0; at < other.length; at++) {
      next.push(letter === other[at] ? row[at] + 1 : Math.max(row[at + 1], next[at]));
    }
    row = next;
  }
  return (2 * row.at(-1)) / (word.length + other.length) >= 0.75;
}

// What is wrong in a text that is no JSON (RFC 8259): at which character, and in words. Browsers do not all say where. A name that
// is there twice in an object is a mistake as well: its first value would be lost.
const SPACE = /[ \t\r\n]*/y;
const TEXT = /"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\x00-\x1f]*)*"/y;
const SCALAR = /(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y;

export function mistakeIn(json) {
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(json)?.[0];
    at += found?.length ?? 0;
    return found;
  };
  const skip = (character) => [take(SPACE)].some(() => json[at] === character && (at += 1));
  const fail = (expected, place = at) => { throw { expected, place }; };
  const all = (end, one) => {
    if (skip(end)) return;
    do one(); while (skip(","));
    skip(end) || fail(`a comma or ${end}`);
  };
  const member = (names) => {
    take(SPACE);
    const start = at;
    const name = take(TEXT) ?? fail("a name in double quotes");
    if (names.has(JSON.parse(name))) fail(`another name: ${name} is there twice`, start);
    names.add(JSON.parse(name));
    skip(":") || fail("a colon");
    value();
  };
  const value = () => {
    const names = new Set();
    if (skip("{")) all("}", () => member(names));
    else if (skip("[")) all("]", value);
    else take(TEXT) ?? take(SCALAR) ?? fail(json[at] === '"' ? "a text that ends on this line, with \\ before what is special in it" : "a value");
  };
  try {
    value();
    take(SPACE);
    return at < json.length ? fail("the end") : undefined;
  } catch ({ expected, place, message }) { // a message: it is nested too deeply for the browser
    const before = json.slice(0, place ?? at).split("\n");
    const where = `line ${before.length}, column ${before.at(-1).length + 1}`;
    return { at: place ?? at, message: `This is no JSON: ${where} ${expected ? `should have ${expected}` : `is a problem: ${message}`}.` };
  }
}

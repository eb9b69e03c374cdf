// Node's own test runner and fetch: `node --test shop.test.mjs`. `restkeeper harness` prints where it is.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { after, afterEach, before, beforeEach, describe, it } from "node:test";

const cwd = new URL(".", import.meta.url);
const seed = JSON.parse(readFileSync(new URL("data.json", cwd)));
const order = { customer: seed.users[0].id, lines: [{ product: seed.products[0].id }] };
const send = (method, url, body) =>
  fetch(url, { method, body: body && JSON.stringify(body), headers: { "Content-Type": "application/json" } });
const read = async (url) => (await fetch(url)).json();

describe("an order", () => {
  let harness, spaces, api;
  before(async () => {
    harness = spawn("restkeeper", ["harness", "../shop", "--until-eof"], { cwd, stdio: ["pipe", "pipe", "inherit"] });
    const { value } = await createInterface(harness.stdout)[Symbol.asyncIterator]().next();
    ({ spaces } = JSON.parse(value));
  });
  after(() => harness.kill());
  beforeEach(async () => {
    api = await (await send("POST", spaces, { seed })).json(); // a service of its own
  });
  afterEach(async () => {
    const { unmet } = await (await send("DELETE", api.control)).json();
    assert.deepEqual(unmet.map(({ message }) => message), []); // each fault and stub has had its requests
  });

  it("is returned as it was made", async () => {
    const made = await (await send("POST", `${api.url}/orders`, order)).json();
    assert.deepEqual(await read(`${api.url}/orders/${made.id}`), made);
  });

  it("is there when its response was lost", async () => {
    await send("POST", `${api.control}/faults`, { kind: "drop_response", method: "POST", times: 1 });
    await assert.rejects(send("POST", `${api.url}/orders`, order), TypeError);
    assert.equal((await read(`${api.url}/orders`)).length, 1);
    assert.equal((await read(`${api.control}/requests?method=POST`))[0].fault, "drop_response");
  });

  it("has a price of another service", async () => {
    await send("POST", `${api.control}/stubs`, { method: "GET", path: "/rates", json: { EUR: 1.1 } });
    assert.deepEqual(await read(`${api.url}/rates?to=EUR&day=1`), { EUR: 1.1 });
    const expected = { method: "GET", path: "/rates", query: { day: 1, to: "EUR" }, times: 1, within: 2 };
    const { message } = await (await send("POST", `${api.control}/assert_requested`, expected)).json();
    assert.equal(message, null);
  });
});
